"""An application that Ray's own decorator batches, and that is watched."""

import asyncio

import batchscope
from ray import serve
from starlette.requests import Request

batchscope.watch()


@serve.deployment
class Doubler:
    @serve.batch(max_batch_size=4, batch_wait_timeout_s=0.1)
    async def double(self, numbers: list[int]) -> list[int]:
        await asyncio.sleep(0.05)
        return [2 * number for number in numbers]

    async def __call__(self, request: Request) -> int:
        return await self.double(int(request.query_params["number"]))


app = Doubler.bind()
