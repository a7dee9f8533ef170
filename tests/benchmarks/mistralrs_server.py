"""mistral.rs' engine with its continuous batching, run by the Python of an environment that has mistralrs.

The wheel brings no server. Its call for a completion borrows the engine until the answer is there, so that a second one
fails; its streamed chat does not. So each prompt is a chat of one message, whose template is that message.

Weights are in float32: from a GGUF file and in 8 bits the engine fails as soon as prompts are read in one batch ("input
tensor is not contiguous"), and in bfloat16 it was slower in a short trial.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mistralrs
from completions_server import serve

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


class Runner:
    """A thread a request waits for its chunks: the engine's iterator blocks."""

    def __init__(self, model: Path, slots: int) -> None:
        template = model / "prompt.jinja"
        template.write_text(TEMPLATE)
        which = mistralrs.Which.Plain(model_id=str(model), dtype=mistralrs.ModelDType.F32)
        self._runner = mistralrs.Runner(which, max_seqs=slots, prefix_cache_n=0, jinja_explicit=str(template))
        self._threads = ThreadPoolExecutor(max_workers=1024)

    async def generate(self, prompt: str, tokens: int) -> AsyncIterator[Sequence[str]]:
        request = mistralrs.ChatCompletionRequest(
            messages=prompt, model="default", max_tokens=tokens, temperature=0, stream=True, ignore_eos=True
        )
        chunks = self._runner.send_chat_completion_request(request)
        loop = asyncio.get_running_loop()
        while (chunk := await loop.run_in_executor(self._threads, next, chunks, None)) is not None:
            yield [chunk.choices[0].delta.content or ""]

    def text(self, pieces: Sequence[str]) -> str:
        return "".join(pieces)


if __name__ == "__main__":
    serve(Runner(Path(sys.argv[1]), int(sys.argv[3])), int(sys.argv[2]))
