"""What engines are given and what they report: jobs, which are sequences for a text engine, in; results out."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, Protocol, Self, TypeAlias

from service.messages.settings import Settings
from service.messages.telemetry import BatchWork, GraphUse

FinishReason: TypeAlias = Literal["stop", "length", "cancelled", "error"]


class Line(str):
    """An input as a person types it, and not yet as the engine takes it."""

    __slots__ = ()


class TokenIds(tuple[int, ...]):
    """A prompt as the ids of its tokens."""

    __slots__ = ()


class Conversation(tuple[Mapping[str, str], ...]):
    """Messages, each with its `role` and `content`, of which a model's own template makes the prompt of an answer."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """What all of them say."""
        return "".join(message["content"] for message in self)


Prompt: TypeAlias = str | TokenIds | Conversation


class Job:
    """One input on its way through an engine.

    Attributes:
        id: the caller's name for it.
        prompt_tokens, max_tokens: what goes in, and what comes out at most; 0 and 1 where there are no tokens.
    """

    def __init__(self, id: str, prompt_tokens: int = 0, max_tokens: int = 1) -> None:
        self.id = id
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.is_cancelled = False

    def cancel(self) -> None:
        """Ask the engine to leave this one out from its next step on; from any thread, at any time."""
        self.is_cancelled = True


class PromptError(ValueError):
    """A prompt that can't be completed; the message is for its sender."""


class DeviceLostError(RuntimeError):
    """The device computes nothing more for this process, which has to be started anew."""


def is_of_lost_device(error: BaseException) -> bool:
    """Whether it is an error of CUDA that all later calls raise as well, such as after an access beyond its memory.

    Which call is the first to raise depends on when the device comes to it. It may be one of a library, such as cuBLAS,
    whose error is a bare `RuntimeError`: so the device itself is asked.
    See https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html, `cudaErrorIllegalAddress`.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(error, RuntimeError):
        return False
    if not torch.cuda.is_initialized():
        return isinstance(error, torch.AcceleratorError)
    try:
        torch.cuda.synchronize()
    except torch.AcceleratorError:
        return True
    return False


def is_out_of_memory(error: BaseException) -> bool:
    """torch has a class for it on accelerators; its allocator for the CPU raises a bare `RuntimeError`."""
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(mark in str(error) for mark in ("can't allocate", "out of memory"))


@dataclass(frozen=True, slots=True)
class Progress:
    """What one step did for one job; the last of a job has a `finish_reason`.

    The result is the sum of the texts. A text may be empty while a character or a possible stop text is incomplete.
    """

    job: Job
    text: str
    tokens: int  # generated so far; 1 for the result of a function
    finish_reason: FinishReason | None = None
    error: str | None = None  # a sentence, where `finish_reason` is `error`


TIMES_LONGEST: Final = 20.0  # of late: a silence after which an engine counts as stalled

# What a step did for each job; and the jobs that join, given what was computed so far and whether one can.
Emit: TypeAlias = Callable[[list[Progress]], None]
Admit: TypeAlias = Callable[[BatchWork, bool], SequenceOf[Any]]


class Engine(Protocol):
    """What computes batches.

    Attributes:
        name: of its model or function.
        memory_tokens: how many tokens of jobs its memory holds at a time; 0 where that is not known.
        gives_logprobs: whether it can report how likely tokens were.
        graphs: how much of the decoding is replayed; ``None`` where the device is no GPU.
    """

    name: str
    memory_tokens: int
    gives_logprobs: bool

    @property
    def graphs(self) -> GraphUse | None: ...

    def job(self, id: str, input: Any, sampling: Any) -> Job:
        """For a `Line`, another `Prompt`, or an input as JSON has it.

        Raises a `ValueError` that says why it cannot be computed. Any thread may call it.
        """

    def spell(self, token: int) -> bytes:
        """What a token stands for by itself, in UTF-8, of which it may be a part; nothing where there are no tokens."""

    def adopt(self, settings: Settings) -> None:
        """What is read next of the prompts that join is read under these; any thread may call it."""

    def generate(self, jobs: list[Any], emit: Emit, admit: Admit | None = None) -> BatchWork:
        """Compute jobs that `job` has made; blocks, and ends each of them with one last `Progress`.

        Raises `DeviceLostError` after that where no further job can be computed.

        With `admit` it asks between two steps which jobs join.
        """

    def stall_limit_s(self, longest_s: float | None, unread_tokens: int) -> float:
        """How long `generate` may call no `emit` before the engine counts as stalled.

        Args:
            longest_s: that it did so of late; ``None`` where nothing was observed yet.
            unread_tokens: of prompts that are yet to be read.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one completion is drawn and when it ends. A value that exists is valid: construction raises `ValueError`."""

    max_tokens: int = 24  # to generate at most
    temperature: float = 0.0  # 0 takes the likeliest token each time
    top_p: float = 1.0  # sample from the likeliest tokens that hold this much of the probability
    seed: int | None = None  # makes the draws repeatable, whatever else is in the batch
    stop: tuple[str, ...] = ()  # texts that end the completion; they are not part of it
    ignore_eos: bool = False  # go on to `max_tokens` even where the model says that it is done
    may_be_fewer: bool = False  # than `max_tokens`, where there is less room
    logprobs: int | None = None  # report how likely each token was, and this many of the likeliest
    judges_prompt: bool = False  # report that of the prompt's tokens too

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError("max_tokens must be at least 1.")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError("temperature must be a finite number, 0 or more.")
        if not 0 < self.top_p <= 1:
            raise ValueError("top_p must be above 0 and at most 1.")
        if not all(self.stop):
            raise ValueError("stop must not contain an empty text.")
        if self.judges_prompt and self.logprobs is None:
            raise ValueError("judges_prompt needs logprobs.")

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken; so small a temperature that nothing else has a chance counts too."""
        return self.temperature < 1e-5

    @property
    def least_tokens(self) -> int:
        """For which there must be room."""
        return 1 if self.may_be_fewer else self.max_tokens

    def within(self, room: int) -> Self:
        """The same for a prompt that leaves room for `room` tokens."""
        return replace(self, max_tokens=min(self.max_tokens, room)) if self.may_be_fewer else self


class Likelihoods(NamedTuple):
    """How likely tokens were in one place, as natural logarithms, before temperature and `top_p`.

    Attributes:
        taken: of the token that stands there.
        likeliest: of the likeliest by their ids, the likeliest first.
    """

    taken: float
    likeliest: Mapping[int, float]


class Sequence(Job):
    """One prompt on its way through the engine."""

    def __init__(self, id: str, prompt_ids: SequenceOf[int], sampling: SamplingParams) -> None:
        """`prompt_ids`: the prompt as `TextEngine.encode` returned it."""
        super().__init__(id, len(prompt_ids), sampling.max_tokens)
        self.prompt_ids = tuple(prompt_ids)
        self.sampling = sampling
        self.tokens: list[int] = []  # what has been generated so far; only the engine appends
        # Where they are asked for: of the prompt's tokens from its second on, if it is judged, and of `tokens`.
        self.likelihoods: list[Likelihoods] = []
