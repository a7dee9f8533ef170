"""`bench`: the engine alone and through HTTP, beside transformers' generate and the floors of the machine.

`subjects` and `machine` import torch and run in worker processes; everything else runs in the command's own process.
"""
