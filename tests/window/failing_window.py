"""The window with a bug in it, as a program of its own: the first argument says where the bug is."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

LAST_FRAME = 30
frames = itertools.count(1)


def break_down(*_arguments: object, **_options: object) -> None:
    raise ValueError("nothing to draw")


def break_down_in_every_frame(*_arguments: object) -> None:
    frame = next(frames)
    if frame == LAST_FRAME:
        os.kill(os.getpid(), signal.SIGTERM)
    raise ValueError(f"nothing to draw in frame {frame}")


def main() -> int:
    import gui.__main__
    import gui.composition
    import gui.main_window
    import gui.plots.distributions

    match sys.argv.pop(1):
        case "window":
            gui.main_window.MainWindow.show_life_cycle = break_down
        case "plots":
            gui.composition.FrameClock.start = break_down
        case "painting":
            gui.plots.distributions.DistributionsView.refresh = break_down_in_every_frame
    return gui.__main__.main()


if __name__ == "__main__":
    sys.exit(main())
