"""`python -m service explain`: says in words what a recording shows, when it held, and what would change it."""

from __future__ import annotations

import argparse
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import msgspec

from service.analysis.findings.changed import with_change
from service.analysis.findings.facts import Facts, Finding, Severity
from service.analysis.findings.ranking import HeldFinding, findings, findings_of, findings_over_time, nothing_found
from service.analysis.findings.verdict import Situation, verdict
from service.analysis.observed.contention import Contention, contentions
from service.analysis.observed.processor import least_processor_share, processor_share
from service.analysis.observed.register import PERCENTILES, written
from service.analysis.observed.statistics import figures
from service.analysis.recording.reader import Recording, open_recording
from service.commands import cli
from service.messages.pipes import ExitCode
from service.messages.settings import Bounds
from service.messages.text import percent

SIGNS: Final[Mapping[Severity, str]] = {"warning": "!", "check": "✓", "info": "·"}
WIDTH: Final = 100
LONGEST_S: Final = 1e9
RATES: Final = ("requests_per_s", "tokens_per_s", "goodput_per_s")
FIGURES: Final = (*RATES, *PERCENTILES, "mean_batch", "queue", "running", "failed_share")


@dataclass(frozen=True, kw_only=True)
class Explained(Finding):
    """A finding as it stands in the file, and from when to when it held, in seconds from the recording's beginning."""

    spans_s: tuple[tuple[float, float], ...]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of a recording.

    Attributes:
        recorded_at: seconds since 1970.
        at_s: the moment that was asked for; ``None`` for the whole recording.
        damage: what of the recording could not be read, as a sentence.
        server: name and release of a server that is not ours; "" where it was ours.
        untold: what that does not report, in sentences.
        hears_load: whether the load's own figures were recorded; without them it is unknown whether its sender kept up.
        verdict: the state at the end, or at the moment that was asked for, as a sentence.
        judged_by: what the judgement at the end rests on, as a sentence; "" where nothing ran.
        figures: those of that moment, or of the end, by their names in the register, written as the window writes them.
        processor_share, least_processor_share: of the processor time that the engine asked for, the share that it got,
            in the whole recording, and in the ten seconds in which that was least; ``None`` where it is unknown.
        slowed: when and how the engine was slowed, as sentences.
        predictions: how good the predictions were that were made meanwhile, as the window said it; "" of none.
        clock_error_ms: by how much sender and service may differ in what time it is; ``None`` where it is unknown.
    """

    recording: str
    model: str | None
    recorded_at: float
    duration_s: float
    requests: int
    at_s: float | None
    damage: str | None
    server: str
    untold: str
    hears_load: bool
    verdict: str
    judged_by: str
    processor_share: float | None
    least_processor_share: float | None
    slowed: tuple[str, ...]
    predictions: str
    clock_error_ms: float | None
    figures: dict[str, str]
    findings: tuple[Explained, ...]


@cli.command
def main(argv: list[str]) -> int:
    """0 if the recording could be read, with any findings; 2 if not."""
    options = _parser().parse_args(argv)
    explanation = explain(open_recording(options.recording), options.at)
    cli.write_json(options.json, explanation, indent=2)
    print(as_text(explanation))
    return ExitCode.DONE


def explain(recording: Recording, at_s: float | None) -> Explanation:
    """What was found at `at_s` seconds from the beginning, or in all of it. Raises `UsageError`."""
    if at_s is not None and not 0 <= at_s <= recording.duration_s:
        raise cli.UsageError(f"--at must be from 0 to {recording.duration_s:.1f}, the seconds that were recorded.")
    history = recording.history
    end_s = history.now_s()
    begin_s = end_s - recording.duration_s
    moment_s = end_s if at_s is None else begin_s + at_s
    if at_s is None:
        held: Sequence[HeldFinding] = findings_over_time(history, begin_s, end_s)
    else:
        held = [HeldFinding(finding, ((moment_s, moment_s),)) for finding in findings(history, moment_s)]
    facts = Facts.at(history, moment_s)
    found = () if facts is None else with_change(facts, findings_of(facts))
    shown = figures(history, moment_s)
    judged = verdict(Situation(history, moment_s, facts, shown, found))
    return Explanation(
        recording=str(recording.path),
        model=recording.model,
        recorded_at=recording.header.recorded_at,
        duration_s=recording.duration_s,
        requests=len(history.requests.columns),
        at_s=at_s,
        damage=recording.damage,
        server=history.server,
        untold="" if history.ready is None else history.ready.untold,
        hears_load=history.load is not None,
        verdict=judged.text,
        judged_by="" if facts is None else nothing_found(facts, judged.state == "well"),
        processor_share=processor_share(history, begin_s, end_s),
        least_processor_share=least_processor_share(history, begin_s, end_s),
        slowed=tuple(_slowed(each, begin_s) for each in contentions(history, end_s, begin_s)),
        predictions=recording.scores_at(moment_s).words,
        clock_error_ms=None if history.sender_clock.error_s is None else history.sender_clock.error_s * 1e3,
        figures=written(shown, FIGURES),
        findings=tuple(_explained(found, begin_s) for found in held),
    )


def _slowed(contention: Contention, begin_s: float) -> str:
    until = "the end" if contention.end_s is None else f"{contention.end_s - begin_s:.0f} s"
    return f"From {contention.start_s - begin_s:.0f} s to {until} {contention.words}."


def _explained(held: HeldFinding, begin_s: float) -> Explained:
    spans_s = tuple((round(since_s - begin_s, 3), round(until_s - begin_s, 3)) for since_s, until_s in held.spans_s)
    return Explained(**asdict(held.finding), spans_s=spans_s)


def as_text(explanation: Explanation) -> str:
    """The list as it is printed."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(explanation.recorded_at))
    model = f"{explanation.model or 'unknown model'}{' on ' * bool(explanation.server)}{explanation.server}"
    head = f"{explanation.recording}: {model}, {when}, {explanation.duration_s:.0f} s, "
    head += f"{explanation.requests} requests"
    moment = "At the end" if explanation.at_s is None else f"At {explanation.at_s:g} s"
    remarks = [explanation.damage] if explanation.damage else []
    if explanation.clock_error_ms:
        remarks.append(
            f"Sender and service have clocks of their own, reconciled to ±{explanation.clock_error_ms:.1f} ms."
        )
    if explanation.processor_share is not None:
        remarks.append(_processor(explanation.processor_share, explanation.least_processor_share))
    if explanation.untold:
        remarks.append(explanation.untold)
    if not explanation.hears_load and explanation.requests:
        remarks.append("The load was not recorded: its pattern, and whether its sender kept up, are unknown.")
    remarks += explanation.slowed
    if explanation.predictions:
        remarks.append(f"{explanation.predictions}.")
    row = ", ".join(f"{name} {number}" for name, number in explanation.figures.items())
    found = [line for each in explanation.findings for line in ("", *_lines(each, explanation.at_s is None))]
    return "\n".join(
        [
            head,
            *remarks,
            "",
            f"{moment}: {explanation.verdict}",
            *([f"The figures that the window shows then: {row}."] if row else []),
            *(found or ["", explanation.judged_by or "Nothing to remark: no batch ran."]),
        ]
    )


def _processor(share: float, least: float | None) -> str:
    at_least = "" if least is None else f", and {percent(least)} in the ten seconds in which that was least"
    return f"The engine got {percent(share)} of the processor time that it asked for{at_least}."


def _lines(explained: Explained, tells_when: bool) -> list[str]:
    spans = ", ".join(f"{since_s:.0f} to {until_s:.0f} s" for since_s, until_s in explained.spans_s)
    title = f"{SIGNS[explained.severity]} {explained.title}" + (f" ({spans})" if tells_when else "")
    advice = f"→ {explained.advice}" if explained.advice else ""
    expected = f"Expected: {explained.expected}" if explained.expected else ""
    return [title, *_wrapped(explained.evidence), *_wrapped(f"{advice} {expected}".strip())]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(
        "explain",
        "Say what a recording shows: each finding with its evidence, what would change it, and when it held.",
        "run.bsr",
        "run.bsr --at 12.5 --json findings.json",
    )
    parser.add_argument("recording", type=Path, help="a file that `python -m service record` or the window wrote")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the findings to this file too")
    at = cli.number(Bounds(0, LONGEST_S, integral=False))
    parser.add_argument("--at", type=at, metavar="SECONDS", help="only what held at this time after the beginning")
    return parser
