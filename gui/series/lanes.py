"""How high a lane of the timeline is, and how many there are: all requests at once, each in a lane of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from gui.look.tokens import LANE_HEIGHTS

SETTLE_S: Final = 5.0  # lanes grow higher only after they could have been for so long: each change deals all anew
SPARE: Final = 64  # more lanes than fit are added by so many


@dataclass(frozen=True)
class LaneGrid:
    """`total` lanes of `height` pixels, of which `shown` fit."""

    height: int
    total: int
    shown: int

    @property
    def overflows(self) -> bool:
        return self.total > self.shown


def grid_for(needed: int, replicas: int, room: int) -> LaneGrid:
    """The highest lanes with which `needed` for each replica fit into `room` pixels; else the lowest, to be scrolled.

    >>> grid_for(needed=50, replicas=1, room=180)
    LaneGrid(height=3, total=60, shown=60)
    >>> grid_for(needed=256, replicas=1, room=180)
    LaneGrid(height=1, total=256, shown=180)
    """
    for height in LANE_HEIGHTS:
        fitting = max(room // height, 1)
        each = fitting // replicas
        if each >= needed:
            return LaneGrid(height, each * replicas, fitting)
    each = math.ceil(needed / SPARE) * SPARE
    return LaneGrid(LANE_HEIGHTS[-1], each * replicas, max(room // LANE_HEIGHTS[-1], 1))


class LaneChoice:
    """Gives way at once when lanes do not suffice and hesitates to take room back."""

    def __init__(self) -> None:
        self.grid = LaneGrid(LANE_HEIGHTS[0], 1, 1)
        self._room = -1
        self._replicas = 1
        self._could_since_s: float | None = None

    def choose(self, needed: int, replicas: int, room: int, now_s: float) -> LaneGrid:
        wanted = grid_for(needed, replicas, room)
        if (room, replicas) != (self._room, self._replicas) or wanted.total > self.grid.total:
            self._adopt(wanted)
        elif wanted.total == self.grid.total:
            self._could_since_s = None
        elif self._could_since_s is None:
            self._could_since_s = now_s
        elif now_s - self._could_since_s >= SETTLE_S:
            self._adopt(wanted)
        self._room, self._replicas = room, replicas
        return self.grid

    def _adopt(self, grid: LaneGrid) -> None:
        self.grid = grid
        self._could_since_s = None
