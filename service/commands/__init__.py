"""The words of `python -m service` and `batchscope`, a module each; `cli` holds what they share.

Here: options are parsed, the rooms below are called, results are printed. `bench/` measures the engine beside its
floors, `offline_batch/` computes files of inputs.
Not here: statistics of runs and recordings (`analysis`), arrivals (`load`), processes of the service (`launch`).
Invariant: no other room imports a command, and every command stands in `service.__main__.COMMANDS`.
"""
