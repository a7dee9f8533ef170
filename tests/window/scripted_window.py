"""The window on the scripted service, as a program of its own, for tests that kill it.

It says "running" when the service runs and the load has begun, and records to the file that it is told of.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from PySide6.QtWidgets import QApplication

from gui.app import Batchscope
from gui.control.arguments import Arguments
from service.messages.load import ClosedLoop, LoadFrame
from tests.window.children import scripted


def main() -> None:
    app = QApplication([])
    batchscope = Batchscope(app, Arguments(theme="dark"), service_start=scripted("--step-s=0.01"))
    batchscope.show()

    def begin() -> None:
        session = batchscope.composition.session
        session.life_cycle_changed.connect(run_load)
        session.load_changed.connect(tell)
        batchscope.composition.recorder.record(Path(sys.argv[1]))
        batchscope.composition.start_service()

    def run_load() -> None:
        batchscope.window.load.set_load(ClosedLoop(users=8), 24)
        batchscope.window.load.toggle()

    def tell(frame: LoadFrame) -> None:
        if frame.totals.outstanding:
            print("running", flush=True)

    batchscope.completed.connect(begin)
    app.exec()


if __name__ == "__main__":
    main()
