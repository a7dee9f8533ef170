"""The steps of rows that are decoded together: each is launched on the device, and its tokens are read from there.

A GPU computes while Python goes on. So the next step is launched before the tokens of the last are read, and what
Python does with these takes no time of the GPU:

    GPU      step 1 │ step 2          │ step 3          │
    Python          │ reads 1, its text; admits; launches 3 │ reads 2 …

vLLM (https://blog.vllm.ai/2025/01/27/v1-alpha-release.html) and SGLang (https://lmsys.org/blog/2024-12-04-sglang-v0-4/)
overlap them as well. A row that ends is computed in one step more, whose token is dropped, and a request joins a step
later. A processor would gain nothing, and computes a step when the one before it has been read.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from service.engine.batch import Batch, Forward, sum_of
from service.engine.compute_thread import ComputeThread
from service.engine.groups import Groups
from service.engine.job import Likelihoods
from service.engine.out_of_memory import Failure, attempt
from service.engine.row import Row
from service.engine.sampling import log_probabilities, next_tokens, on_device
from service.messages.telemetry import BatchWork


class Token(NamedTuple):
    """The next token of a row, whether its logits were fit to choose from, and how likely it was if that is asked."""

    row: Row
    token: int
    is_fit: bool
    likelihoods: Likelihoods | None = None


class Launched:
    """A forward pass over the rows of some batches that are not done, which the device computes."""

    @torch.inference_mode()
    def __init__(self, forward: Forward, batches: Sequence[Batch]) -> None:
        self._begun_s = time.perf_counter()
        parts = [batch.next_part() for batch in batches]
        sizes = [len(part.ids) for part in parts]
        placed = list(zip(batches, parts, accumulate(sizes[:-1], initial=0), strict=True))
        # The number in the pass of each row that gets a token.
        self._rows = [each for batch, part, first in placed for each in enumerate(batch.receiving(part), first)]
        draws = [draw for number, row in self._rows if (draw := row.draw(number))]
        judged = {number: row for number, row in self._rows if row.logprobs is not None}
        logits = forward.compute(parts)
        tokens, fit = next_tokens(logits, draws)
        if given := [(number, token) for number, row in judged.items() if (token := row.given) is not None]:
            numbers, known = on_device(given, tokens.device).unbind(1)
            tokens[numbers] = known
        wanted = [torch.stack((tokens, fit))]
        if judged:
            most = max(row.logprobs or 0 for row in judged.values())
            wanted.append(log_probabilities(logits, tokens, list(judged), most))
        self._judged = judged
        self._wanted, self._is_there = _to_host(wanted)
        self._computed = sum(part.ids.numel() for part in parts)
        self._prompts = sum(part.ids.numel() for batch, part in zip(batches, parts, strict=True) if not batch.has_read)
        for batch, part, first in placed:
            batch.advance(part, tokens[first : first + len(part.ids)], is_counted=first == 0)

    def read(self, since_s: float = 0.0) -> tuple[list[Token], float]:
        """Wait for the device.

        Returns the tokens of the batches whose prompts are read, and how many seconds the pass took for prompts if it
        began at `since_s` on the performance counter, or later.
        """
        if self._is_there is not None:
            self._is_there.synchronize()
        # Here is the one wait for the device in a step.
        (chosen, is_fit), *logarithms = [each.tolist() for each in self._wanted]
        took_s = time.perf_counter() - max(self._begun_s, since_s)
        self.drop()
        likely = {
            number: _likelihoods(row, each)
            for of_judged in logarithms
            for (number, row), each in zip(self._judged.items(), of_judged, strict=True)
        }
        tokens = [Token(row, chosen[number], bool(is_fit[number]), likely.get(number)) for number, row in self._rows]
        return tokens, took_s * self._prompts / self._computed

    def drop(self) -> None:
        """Its tokens do not come any more."""
        for _, row in self._rows:
            row.in_flight -= 1


class Steps:
    """The steps of some groups, one after the other.

    Attributes:
        work: what was computed for the tokens that have come.
    """

    def __init__(self, forward: Forward, groups: Groups, thread: ComputeThread, *, is_single: bool = False) -> None:
        """`is_single`: no token is asked for but the first of each row."""
        self.work = BatchWork()
        self._forward = forward
        self._groups = groups
        self._thread = thread
        self._is_ahead = forward.is_ahead and not is_single
        self._ahead: Launched | None = None
        self._failure: Failure | None = None
        self._read_s = 0.0  # when the last tokens came
        self._prefill_s = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether the step after the last could not be launched, which `next` returns; no row may join before."""
        return self._failure is not None

    def next(self) -> list[Token] | Failure:
        """The tokens of a step, none for a row whose prompt is not read yet; or why it failed."""
        return self._thread.compute(self._next)

    def _next(self) -> list[Token] | Failure:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            return failure
        launched = attempt(self._launch) if self._ahead is None else self._ahead
        self._ahead = None
        if isinstance(launched, Failure):
            return launched
        work = self._groups.work
        following = attempt(self._launch) if self._is_ahead and self._groups.goes_on else None
        read = attempt(partial(launched.read, self._read_s))
        if isinstance(read, Failure):
            for each in (launched, following):
                if isinstance(each, Launched):
                    each.drop()
            return read
        if isinstance(following, Failure):
            self._failure = following
        else:
            self._ahead = following
        tokens, prefill_s = read
        self._read_s = time.perf_counter()
        self._prefill_s += prefill_s
        self.work = sum_of(work, BatchWork(prefill_s=self._prefill_s))
        self._groups.clear([token.row for token in tokens if not token.is_fit])
        return tokens

    def _launch(self) -> Launched:
        return Launched(self._forward, self._groups.for_step())


def _likelihoods(row: Row, logarithms: Sequence[float]) -> Likelihoods:
    """Of the token of a row, from what `log_probabilities` gives of it."""
    most = len(logarithms) // 2
    likeliest = zip(map(int, logarithms[1 + most :]), logarithms[1 : 1 + most], strict=True)
    return Likelihoods(logarithms[0], dict(islice(likeliest, row.logprobs)))


def _to_host(values: Sequence[Tensor]) -> tuple[Sequence[Tensor], Any]:
    """`values` on their way to the host, and the event after which they are there."""
    if not values[0].is_cuda:
        return values, None
    there = [each.to("cpu", non_blocking=True) for each in values]  # which pins the memory there
    is_there = torch.cuda.Event()  # type: ignore[no-untyped-call]
    is_there.record(torch.cuda.current_stream(values[0].device))
    return there, is_there
