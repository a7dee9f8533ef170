"""Whether the engine still makes steps. One that has stopped cannot be ended from here, only with its process."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from service.engine.job import Engine
from service.messages.telemetry import ProcessorUse
from service.replica.device import EngineProcessor

LOOK_S: Final = 0.2
SUSPICIOUS_S: Final = 1.0  # of silence, from which on the engine's threads are looked at as well
REMEMBERED: Final = 200  # silences


class EngineStalledError(Exception):
    """The engine makes no steps any more; the text is a sentence that says so."""


class Watched(Protocol):
    """A batch that runs.

    Attributes:
        signs: of life so far.
        unread_tokens: of prompts that are not known to be read.
    """

    signs: int

    @property
    def unread_tokens(self) -> int: ...


@dataclass(eq=False, slots=True)
class _Silence:
    """Of one batch.

    Attributes:
        signs: of life that the batch had given when it began.
        lasted_s: since then.
    """

    signs: int
    lasted_s: float = 0.0


class StepWatch:
    """Measures the silence of each batch that runs, by the time that the engine could have computed in.

    Time in which this process stood still does not count, and where other programs have the cores only the share that
    the engine's threads got of what they asked for.
    """

    def __init__(
        self, engine: Engine, clock: Callable[[], float] = time.monotonic, processor: EngineProcessor | None = None
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._processor = processor or EngineProcessor()
        self._used: ProcessorUse | None = None
        self._silences: dict[Watched, _Silence] = {}
        self._past_s: deque[float] = deque(maxlen=REMEMBERED)

    @contextmanager
    def over(self, run: Watched) -> Iterator[None]:
        """Watch this batch meanwhile."""
        self._silences[run] = _Silence(run.signs)
        try:
            yield
        finally:
            del self._silences[run]

    async def run(self) -> None:
        """Raises `EngineStalledError` once a batch has been silent for longer than the engine ever is."""
        looked_s = self._clock()
        while True:
            await asyncio.sleep(LOOK_S)
            looked_s, before_s = self._clock(), looked_s
            share = self._processor_share() if self._is_suspicious else 1.0
            for run, silence in self._silences.items():
                self._look_at(run, silence, share * min(looked_s - before_s, 2 * LOOK_S))

    @property
    def _is_suspicious(self) -> bool:
        return any(silence.lasted_s > SUSPICIOUS_S for silence in self._silences.values())

    def _look_at(self, run: Watched, silence: _Silence, passed_s: float) -> None:
        signs = run.signs
        if signs != silence.signs:
            self._past_s.append(silence.lasted_s + passed_s)
            silence.signs, silence.lasted_s = signs, 0.0
            return
        silence.lasted_s += passed_s
        longest_s = max(self._past_s, default=None)
        limit_s = self._engine.stall_limit_s(longest_s, run.unread_tokens)
        if silence.lasted_s > limit_s:
            usual = "" if longest_s is None else f", of late {max(longest_s, LOOK_S):.1f} s at most"
            raise EngineStalledError(
                f"The engine has made no step for {silence.lasted_s:.1f} s{usual}; its replica is replaced."
            )

    def _processor_share(self) -> float:
        """Of the processor time that the engine's threads have asked for since the last look, what they got."""
        before, self._used = self._used, self._processor.use()
        if before is None or self._used is None:
            return 1.0
        got_s, waited_s = self._used.got_s - before.got_s, self._used.waited_s - before.waited_s
        return got_s / (got_s + waited_s) if waited_s > 0 else 1.0
