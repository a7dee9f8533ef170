"""llama.cpp's own server with continuous batching, run by the Python of an environment that has xllamacpp."""

from __future__ import annotations

import signal
import sys

import xllamacpp

CONTEXT = 512  # of each slot: prompt and completion


def main(gguf: str, port: int, slots: int, threads: int) -> None:
    """Until the process is ended."""
    params = xllamacpp.CommonParams()
    params.model.path = gguf
    params.port = port
    params.n_parallel = slots
    params.endpoint_metrics = True  # as --metrics does: others.py looks at them
    params.n_ctx = slots * CONTEXT
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    while server:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], *(int(number) for number in sys.argv[2:]))
