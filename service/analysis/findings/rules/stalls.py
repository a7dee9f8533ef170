"""The rule on stalls: running answers wait for the prompts of requests that join."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from heapq import nlargest
from textwrap import shorten
from typing import Final

import numpy as np

from service.analysis.findings.facts import Facts, Finding
from service.analysis.findings.mend import Advice
from service.analysis.findings.rules.sizes import prompts_dominate
from service.analysis.observed.columns import Ints
from service.analysis.observed.token_gaps import Stall
from service.analysis.predict.cost import CostModel
from service.messages.settings import BOUNDS
from service.messages.text import counted, seconds

LEAST_STALL_S: Final = 0.2  # a shorter one is hardly seen in a text that grows
MUCH_LONGER: Final = 2.0  # times a step that reads no prompt
EXPLAINED: Final = 1 / 3  # of the stall, by the mean time of a prompt's tokens: in a long prompt the last take longest
WANTED_STEPS: Final = 3.0  # without a prompt; a stall that is no longer is short enough
GAINED: Final = 0.7  # of the stall that is left, at most, where a smaller chunk is worth it
MOST_LOOKED_AT: Final = 5  # of the longest stalls
LAST_TOKENS: Final = 1.5  # times the mean of a long prompt's tokens, as measured: they attend to all before them
SAME_STEP_S: Final = 1e-3
SHOWN_CHARACTERS: Final = 32  # of a prompt


@dataclass(frozen=True)
class _Reading:
    """A stall while prompts were read.

    Attributes:
        rows: the requests whose prompts were read, the longest prompt first.
        held: running requests that waited for it.
        tokens: of the prompts, which are padded to one length.
        step_s: what the step would have taken without them.
    """

    stall: Stall
    rows: Ints
    held: int
    tokens: int
    step_s: float

    def part(self, chunk_tokens: int) -> int:
        """The most tokens that a step reads of them."""
        return min(self.tokens, chunk_tokens)

    def later_s(self, chunk_tokens: int, instead_of: int) -> float:
        """How much later the first tokens of these requests come: they are read in more steps."""
        more = math.ceil(self.tokens / chunk_tokens) - math.ceil(self.tokens / instead_of)
        return more * self.step_s


def stream_stalled(facts: Facts) -> Finding | None:
    """A long gap between the tokens of running requests comes from prompts that joined, and a smaller chunk ends it."""
    cost, chunk_tokens = facts.cost, facts.chunk_tokens
    if not facts.is_continuous or cost is None:
        return None
    stalls = facts.history.gaps.stalls(facts.since_s, facts.at_s)
    longest = nlargest(MOST_LOOKED_AT, stalls, key=lambda stall: stall.gap_s)
    reading = next((found for each in longest if (found := _reading(facts, cost, each)) is not None), None)
    if reading is None:
        return None
    stall_s = reading.stall.gap_s
    smaller = _smaller_chunk(reading, chunk_tokens)
    bound_s = _bound_s(reading, chunk_tokens, smaller)
    most_s = min(_bound_s(reading, chunk_tokens, smaller, LAST_TOKENS), stall_s)
    if bound_s > GAINED * stall_s:
        return None
    later_s = reading.later_s(smaller, chunk_tokens)
    expected = (
        f"By the cost of recent batches, stalls of {seconds(bound_s)} to {seconds(most_s)} instead of "
        f"{seconds(stall_s)}. The first token of such a request comes about {seconds(later_s)} later."
    )
    dominate = prompts_dominate(facts)
    return Finding(
        "stream_stalled",
        "warning",
        "Prompts that join stall the running answers",
        evidence=_evidence(facts, reading) + ("" if dominate is None else f" {dominate.evidence}"),
        data={
            "stall_s": stall_s,
            "ended_s": reading.stall.at_s,
            "streams": reading.held,
            "prompt_tokens": int(facts.history.requests.columns["prompt_tokens"][reading.rows[0]]),
            "prompts": len(reading.rows),
            "prefill_chunk_tokens": chunk_tokens,
            "bound_s": bound_s,
            "most_s": most_s,
            "later_s": later_s,
        },
        **asdict(Advice.of(facts, facts.settings.revised({"prefill_chunk_tokens": smaller}), expected)),
    )


def _reading(facts: Facts, cost: CostModel, stall: Stall) -> _Reading | None:
    """The prompts that were read in most of the stall, if they explain it.

    That the step took long does not say so alone: something else may have held it up. By the usual price the prompts
    have to make the step twice as long.
    """
    columns, slot = facts.history.requests.columns, facts.history.slots.held.get(stall.replica, -1)
    started, first, prompt = columns["started"], columns["first_token"], columns["prompt_tokens"]
    overlap_s = np.minimum(first, stall.at_s) - np.maximum(started, stall.since_s)
    here = columns["slot"] == slot
    joined = here & (prompt > 0) & (columns["regime"] == facts.regime.number)  # with the chunk that is in force
    rows = np.flatnonzero(joined & (overlap_s >= stall.gap_s / 2))
    rows = rows[np.argsort(-prompt[rows], kind="stable")]
    runs = here & (first <= stall.since_s + SAME_STEP_S) & (columns["finished"] >= stall.at_s - SAME_STEP_S)
    held = int(np.count_nonzero(runs))
    if not len(rows) or not held:
        return None
    slow = float(cost.residuals.mean())
    step_s = slow * (cost.step_s + cost.row_s * held)
    reading = _Reading(stall, rows, held, len(rows) * int(prompt[rows[0]]), step_s)
    part, usual_s = reading.part(facts.chunk_tokens), slow * cost.prompt_token_s
    token_s = max(_measured_token_s(facts, int(columns["batch"][rows[0]])), usual_s)
    is_long = stall.gap_s >= max(LEAST_STALL_S, MUCH_LONGER * step_s)
    is_cause = part * token_s >= EXPLAINED * stall.gap_s and part * usual_s >= step_s
    return reading if is_long and is_cause else None


def _measured_token_s(facts: Facts, batch: int) -> float:
    """What reading a token took in the segment in which a prompt joined, on average; 0 before it has ended."""
    columns, row = facts.history.batches.columns, batch - facts.history.batches.columns.first
    if row < 0 or not columns["finished"][row] <= facts.at_s or columns["prompts"][row] <= 0:
        return 0.0
    return float(columns["prefill_s"][row] / columns["prompts"][row])


def _smaller_chunk(reading: _Reading, chunk_tokens: int) -> int:
    """The largest that makes the stalls hardly seen, or as short as some steps; else the smallest there is.

    A smaller one would save little, and let the requests that join wait for more steps.
    """
    wanted_s = max(LEAST_STALL_S / 2, WANTED_STEPS * reading.step_s)
    chunks = list(_halved(reading.part(chunk_tokens)))
    return next((chunk for chunk in chunks if _bound_s(reading, chunk_tokens, chunk) <= wanted_s), chunks[-1])


def _halved(tokens: int) -> Iterator[int]:
    """The powers of two below, down to the smallest chunk, the largest first."""
    least = round(BOUNDS["prefill_chunk_tokens"].least)
    power = max((tokens - 1).bit_length() - 1, 0)
    yield from (1 << n for n in range(power, least.bit_length() - 1, -1))
    yield least


def _bound_s(reading: _Reading, chunk_tokens: int, smaller: int, token_times: float = 1.0) -> float:
    """The stall with a smaller chunk: what it was longer than a step falls with the tokens that are read.

    Each of these takes `token_times` what it took on average.
    """
    beyond_s = max(reading.stall.gap_s - reading.step_s, 0.0)
    return reading.step_s + token_times * beyond_s * reading.part(smaller) / reading.part(chunk_tokens)


def _evidence(facts: Facts, reading: _Reading) -> str:
    table, longest = facts.history.requests, int(reading.rows[0])
    row, tokens = table.row(longest + table.columns.first), int(table.columns["prompt_tokens"][longest])
    part = reading.part(facts.chunk_tokens)
    at_a_time = f"{part} tokens in a step" if part < reading.tokens else "in one step"
    prompts = len(reading.rows)
    name = f"{row.client_id or row.id}{_begin_of(row.prompt)}"
    read = f"the prompt of {name}, {tokens} tokens, was read {at_a_time}"
    if prompts > 1:
        read = f"{prompts} prompts were read {at_a_time}, the longest of {name} with {tokens} tokens"
    stalled = counted(reading.held, "running answer")
    return f"{stalled} got no token for {seconds(reading.stall.gap_s)} while {read}."


def _begin_of(prompt: str) -> str:
    """The first words of a prompt, by which it is found in a list; nothing where the prompt is not known."""
    return f' ("{shorten(prompt, SHOWN_CHARACTERS, placeholder="…")}")' if prompt else ""
