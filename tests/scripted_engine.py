"""An engine with a script in place of a model: for tests of everything that stands around one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from service.engine.engine import PromptError
from service.engine.job import Admit, Emit, Progress, SamplingParams, Sequence
from service.messages.settings import Settings
from service.messages.telemetry import BatchWork


@dataclass(frozen=True)
class Fault:
    """What happens to a sequence at its token number `at_token`: an error of its own, or what the engine raises."""

    error: str = "The model failed on this request."
    at_token: int = 1
    raises: BaseException | None = None


class ScriptedEngine:
    """`TextEngine` by script; token n of a prompt's completion is ``<prompt#n>``, so that no two can be mistaken.

    Attributes:
        batches: the ids of each batch so far.
    """

    name = "scripted"
    memory_tokens = 0

    def __init__(
        self,
        step_s: float = 0.0,
        faults: Mapping[str, Fault] | None = None,
        wait: Callable[[float], object] = time.sleep,
        context_length: int = 4096,
    ) -> None:
        """`faults` belong to prompts that contain their key; `wait` is called with `step_s` before each step."""
        self.context_length = context_length
        self.batches: list[list[str]] = []
        self._step_s = step_s
        self._faults = faults or {}
        self._wait = wait

    def encode(self, prompt: str, max_tokens: int) -> list[int]:
        if not prompt:
            raise PromptError("The prompt is empty: there is nothing to continue.")
        if len(prompt) + max_tokens > self.context_length:
            raise PromptError(f"The prompt and max_tokens exceed this model's context, {self.context_length} tokens.")
        return [ord(character) for character in prompt]

    def job(self, id: str, input: str, sampling: SamplingParams) -> Sequence:
        return Sequence(id, self.encode(input, sampling.max_tokens), sampling)

    def adopt(self, settings: Settings) -> None:
        """Prompts are read at no time."""

    def stall_limit_s(self, longest_s: float | None, unread_tokens: int) -> float:
        return 60.0

    def generate(self, sequences: list[Sequence], emit: Emit, admit: Admit | None = None) -> BatchWork:
        self.batches.append([sequence.id for sequence in sequences])
        running = list(sequences)
        while running:
            self._wait(self._step_s)
            progress = [self._advance(sequence) for sequence in running]
            running = [job for job, each in zip(running, progress, strict=True) if each.finish_reason is None]
            emit(progress)
            running += admit(BatchWork(), True) if admit else []
        return BatchWork()

    def _advance(self, sequence: Sequence) -> Progress:
        count = len(sequence.tokens)
        if sequence.is_cancelled:
            return Progress(sequence, "", count, "cancelled")
        prompt = "".join(map(chr, sequence.prompt_ids))
        fault = next((fault for key, fault in self._faults.items() if key in prompt), None)
        if fault and count + 1 >= fault.at_token:
            if fault.raises is not None:
                raise fault.raises
            return Progress(sequence, "", count, "error", fault.error)
        sequence.tokens.append(count)
        is_last = count + 1 == sequence.sampling.max_tokens
        return Progress(sequence, f"<{prompt}#{count + 1}>", count + 1, "length" if is_last else None)
