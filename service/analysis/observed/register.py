"""The register of figures: what each is called and means, over which time and of which requests, and how it is written.

Every place that shows one of these figures takes its name, its unit and its number from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from service.messages.text import UNKNOWN, format_number, percent_number

LAST: Final = "In the last 10 s, never across a change of settings"
NOW: Final = "Now"
RUN: Final = "Over the requests of a whole run"
FIVE_MINUTES: Final = "In the last 10 s, against batches of one of the last 5 min"
LONG: Final = 9.995  # seconds, from which on a percentile has room for one decimal
MANY: Final = 999.95  # from which on a number needs no decimals


@dataclass(frozen=True)
class Figures:
    """All figures of one moment; ``None`` is unknown.

    Attributes:
        requests_per_s, tokens_per_s, goodput_per_s: known once batches formed under older settings have drained.
        queue: requests that wait or are sealed but do not run.
        speedup_over_batch_1, single_batches: see `statistics.speedup`; ``None`` of a server that is not ours, which
            does not report how long a batch ran.
        failed_share: of `ended`, those that failed or were refused.
        ended, failed, refused, cancelled: numbers of requests.
        processor_share: see `processor.processor_share`.
    """

    requests_per_s: float | None = None
    tokens_per_s: float | None = None
    goodput_per_s: float | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    mean_batch: float | None = None
    queue: float | None = None
    speedup_over_batch_1: float | None = None
    failed_share: float | None = None
    waiting: int | None = None
    formed: int | None = None
    running: int | None = None
    offered_per_s: float | None = None
    single_batches: int | None = 0
    ended: int = 0
    failed: int = 0
    refused: int = 0
    cancelled: int = 0
    processor_share: float | None = None


UNKNOWN_FIGURES: Final = Figures()


@dataclass(frozen=True)
class Entry:
    """A figure in words.

    Attributes:
        name: as the user reads it; it holds the unit of a rate.
        unit: stands after the number, or is empty.
        definition, window, counts, source: what it is, over which time, which requests count, and how they are seen.
    """

    name: str
    definition: str
    window: str = LAST
    counts: str = ""
    source: str = ""
    unit: str = ""
    decimals: int = 1

    @property
    def sentence(self) -> str:
        """
        >>> Entry("running", "Requests that the engine computes", NOW, "Counts all clients' requests").sentence
        "Requests that the engine computes. Now. Counts all clients' requests"
        """
        return ". ".join(part for part in (self.definition, self.window, self.counts, self.source) if part)

    def number(self, value: float | None, decimals: int | None = None) -> str:
        """The number as it is written, without the unit.

        >>> Entry("requests/s", "").number(3.84), Entry("requests/s", "").number(1234.5)
        ('3.8', '1234')
        >>> Entry("failed", "", unit="%", decimals=0).number(0.0004), Entry("failed", "", unit="%").number(None)
        ('<0.1', '–')
        """
        if value is None or value != value:
            return UNKNOWN
        if self.unit == "%":
            return percent_number(value)
        wanted = self.decimals if decimals is None else decimals
        return format_number(value, 0 if value >= MANY else wanted)

    def with_unit(self, value: float | None) -> str:
        """The same with its unit; what is unknown has none.

        >>> Entry("failed", "", unit="%").with_unit(0.03), Entry("failed", "", unit="%").with_unit(None)
        ('3 %', '–')
        """
        written = self.number(value)
        return written if written == UNKNOWN else f"{written} {self.unit}".rstrip()


_EVERY: Final = "Counts answered requests of every client"
_SENDER: Final = "As its sender saw it; of another client's request, as the service saw it"
_REPORTED: Final = "As the service last reported"
_LATENCY: Final = "Latency from the intended send to the last token that"
_PERCENTILE: Final = f"{_EVERY} whose batch was formed under these settings"

REGISTER: Final[Mapping[str, Entry]] = {
    "requests_per_s": Entry("requests/s", "Requests answered a second", LAST, _EVERY, _SENDER),
    "tokens_per_s": Entry(
        "tokens/s",
        "Output a second, in the unit of the workload",
        LAST,
        "Counts every request that runs, answered or not",
        _REPORTED,
        decimals=0,
    ),
    "goodput_per_s": Entry("goodput", "Requests answered a second that met the objectives", LAST, _EVERY, _SENDER),
    "p50_s": Entry("p50", f"{_LATENCY} half of the requests did not exceed", LAST, _PERCENTILE, _SENDER, "s", 2),
    "p95_s": Entry("p95", f"{_LATENCY} 95 of 100 requests did not exceed", LAST, _PERCENTILE, _SENDER, "s", 2),
    "p99_s": Entry("p99", f"{_LATENCY} 99 of 100 requests did not exceed", LAST, _PERCENTILE, _SENDER, "s", 2),
    "mean_batch": Entry(
        "mean batch",
        "Requests of a batch on average; in continuous, requests that run at a time",
        LAST,
        "Counts batches that ended, formed under these settings",
        _REPORTED,
    ),
    "queue": Entry(
        "queue",
        "Requests that wait: for a batch, or in a batch that waits for the engine",
        NOW,
        "Counts requests of every client, also those on the way to a replica",
        _REPORTED,
        decimals=0,
    ),
    "speedup_over_batch_1": Entry(
        "vs batch 1",
        "Output a second while a batch runs, as a multiple of that of batches of one request with prompts and "
        "completions as long",
        FIVE_MINUTES,
        "",
        _REPORTED,
        "×",
    ),
    "failed_share": Entry(
        "failed",
        "Share of the requests that ended which failed or were refused",
        LAST,
        "Counts requests of every client; a cancelled one has ended, but not failed",
        _SENDER,
        "%",
        0,
    ),
    "waiting": Entry(
        "waiting",
        "Requests that are in no batch yet",
        NOW,
        "Counts requests of every client, also those on the way to a replica",
        _REPORTED,
        decimals=0,
    ),
    "formed": Entry(
        "formed",
        "Requests of batches that are formed and wait for the engine",
        NOW,
        "Counts requests of every client",
        _REPORTED,
        decimals=0,
    ),
    "running": Entry(
        "running", "Requests of batches that run", NOW, "Counts requests of every client", _REPORTED, decimals=0
    ),
    "offered_per_s": Entry(
        "offered", "Requests a second that the load asks for", NOW, "Counts the load of this window alone"
    ),
    "single_batches": Entry("batches of one", "Batches that vs batch 1 compares with", FIVE_MINUTES, decimals=0),
    "ended": Entry("ended", "Requests that ended, in whatever way", decimals=0),
    "failed": Entry("ended failed", "Requests that failed", decimals=0),
    "refused": Entry("ended refused", "Requests that were refused", decimals=0),
    "cancelled": Entry("ended cancelled", "Requests that were cancelled", decimals=0),
    "processor_share": Entry(
        "processor got",
        "Of the processor time that the engine's threads asked for, the share that they got: the rest of it they could "
        "have run, but other threads had the cores",
        LAST,
        "",
        "As Linux measures it; unknown on other systems and while the engine is idle",
        "%",
        0,
    ),
}
_OF_A_REQUEST: Final = "From the intended send of a request to"
_TTFT: Final = f"Time to first token: {_OF_A_REQUEST[0].lower()}{_OF_A_REQUEST[1:]} its first token"
_TPOT: Final = (
    "Time per output token: from the first token of a request to its last, divided by the tokens after the first"
)
_HALF, _MOST = "which half of the requests did not exceed", "which 95 of 100 requests did not exceed"
_ANSWERED: Final = "Counts answered requests"


def _time(name: str, definition: str, counts: str = _ANSWERED, unit: str = "s", decimals: int = 3) -> Entry:
    return Entry(name, definition, RUN, counts, unit=unit, decimals=decimals)


OF_A_RUN: Final[Mapping[str, Entry]] = {
    "latency_s": _time("latency", f"{_OF_A_REQUEST} its last token"),
    "mean_s": _time("mean latency", f"{_OF_A_REQUEST} its last token, on average"),
    "time_to_first_token_s": _time("TTFT", _TTFT),
    "ttft_p50_s": _time("TTFT p50", f"{_TTFT}, {_HALF}"),
    "ttft_p95_s": _time("TTFT p95", f"{_TTFT}, {_MOST}"),
    "time_per_output_token_s": _time("TPOT", _TPOT, f"{_ANSWERED} of two tokens or more", "ms", 2),
    "tpot_p50_s": _time("TPOT p50", f"{_TPOT}, {_HALF}"),
    "tpot_p95_s": _time("TPOT p95", f"{_TPOT}, {_MOST}"),
    "inter_token_latency_s": _time(
        "ITL",
        "Inter-token latency: between two successive chunks of an answer that bring tokens",
        f"{_ANSWERED}, a value for each gap",
        "ms",
        2,
    ),
    "lag_ms": _time("own lag", "How late the load generator itself sent", "Counts requests", "ms", 2),
    "good_share": Entry("good", "Share of the requests that met the objectives", RUN, "Counts requests", unit="%"),
    "ran_s": Entry("ran", "From the start of a run to the last answer", RUN, unit="s"),
    "sent": Entry("sent", "Requests that were sent", RUN, decimals=0),
    "answered": Entry("answered", "Requests that were answered", RUN, decimals=0),
    "unanswered": Entry("unanswered", "Requests that failed, or were refused or cancelled", RUN, decimals=0),
    "batches": Entry("batches", "Batches that ran", RUN, decimals=0),
    "largest_batch": Entry("largest batch", "Requests of the largest batch", RUN, decimals=0),
}
"""Of a run of load as a whole, and not in the row of figures; the rest of what a run shows is in `REGISTER`."""
ENTRIES: Final[Mapping[str, Entry]] = {**REGISTER, **OF_A_RUN}
PERCENTILES: Final = ("p50_s", "p95_s", "p99_s")
STAGES: Final = ("waiting", "formed", "running")
PRESENT: Final = tuple(key for key, entry in REGISTER.items() if entry.window == NOW)


def without_present(figures: Figures) -> Figures:
    """The figures without those of the present, which nothing has where no service runs.

    >>> without_present(Figures(p50_s=7.27, queue=4.0, running=4)) == Figures(p50_s=7.27)
    True
    """
    unknown: dict[str, Any] = dict.fromkeys(PRESENT)
    return replace(figures, **unknown)


def numbers(figures: Figures) -> Mapping[str, str]:
    """The number of each figure as it is written, without its unit, by the figure's key.

    >>> [numbers(Figures(p50_s=7.27, p95_s=longest))["p50_s"] for longest in (9.99, 10.4)]
    ['7.27', '7.3']
    """
    values = {key: getattr(figures, key) for key in REGISTER}
    decimals = decimals_of_seconds(values[key] for key in PERCENTILES)
    return {key: e.number(values[key], decimals if key in PERCENTILES else None) for key, e in REGISTER.items()}


def written(figures: Figures, keys: Iterable[str]) -> dict[str, str]:
    """Names and numbers with their units of those figures that are known.

    >>> written(Figures(requests_per_s=3.84, p50_s=7.27), ["requests_per_s", "p50_s", "p95_s"])
    {'requests/s': '3.8', 'p50': '7.27 s'}
    """
    found = numbers(figures)
    known = [key for key in keys if found[key] != UNKNOWN]
    return {REGISTER[key].name: f"{found[key]} {REGISTER[key].unit}".rstrip() for key in known}


def readout(figures: Figures, keys: Iterable[str]) -> dict[str, str]:
    """Names and numbers of some figures."""
    written = numbers(figures)
    return {REGISTER[key].name: written[key] for key in keys}


def decimals_of_seconds(values: Iterable[float | None]) -> int:
    """One for all of them once one reaches 10 s."""
    return 1 if any(value is not None and value >= LONG for value in values) else REGISTER["p50_s"].decimals
