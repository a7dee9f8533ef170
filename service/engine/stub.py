"""An engine without a model: its text is derived from the prompt, its time a step is set, and it fails to order.

`--model stub` starts it, for teaching and for tests of all that stands around an engine. `--model stub?step_ms=5` sets
one of `StubTimes`; several are joined with ``&``, as in an address.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from service.engine.job import (
    Admit,
    Conversation,
    DeviceLostError,
    Emit,
    Progress,
    Prompt,
    PromptError,
    SamplingParams,
    Sequence,
    TokenIds,
)
from service.engine.model.report import ModelError
from service.messages.options import STUB_MODEL
from service.messages.settings import Settings
from service.messages.telemetry import BatchWork, GraphUse

LONGEST_CALL_S: Final = 10.0


class StubTimes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a stub engine takes.

    Attributes:
        step_ms: a step of any number of rows.
        row_ms: each row of it, besides.
        prompt_token_ms: each token of a prompt; a character is a token.
        memory_tokens: whose keys and values a memory would hold at a time; 0 stands for no limit.
        context_length: the most tokens that a prompt and its completion have together.
    """

    step_ms: float = 20.0
    row_ms: float = 1.0
    prompt_token_ms: float = 0.1
    memory_tokens: int = 0
    context_length: int = 4096

    @classmethod
    def of(cls, model: str) -> StubTimes:
        """
        >>> StubTimes.of("stub?step_ms=5&memory_tokens=900")
        StubTimes(step_ms=5.0, row_ms=1.0, prompt_token_ms=0.1, memory_tokens=900, context_length=4096)
        """
        given = dict(parse_qsl(model.partition("?")[2], keep_blank_values=True))
        try:
            times = msgspec.convert(given, cls, strict=False)
        except msgspec.ValidationError as error:
            names = ", ".join(cls.__struct_fields__)
            raise ModelError(
                f"There is no {model!r}: {error}. An example is stub?step_ms=20&row_ms=1; there are {names}."
            ) from None
        if min(msgspec.structs.astuple(times)) < 0 or times.context_length < 2:
            raise ModelError(f"There is no {model!r}: a time is 0 or more, a context has 2 tokens or more.")
        return times


AT_ONCE: Final = StubTimes(step_ms=0.0, row_ms=0.0, prompt_token_ms=0.0)


@dataclass(frozen=True)
class Fault:
    """What happens to a sequence at its token number `at_token`: an error of its own, or what `does`, which may raise.

    `does` meets all that are in the batch.
    """

    error: str = "The model failed on this request."
    at_token: int = 1
    does: Callable[[], object] | None = None


def raising(error: BaseException) -> Callable[[], object]:
    def does() -> None:
        raise error

    return does


FAULTS: Final[dict[str, Fault]] = {
    "stub:error": Fault("The prompt asked for this error."),
    "stub:raise": Fault(does=raising(RuntimeError("the prompt asked for this"))),
    "stub:lost": Fault(does=raising(DeviceLostError("the prompt asked for this"))),
    "stub:hang": Fault(does=lambda: threading.Event().wait()),
    "stub:exit": Fault(does=lambda: os._exit(1)),
}
"""What a prompt that holds these words orders."""


class StubEngine:
    """Token n of a prompt's completion is ``<prompt#n>``, so that no two can be mistaken.

    A prompt of messages has a line for each, `role: content`, and ends with the role of the answer.
    """

    name = STUB_MODEL
    gives_logprobs = False
    graphs: GraphUse | None = None

    def __init__(
        self,
        times: StubTimes | None = None,
        faults: Mapping[str, Fault] = FAULTS,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """`faults` belong to prompts that contain their key; `wait` is called with the seconds that a step takes."""
        self._times = times or StubTimes()
        self.memory_tokens, self.context_length = self._times.memory_tokens, self._times.context_length
        self._faults = faults
        self._wait = wait

    def encode(self, prompt: Prompt, max_tokens: int) -> list[int]:
        text = _text_of(prompt)
        if len(text) + max_tokens > self.context_length:
            raise PromptError(f"The prompt and max_tokens exceed this model's context, {self.context_length} tokens.")
        return [ord(character) for character in text]

    def job(self, id: str, input: Prompt, sampling: SamplingParams) -> Sequence:
        ids = self.encode(input, sampling.least_tokens)
        return Sequence(id, ids, sampling.within(self.context_length - len(ids)))

    def spell(self, token: int) -> bytes:
        """Of a prompt."""
        return chr(token).encode()

    def adopt(self, settings: Settings) -> None:
        """Prompts are read at once."""

    def stall_limit_s(self, longest_s: float | None, unread_tokens: int) -> float:
        return LONGEST_CALL_S + unread_tokens * self._times.prompt_token_ms / 1e3

    def generate(self, sequences: list[Sequence], emit: Emit, admit: Admit | None = None) -> BatchWork:
        running, unread, work = list(sequences), list(sequences), BatchWork()
        while running:
            prompts = sum(len(sequence.prompt_ids) for sequence in unread)
            times = self._times
            self._wait((times.step_ms + times.row_ms * len(running) + times.prompt_token_ms * prompts) / 1e3)
            work = self._more(work, len(running), prompts)
            try:
                progress = [self._advance(sequence) for sequence in running]
            except DeviceLostError as lost:
                said = f"The device failed: {lost}."
                emit([Progress(each, "", len(each.tokens), "error", said) for each in running])
                raise
            running = [job for job, each in zip(running, progress, strict=True) if each.finish_reason is None]
            emit(progress)
            unread = list(admit(work, True)) if admit else []
            running += unread
        return work

    def _more(self, work: BatchWork, rows: int, prompts: int) -> BatchWork:
        return BatchWork(
            steps=work.steps + 1,
            computed=work.computed + rows + prompts,
            prompts=work.prompts + prompts,
            prefill_s=work.prefill_s + self._times.prompt_token_ms * prompts / 1e3,
        )

    def _advance(self, sequence: Sequence) -> Progress:
        count = len(sequence.tokens)
        if sequence.is_cancelled:
            return Progress(sequence, "", count, "cancelled")
        prompt = "".join(map(chr, sequence.prompt_ids))
        fault = next((fault for key, fault in self._faults.items() if key in prompt), None)
        if fault and count + 1 >= fault.at_token:
            if fault.does is None:
                return Progress(sequence, "", count, "error", fault.error)
            fault.does()
        sequence.tokens.append(count)
        is_last = count + 1 == sequence.sampling.max_tokens
        return Progress(sequence, f"<{prompt}#{count + 1}>", count + 1, "length" if is_last else None)


def _text_of(prompt: Prompt) -> str:
    if isinstance(prompt, Conversation):
        return "".join(f"{message['role']}: {message['content']}\n" for message in prompt) + "assistant:"
    if isinstance(prompt, TokenIds):
        try:
            text = "".join(map(chr, prompt))
            text.encode()
        except (ValueError, OverflowError):  # beyond Unicode, or half of a surrogate pair
            raise PromptError("A token of the stub's is a character, and its id the character's number.") from None
        return text
    if not isinstance(prompt, str) or not prompt:
        raise PromptError("The prompt is empty: there is nothing to continue.")
    return prompt
