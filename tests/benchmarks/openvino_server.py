"""OpenVINO GenAI's continuous batching, run by the Python of an environment that has openvino-genai."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from itertools import count
from typing import Any

import openvino_genai
from completions_server import serve

CACHE_GB = 1
RUNNING = openvino_genai.GenerationStatus.RUNNING
Generated = asyncio.Queue[Sequence[int]]  # the tokens of each step


class Pipeline:
    """One thread takes the steps of a `ContinuousBatchingPipeline`, and hands each request its tokens after each."""

    def __init__(self, model: str, slots: int, threads: int) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_seqs = slots
        scheduler.cache_size = CACHE_GB
        properties = {"INFERENCE_NUM_THREADS": threads}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)
        self._tokenizer = self._pipeline.get_tokenizer()
        self._arrivals: queue.Queue[tuple[Any, Any, Generated]] = queue.Queue()  # ids, configuration
        self._numbers = count()
        threading.Thread(target=self._run, daemon=True).start()

    async def generate(self, prompt: str, tokens: int) -> AsyncIterator[Sequence[int]]:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = tokens
        config.ignore_eos = True
        config.do_sample = False
        ids = self._tokenizer.encode(prompt).input_ids
        generated: Generated = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._arrivals.put((ids, config, generated))
        while tokens > 0:
            step = await generated.get()
            tokens -= len(step)
            yield step

    def text(self, pieces: Sequence[int]) -> str:
        return self._tokenizer.decode(list(pieces))

    def _run(self) -> None:
        running: list[tuple[Any, Generated]] = []  # with the pipeline's handle
        while True:
            while not running or not self._arrivals.empty():
                ids, config, generated = self._arrivals.get()
                running.append((self._pipeline.add_request(next(self._numbers), ids, config), generated))
            self._pipeline.step()
            for handle, generated in running:
                while handle.can_read():
                    tokens = [token for output in handle.read().values() for token in output.generated_ids]
                    self._loop.call_soon_threadsafe(generated.put_nowait, tokens)
            running = [each for each in running if each[0].get_status() == RUNNING]


if __name__ == "__main__":
    serve(Pipeline(sys.argv[1], int(sys.argv[3]), int(sys.argv[4])), int(sys.argv[2]))
