"""The verdict: the state of the service in one sentence with one number, and the one change that mends or undoes it.

Its figures are those of the register, so that they have the same values as in the row of figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from service.analysis.observed.register import REGISTER, Figures, decimals_of_seconds, numbers
from service.messages.load import ClosedLoop
from service.messages.text import UNKNOWN, about_time, counted, format_time, per_second, percent

if TYPE_CHECKING:  # they take numpy, which the window's first frame does not wait for
    from service.analysis.findings.facts import Facts, Finding
    from service.analysis.observed.history import History
    from service.analysis.predict.predict import Prediction

State: TypeAlias = Literal[
    "failed", "refused", "silent", "growing", "working off", "slow", "warned", "unjudged", "well", "idle", "unloaded"
]
WORST_FIRST: Final[tuple[State, ...]] = get_args(State)
ALARMING: Final = frozenset({"failed", "refused"})
LINGERING: Final = frozenset({"growing", "warned"})  # a finding may come and go with each frame
LONGEST: Final = 90  # characters
STANDS_S: Final = 2.0
LAST_RESORT: Final = "requests_wait"  # said where nothing else says what requests wait for
LEAST_BACKLOG: Final = 2  # times what runs at once; with more some wait for longer than the next batch
LEAST_BACKLOG_S: Final = 1.0  # which is worked off sooner before it is read
LEAST_FALL_S: Final = 3.0  # from which on the queue itself shows whether it falls
FEW: Final = 1  # request of the start itself
FIFTHS: Final = 5
ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Verdict:
    """One sentence of at most `LONGEST` characters.

    Attributes:
        lead, number, rest: the first clause; `number` is the one that is stressed, and "" where there is none.
        second: the second clause with what parts it from the first; it goes first where room lacks.
        finding: the finding that the sentence says; it is not said again below.
        mend: the finding whose change is offered, or ``None``.
        is_held: it says how well Hold keeps the goal.
        is_lost: nothing is heard of the service, and can be looked for at once.
    """

    state: State
    lead: str
    number: str = ""
    rest: str = ""
    second: str = ""
    finding: Finding | None = None
    mend: Finding | None = None
    is_held: bool = False
    is_lost: bool = False

    @property
    def text(self) -> str:
        """
        >>> Verdict("refused", "", "97 %", " refused", ": the queue is full").text
        '97 % refused: the queue is full.'
        """
        return f"{self.lead}{self.number}{self.rest}{self.second}."

    def listed(self, findings: Sequence[Finding]) -> list[Finding]:
        """The findings to list below: none that asks why requests wait where the sentence says it; its own first."""
        said = LAST_RESORT if self.state == "working off" else ""
        own = "" if self.finding is None else self.finding.rule
        return sorted((each for each in findings if each.rule != said), key=lambda each: each.rule != own)

    @property
    def action(self) -> str:
        """What the button says that mends or undoes it; empty where there is none."""
        return "" if self.mend is None else self.mend.action


@dataclass(frozen=True)
class Situation:
    """What a verdict is given on, all of one moment.

    Attributes:
        facts: ``None`` before any batch has run, or while the service has failed.
        figures: as the row of figures shows them.
        findings: the most useful first, the last change of settings among them.
        prediction: for the settings in force, where there is one.
        is_held: Hold moves the settings, so no change of them is offered.
    """

    history: History
    at_s: float
    facts: Facts | None
    figures: Figures
    findings: Sequence[Finding] = ()
    prediction: Prediction | None = None
    is_held: bool = False

    @cached_property
    def written(self) -> Mapping[str, str]:
        """The numbers of the figures as the row shows them, by key."""
        return numbers(self.figures)

    def found(self, *rules: str) -> Finding | None:
        """The first finding of these rules."""
        return next((finding for finding in self.findings if finding.rule in rules), None)

    @property
    def p95(self) -> str:
        """ "p95 0.94 s", or nothing where it is not known."""
        written = self.written["p95_s"]
        return "" if written == UNKNOWN else f"p95 {written} s"


def verdict(situation: Situation) -> Verdict:
    """The worst that is so, or that all is well; nothing is judged once the service has stopped."""
    history, at_s = situation.history, situation.at_s
    if history.has_ended_at(at_s) and not history.outages.has_failed_at(at_s):
        return _stopped(situation)
    given = (judge(situation) for judge in _JUDGES.values())
    judged = next((found for found in given if found is not None), _UNLOADED)
    return replace(judged, mend=None, is_held=True) if situation.is_held else judged


class Standing:
    """Lets a finding's state stand for `STANDS_S` before a better one replaces it; a worse one does at once.

    Meanwhile its sentence has the figures of the present, and offers no change.
    """

    def __init__(self) -> None:
        self._shown: Verdict | None = None
        self._since_s = 0.0

    def take(self, situation: Situation, now_s: float) -> Verdict:
        """The verdict to show at `now_s`."""
        new, shown = verdict(situation), self._shown
        if shown is not None and now_s - self._since_s < STANDS_S and _is_better(new, shown):
            new = _said_again(shown, situation) or new
        if shown is None or new.state != shown.state:
            self._since_s = now_s
        self._shown = new
        return new

    def forget(self) -> None:
        self._shown = None


def _is_better(one: Verdict, other: Verdict) -> bool:
    return WORST_FIRST.index(one.state) > WORST_FIRST.index(other.state)


def _said_again(shown: Verdict, situation: Situation) -> Verdict | None:
    """What is shown, with the figures of now, where a finding says it that has just gone and requests still wait.

    ``None`` for other words.
    """
    if shown.state not in LINGERING or shown.finding is None or not situation.figures.queue:
        return None
    again = _JUDGES[shown.state](replace(situation, findings=(shown.finding, *situation.findings)))
    return again and replace(again, mend=None, is_held=situation.is_held)


# The states, the worst first -----------------------------------------------------------------------------------------


def _failed(of: Situation) -> Verdict | None:
    lasting = [o for o in of.history.outages if o.text == "failed" and o.lasts_at(of.at_s)]
    if lasting:
        return Verdict("failed", "Failed ", format_time(of.at_s - lasting[0].start_s), " ago: no request is answered")
    figures = of.figures
    if not figures.failed or figures.failed < figures.refused:
        return None
    also = " or were refused" if figures.refused else ""
    denied = figures.failed + figures.refused
    return Verdict("failed", "", _denied(of), f" failed{also}", f": {denied} of {counted(figures.ended, 'request')}")


def _refused(of: Situation) -> Verdict | None:
    if not of.figures.refused:
        return None
    also = " or failed" if of.figures.failed else ""
    why = ": the queue is full" if of.facts is not None and of.facts.refused[0] else ""
    finding = of.found("saturated", "requests_shed")
    return Verdict("refused", "", _denied(of), f" refused{also}", why, finding, _mending(finding))


def _denied(of: Situation) -> str:
    return f"{of.written['failed_share']} %"


def _silent(of: Situation) -> Verdict | None:
    lost = of.found("replica_lost")
    if lost is not None:
        held = int(lost.data["under_way"])
        return Verdict("silent", f"{lost.title}: ", counted(held, "request"), " under way", finding=lost)
    silences = of.history.silences_until(of.history.now_s())
    lasting = [s for s in silences if s.start_s <= of.at_s and (s.end_s is None or of.at_s < s.end_s)]
    if not lasting:
        return None
    what, _, how_long = lasting[-1].text.rpartition(" for ")
    return Verdict("silent", f"{what[0].upper()}{what[1:]} for ", how_long, "", ": shown as last heard")


def _growing(of: Situation) -> Verdict | None:
    finding = of.found("queue_grows", "saturated")
    if finding is None:
        return None
    if finding.rule == "queue_grows":
        by, full_in_s = f"{finding.data['growth_per_s']:.1f}", finding.data.get("full_in_s")
        full = "" if full_in_s is None else f"; full in about {about_time(full_in_s)}"
        words = "The queue grows by ", by, " requests a second", full
    else:
        offered_per_s, capacity_per_s = finding.data["offered_per_s"], finding.data["capacity_per_s"]
        now = None if of.facts is None else of.facts.capacity
        if now is not None:  # a finding that has just gone knows another
            if not now.is_full or now.per_s >= offered_per_s:
                return None
            capacity_per_s = now.per_s
        offered, waiting = REGISTER["offered_per_s"].number(offered_per_s), of.written["queue"]
        words = "More arrives than can be answered: ", offered, f" of {per_second(capacity_per_s)}", f"; {waiting} wait"
    return Verdict("growing", *words, finding, _mending(finding))


def _working_off(of: Situation) -> Verdict | None:
    """A queue that outlasts the next batches but falls, or what is left of the settings before."""
    facts, change = of.facts, of.found("settings_changed")
    if facts is None:
        return None
    queue, of_batches = int(of.figures.queue or 0), facts.cap * facts.places
    left_s = _falls_for_s(facts) if queue > of_batches else None
    if left_s is not None:
        predicted = _predicted(of)
        if predicted is not None:
            left_s = predicted.falls_in_s(of_batches) or left_s
    if left_s is not None and left_s >= LEAST_BACKLOG_S:
        requests = "request" if queue == 1 else "requests"
        about = f", about {about_time(left_s)}"
        return Verdict(
            "working off", "Working off ", f"{queue} waiting", f" {requests}{about}", _then(predicted), mend=change
        )
    left = 0 if change is None else int(change.data["left"])
    if change is None or not left:
        return None
    about = f", about {about_time(change.data['left_s'])}" if "left_s" in change.data else ""
    rest = f" {'request' if left == 1 else 'requests'} of the settings before{about}"
    return Verdict(
        "working off", "Working off ", f"{left}", rest, f"; then v{int(change.data['version'])}", mend=change
    )


def _predicted(of: Situation) -> Prediction | None:
    """The prediction, where it is for the settings in force and holds once a backlog is worked off."""
    then = of.prediction
    return then if then and of.facts and then.settings == of.facts.settings and not then.saturated else None


def _falls_for_s(facts: Facts) -> float | None:
    """About how long until what waits is worked off; ``None`` where it is not, or where that is not known."""
    if isinstance(facts.history.statuses.pattern_at(facts.at_s), ClosedLoop):
        return None
    import numpy as np  # see above

    fifths, span_s = np.array_split(facts.queues.total, FIFTHS), facts.at_s - facts.since_s
    fell = float(np.median(fifths[0]) - np.median(fifths[-1]))
    if span_s >= LEAST_FALL_S and fell <= 0:
        return None
    capacity = facts.rate(facts.settings)
    if capacity is None:
        falls_per_s = fell / span_s
    else:
        falls_per_s, load = capacity.per_s - facts.arriving_per_s, facts.arriving_per_s / capacity.per_s
        if load >= 1 or facts.waiting <= facts.cap * facts.places * usual_queue(load):
            return None
    return facts.waiting / falls_per_s if falls_per_s > 0 else None


def usual_queue(load: float) -> float:
    """How many batches wait at most in the mean, beside the next, under a steady load, a share of the capacity below 1.

    Of Poisson arrivals and batches that take as long as each other (Pollaczek and Khinchine).

    >>> round(usual_queue(0.5), 2), round(usual_queue(0.97), 2)
    (1.25, 16.68)
    """
    return 1 + load**2 / (2 * (1 - load))


def _then(predicted: Prediction | None) -> str:
    if predicted is None or predicted.p95_s is None:
        return ""
    value = predicted.p95_s.value
    return f"; then p95 {REGISTER['p95_s'].number(value, decimals_of_seconds([value]))} s"


def _slow(of: Situation) -> Verdict | None:
    goodput, answered, wanted = of.figures.goodput_per_s, of.figures.requests_per_s, of.history.objectives
    if goodput is None or not answered or goodput >= wanted.share * answered:
        return None
    mend = next((f for f in of.findings if f.change is not None and f.undoes is None), None)
    aim = f"; {percent(wanted.share)} are to be"
    return Verdict("slow", "Slow: ", *_good_answers(of, goodput, answered), aim, mend=mend)


def _good_answers(of: Situation, goodput: float, answered: float) -> tuple[str, str]:
    """The share of the answers that meet the objectives, rounded down so that it is never what is just missed."""
    met = math.floor(100 * goodput / answered + ROUNDING) / 100
    return percent(met), f" of the answers within {of.history.objectives.brief.removeprefix('≤ ')}"


def _warned(of: Situation) -> Verdict | None:
    finding = next((finding for finding in of.findings if finding.severity == "warning"), None)
    if finding is None:
        return None
    written = of.written
    lead, number, rest = f"{finding.title}: p95 ", written["p95_s"], " s"
    if not of.p95:
        lead, number, rest = f"{finding.title}: ", written["queue"], " waiting"
    return Verdict("warned", lead, number, rest, "", finding, _mending(finding))


def _unjudged(of: Situation) -> Verdict | None:
    """Something runs, but too little has ended to say that all is well."""
    figures, facts = of.figures, of.facts
    if facts is not None and (facts.is_idle or (facts.has_batches and figures.requests_per_s)):
        return None
    under_way = int(figures.queue or 0) + (figures.running or 0)
    if under_way:
        number, rest = counted(under_way, "request"), " under way"
    elif facts is not None:
        number, rest = counted(len(facts.batches), "batch"), " so far"
    else:
        return None
    return Verdict("unjudged", "Too early to judge: ", number, rest, _p95_clause(of))


def _well(of: Situation) -> Verdict | None:
    from service.analysis.observed.statistics import waited_before

    facts, answered = of.facts, of.figures.requests_per_s
    if facts is None or facts.is_idle or not answered or not facts.has_batches:
        return None
    goodput = of.figures.goodput_per_s
    if of.is_held and goodput is not None:
        return Verdict("well", "Goal kept: ", *_good_answers(of, goodput, answered), f"; {per_second(answered)}")
    capacity = facts.capacity
    rest = f" of {capacity.words}" if capacity is not None and capacity.per_s >= answered else " requests/s"
    second = _p95_clause(of)
    is_backlog = facts.queues.total.max() > LEAST_BACKLOG * facts.cap * facts.places
    if second and (is_backlog or waited_before(of.history, of.at_s)):
        second = f"; {of.p95} is still the backlog's"  # what was answered last had waited in it
    return Verdict("well", "All well: ", of.written["requests_per_s"], rest, second)


def _p95_clause(of: Situation) -> str:
    return f", {of.p95}" if of.p95 else ""


def _idle(of: Situation) -> Verdict | None:
    sent = of.history.load.totals.sent if of.history.load is not None else 0
    since = _since_the_last(of)
    if not since or (len(of.history.requests.columns) <= FEW and not sent):
        return None
    return Verdict("idle", "No load: the last request ended ", since, " ago")


def _stopped(of: Situation) -> Verdict:
    what = "Detached from the service" if of.history.is_left else "The service has stopped"
    since = _since_the_last(of)
    return Verdict("idle", f"{what}: the last request ended ", since, " ago") if since else Verdict("idle", what)


def _since_the_last(of: Situation) -> str:
    """For how long no request has ended, in words; empty where none has."""
    ended_s = of.history.requests.ends()[0]
    ended_s = ended_s[ended_s <= of.at_s]
    return format_time(of.at_s - float(ended_s.max())) if len(ended_s) else ""


def _mending(finding: Finding | None) -> Finding | None:
    return finding if finding is not None and finding.change is not None else None


_UNLOADED: Final = Verdict("unloaded", "No load yet", second=": run a load, or fire your prompts")
_JUDGES: Final[Mapping[State, Callable[[Situation], Verdict | None]]] = {
    "failed": _failed,
    "refused": _refused,
    "silent": _silent,
    "growing": _growing,
    "working off": _working_off,
    "slow": _slow,
    "warned": _warned,
    "unjudged": _unjudged,
    "well": _well,
    "idle": _idle,
}
