"""What the window knows of each pattern of load: its name, and the numbers that the user may choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, get_args

import msgspec

from gui.widgets.scale import Scale
from service.messages.load import LOAD_BOUNDS, Pattern
from service.messages.settings import Bounds


class Kind(NamedTuple):
    """A pattern in the menu."""

    title: str
    remark: str


KINDS: Final[Mapping[str, Kind]] = {
    "poisson": Kind("Poisson", "open loop"),
    "constant": Kind("Constant", "open loop"),
    "gamma": Kind("Gamma", "open loop"),
    "on-off": Kind("On and off", "open loop"),
    "ramp": Kind("Ramp", "open loop"),
    "steps": Kind("Steps", "open loop"),
    "trace": Kind("Trace", "from a file"),
    "closed": Kind("Users", "closed loop"),
    "burst": Kind("Burst", "all at once"),
}
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    str(kind.__struct_config__.tag): kind.__struct_fields__ for kind in get_args(Pattern)
}


class Number(NamedTuple):
    """A number that one or several patterns have; the one with a `scale` has a slider."""

    name: str
    bounds: Bounds
    usual: float
    decimals: int = 0
    unit: str = ""
    scale: Scale | None = None
    tip: str = ""


NUMBERS: Final[Mapping[str, Number]] = {
    "users": Number(
        "users", LOAD_BOUNDS["users"], 16, scale=Scale(1, 256, integral=True),
        tip="Users, each of whom sends the next request when the last is answered",
    ),
    "think_s": Number(
        "think", LOAD_BOUNDS["think_s"], 0, 1, "s", tip="How long a user waits after an answer, on average"
    ),
    "rate_per_s": Number(
        "rate", LOAD_BOUNDS["rate_per_s"], 4, 1, "req/s", Scale(0.1, 200, finest=0.1),
        "Requests that arrive a second, whether or not earlier ones are answered",
    ),
    "rate_to_per_s": Number(
        "to", LOAD_BOUNDS["rate_per_s"], 16, 1, "req/s", tip="The rate at the end of the ramp, which then stays"
    ),
    "over_s": Number("within", LOAD_BOUNDS["span_s"], 60, 0, "s", tip="How long the ramp takes"),
    "shape": Number(
        "shape", LOAD_BOUNDS["shape"], 0.5, 2,
        tip="1 is Poisson; less and requests come in clusters, more and they come at even intervals",
    ),
    "on_s": Number("on", LOAD_BOUNDS["span_s"], 5, 0, "s", tip="How long requests arrive"),
    "off_s": Number("off", LOAD_BOUNDS["span_s"], 5, 0, "s", tip="How long none arrive"),
    "step_s": Number("each for", LOAD_BOUNDS["span_s"], 10, 0, "s", tip="How long each rate holds; the last stays"),
    "time_scale": Number(
        "times ×", LOAD_BOUNDS["time_scale"], 1, 2, tip="What the times of the trace are multiplied by: 0.5 is fast"
    ),
    "count": Number(
        "count", LOAD_BOUNDS["count"], 64, scale=Scale(1, 1024, integral=True),
        tip="Requests sent at once, then nothing",
    ),
}  # fmt: skip
USUAL_RATES: Final = (2.0, 4.0, 8.0)


def kind_of(pattern: Pattern) -> str:
    return str(pattern.__struct_config__.tag)


def pattern_of(kind: str, values: Mapping[str, object]) -> Pattern:
    """The pattern with those values; they are valid, each for itself."""
    pattern: Pattern = msgspec.convert({"pattern": kind, **values}, type=Pattern)
    return pattern
