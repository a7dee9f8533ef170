"""Pictures of the plots, as a program of its own: how dense the screen's pixels are is settled when Qt starts."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from PySide6.QtWidgets import QApplication

from gui.look.theme import Theme
from gui.plots.distributions import DistributionsView
from gui.plots.plot_stack import PlotStack
from tests.synthetic_run import filled_history, picture_run

SIZE = (856, 709)


def main(folder: Path) -> None:
    app = QApplication([])
    theme = Theme(app, "dark")
    history, _ = filled_history(picture_run())
    stack = PlotStack(history)
    distributions = DistributionsView(history, stack)
    for view in (stack, distributions):
        view.resize(*SIZE)
        view.show()
    app.processEvents()
    stack.refresh()
    distributions.refresh()
    distributions.count()
    for plot in (*stack.panels, distributions.histogram, distributions.batches, distributions.wasted):
        plot.canvas.grab().save(str(folder / f"{plot.objectName()}.png"))
    del theme


if __name__ == "__main__":
    main(Path(sys.argv[1]))
