"""The text generator of Ray Serve's batching tutorial as it stands, with this project's model for `gpt2`.

Only what is measured is pinned: 24 new tokens a prompt, so that both sides generate the same amount.
"""

from __future__ import annotations

import sys
from typing import Any

from ray import serve
from starlette.requests import Request
from transformers import pipeline


@serve.deployment
class BatchTextGenerator:
    def __init__(self, pipeline_key: str, model_key: str) -> None:
        self.model = pipeline(pipeline_key, model_key)

    @serve.batch(max_batch_size=16)
    async def handle_batch(self, inputs: list[str]) -> list[str]:
        results = self.model(inputs, min_new_tokens=24, max_new_tokens=24)
        return [result[0]["generated_text"] for result in results]

    async def __call__(self, request: Request) -> Any:
        return await self.handle_batch(request.query_params["text"])


if __name__ == "__main__":
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(BatchTextGenerator.bind("text-generation", sys.argv[2]))
    print("ready", flush=True)
    sys.stdin.read()
    serve.shutdown()
