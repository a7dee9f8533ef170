"""The tutorials of Ray's documentation, with one import changed: `from ray import serve` was there.

- `generator`: "Serve a Text Generator with Request Batching", as it is with Ray 2.60, with a model that is small;
- `adder`: its predecessor "Batching Tutorial", as it was with Ray 1.13, deployed as Serve does it today.
"""

import time
from typing import List  # noqa: UP035

import numpy as np
from starlette.requests import Request

from batchscope import serve  # isort: skip


@serve.deployment
class BatchTextGenerator:
    def __init__(self, pipeline_key: str, model_key: str):
        from transformers import pipeline

        self.model = pipeline(pipeline_key, model_key)

    @serve.batch(max_batch_size=4)
    async def handle_batch(self, inputs: List[str]) -> List[str]:  # noqa: UP006
        print("Our input array has length:", len(inputs))

        results = self.model(inputs)
        return [result[0]["generated_text"] for result in results]

    async def __call__(self, request: Request) -> List[str]:  # noqa: UP006
        return await self.handle_batch(request.query_params["text"])


@serve.deployment
class BatchAdder:
    @serve.batch(max_batch_size=4)
    async def handle_batch(self, requests: List[Request]):  # noqa: UP006
        numbers = [int(request.query_params["number"]) for request in requests]

        input_array = np.array(numbers)
        print("Our input array has shape:", input_array.shape)
        # Sleep for 200ms, this could be performing CPU intensive computation
        # in real models
        time.sleep(0.2)  # noqa: ASYNC251
        output_array = input_array + 1
        return output_array.astype(int).tolist()

    async def __call__(self, request: Request):
        return await self.handle_batch(request)


adder = BatchAdder.bind()


def generator(options: dict) -> serve.Application:
    return BatchTextGenerator.bind("text-generation", options["model"])
