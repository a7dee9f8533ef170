"""What requests are to meet, and how many of them: from it follow goodput and the line that plots draw."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from service.messages.settings import Bounds
from service.messages.text import UserError, parse_number, percent

MOST_S: Final = 600.0
OBJECTIVE_BOUNDS: Final = Bounds(0, MOST_S, integral=False, least=0.001)
SHARES: Final[Mapping[str, float]] = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
TIMES: Final[Mapping[str, str]] = {"latency": "latency_s", "ttft": "ttft_s", "tpot": "tpot_s"}
RULE: Final = f"Must be name=seconds: {', '.join((*TIMES, *SHARES))}; seconds above 0, at most {MOST_S:g}."


class ObjectiveError(UserError, ValueError):
    """An objective that no request can have."""


class Objectives(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request is good if it is answered within each of these times; ``None`` asks for nothing.

    Goodput is the rate of good requests, as in DistServe (arXiv 2401.09670) and in vLLM's `bench serve --goodput`.

    Attributes:
        latency_s: from the intended send time to the last token.
        ttft_s: from the intended send time to the first token.
        tpot_s: time per output token after the first, on average over a request.
        share: of the requests that are to be good, for the objectives to be held.
    """

    latency_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    share: float = 0.95

    def __post_init__(self) -> None:
        for field in TIMES.values():
            value = getattr(self, field)
            if value is not None and not (math.isfinite(value) and 0 < value <= MOST_S):
                raise ObjectiveError(f"{field}: {RULE}")
        if not 0 < self.share <= 1:
            raise ObjectiveError("share: Must be above 0 and at most 1.")

    def __bool__(self) -> bool:
        """Whether anything is asked for."""
        return any(getattr(self, field) is not None for field in TIMES.values())

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Objectives:
        """Read `latency=1.0`, `ttft=0.3`, `tpot=0.05`; `p95=1.0` is a latency that 95 of 100 requests are to meet.

        >>> Objectives.parse(["p95=1", "tpot=0.05"])
        Objectives(latency_s=1.0, ttft_s=None, tpot_s=0.05, share=0.95)
        """
        fields: dict[str, float] = {}
        for text in texts:
            _refuse_old_spelling(text)
            name, separator, number = text.partition("=")
            if not separator or (name not in TIMES and name not in SHARES):
                raise UserError(f"{text}: {RULE}")
            try:
                fields[TIMES.get(name, "latency_s")] = parse_number(number)
            except ValueError:
                raise UserError(f"{text}: {RULE}") from None
            if name in SHARES:
                fields["share"] = SHARES[name]
        return cls(**fields)

    @property
    def words(self) -> str:
        """
        >>> Objectives(latency_s=1, ttft_s=0.3).words, Objectives().words
        ('latency ≤ 1 s, ttft ≤ 0.3 s', 'none')
        """
        return ", ".join(f"{name} ≤ {value:g} s" for name, value in self._asked.items()) or "none"

    @property
    def share_words(self) -> str:
        """What holds where the objectives are held.

        >>> Objectives(latency_s=1).share_words, Objectives(ttft_s=0.3, share=1).share_words
        ('95 % of the requests keep latency ≤ 1 s', 'all requests keep ttft ≤ 0.3 s')
        """
        requests = "all requests" if self.share == 1 else f"{percent(self.share)} of the requests"
        return f"{requests} keep {self.words}"

    @property
    def brief(self) -> str:
        """
        >>> Objectives(latency_s=1).brief, Objectives(tpot_s=0.05).brief, Objectives(latency_s=1, ttft_s=0.3).brief
        ('≤ 1 s', 'tpot ≤ 0.05 s', '2 objectives')
        """
        return f"{len(self._asked)} objectives" if len(self._asked) > 1 else self.words.removeprefix("latency ")

    @property
    def _asked(self) -> Mapping[str, float]:
        asked = {name: getattr(self, field) for name, field in TIMES.items()}
        return {name: value for name, value in asked.items() if value is not None}

    def are_met(self, latency_s: float, ttft_s: float | None, tpot_s: float | None) -> bool:
        """Whether an answered request is good; a time that does not exist (of one token) asks for nothing."""
        taken = (latency_s, ttft_s, tpot_s)
        wanted = (self.latency_s, self.ttft_s, self.tpot_s)
        return all(a is None or w is None or a <= w for a, w in zip(taken, wanted, strict=True))


def _refuse_old_spelling(text: str) -> None:
    """Raise `UserError` for `p95<=1.0`, as sweeps once wrote an objective."""
    name, sign, number = text.replace("≤", "<=").replace(" ", "").partition("<=")
    if sign and (name in TIMES or name in SHARES):
        raise UserError(f"{text}: write {name}={number.removesuffix('s')}, without < or ≤.")


NO_OBJECTIVES: Final = Objectives()
