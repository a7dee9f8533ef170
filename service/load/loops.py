"""What keeps a load going: by the clock (open loop) or by answers (closed loop)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from service.load.flight import Answer, Flight
from service.messages.load import Pattern

Arrive = Callable[[float], Flight | None]  # called with the intended time; ``None`` where the request was dropped


class Loop(Protocol):
    """What sends the requests of a load."""

    def start(self) -> None: ...
    def change(self, pattern: Pattern) -> bool:
        """Go on as `pattern`; false if that takes a new loop."""

    def concluded(self, flight: Flight, answer: Answer) -> None:
        """Any flight has ended, not only one of this loop's."""

    def pause(self) -> None:
        """No arrivals until `resume`; also before `start`."""

    def resume(self) -> None:
        """Go on; arrivals that were due during the pause come as much later as it lasted."""

    def stop(self) -> None:
        """No further arrivals."""
