"""llama.cpp's own server with continuous batching, run by the Python of an environment that has xllamacpp."""

from __future__ import annotations

import os
import sys

import xllamacpp

CONTEXT = 512  # of each slot: prompt and completion


def main(gguf: str, slots: int, threads: int) -> None:
    """Until standard input ends."""
    params = xllamacpp.CommonParams()
    params.model.path = gguf
    params.n_parallel = slots
    params.n_ctx = slots * CONTEXT
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # its threads do not end by themselves


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
