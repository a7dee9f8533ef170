"""Rules on what judging rests on: an engine that was slowed keeps others silent, and some servers report little."""

from __future__ import annotations

from service.analysis.findings.facts import LONG_S, Facts, Finding
from service.messages.text import clock_text

WITHHELD = "Findings and predictions of that stretch are withheld."


def little_reported(facts: Facts) -> Finding | None:
    """The server is not ours: what it does not report, nothing is concluded from."""
    ready = facts.history.ready
    if ready is None or not ready.untold:
        return None
    return Finding(
        "little_reported", "info", f"{ready.server} reports less than a service of ours", evidence=ready.untold
    )


def engine_slowed(facts: Facts) -> Finding | None:
    """The engine is slowed, or was half a minute ago: a warning as long as that keeps the other rules silent."""
    last = next((each for each in facts.contentions[-1:] if each.overlaps(facts.at_s - LONG_S, facts.at_s)), None)
    if last is None:
        return None
    since, until = (
        "" if at_s is None else clock_text(facts.history.wall_time(at_s)) for at_s in (last.start_s, last.end_s)
    )
    when = f"From {since} to {until}" if last.is_over else f"Since {since}"
    title = "The engine was slowed" if last.is_over else "The engine is slowed"
    if last.jump_s:
        when, title = f"At {until}", "The clock jumped"
    advice = "End other programs on this machine, or give the service cores of its own." if last.lacks_processor else ""
    numbers = {"factor": last.factor, "processor_share": last.share, "jump_s": last.jump_s or None}
    end_s = facts.at_s if last.end_s is None else last.end_s
    return Finding(
        "engine_slowed",
        "info" if facts.disturbance is None else "warning",
        title,
        evidence=f"{when} {last.words}. {WITHHELD}",
        data={
            "lasted_s": end_s - last.start_s,
            **{name: value for name, value in numbers.items() if value is not None},
        },
        advice=advice if facts.disturbance is not None else "",
    )
