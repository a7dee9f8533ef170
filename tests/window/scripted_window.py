"""The window on the scripted service, as a program of its own, for tests that kill it.

It goes through the phases of a life, says the name of each as it begins, and stays in the one that its second argument
names. It records to the file that its first argument names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from PySide6.QtWidgets import QApplication

from gui.app import Batchscope
from gui.control.arguments import Arguments
from gui.session.lifecycle import LifeCycle
from service.messages.load import ClosedLoop, LoadFrame
from tests.window.children import scripted


def main() -> None:
    recording, last = sys.argv[1:]
    app = QApplication([])
    batchscope = Batchscope(app, Arguments(theme="dark"), service_start=scripted("--step-s=0.01", "--start-s=0.5"))
    batchscope.show()

    def enter(phase: str, leave: Callable[[], object] = lambda: None) -> None:
        """Say so, and leave it again unless it is the last."""
        print(phase, flush=True)
        if phase != last:
            leave()

    def start() -> None:
        session = batchscope.composition.session
        session.start_progressed.connect(lambda: enter("starting"))
        session.life_cycle_changed.connect(on_life_cycle)
        session.load_changed.connect(on_load)
        batchscope.composition.recorder.record(Path(recording))
        batchscope.composition.start_service()

    def run_load() -> None:
        batchscope.window.load.set_load(ClosedLoop(users=8), 24)
        batchscope.window.load.toggle()

    def on_life_cycle(state: LifeCycle) -> None:
        if state is LifeCycle.RUNNING:
            enter("ready", run_load)
        elif state is LifeCycle.STOPPING:
            enter("stopping" if last == "stopping" else "closing")

    def on_load(frame: LoadFrame) -> None:
        session = batchscope.composition.session
        if frame.totals.outstanding and session.state is LifeCycle.RUNNING:
            enter("loaded", batchscope.close if last == "closing" else session.stop)

    batchscope.completed.connect(lambda: enter("open", start))
    app.exec()


if __name__ == "__main__":
    main()
