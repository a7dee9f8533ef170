"""Takes the lessons that come with the program on the real service, and records them for who has none running.

python -m tests.recordings.lessons [number …]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from gui.app import Batchscope
from gui.control.arguments import Arguments
from gui.session.lifecycle import LifeCycle
from service.analysis.lesson.file import path_of, read, shipped

LONGEST_S = 300.0
SETTLES_S = 5.0  # between two lessons, in which what waited is answered


def main() -> int:
    app = QApplication([])
    batchscope = Batchscope(app, Arguments())
    batchscope.show()

    def until(is_so: Callable[[], object]) -> None:
        begun_s = time.monotonic()
        while not is_so():
            app.processEvents()
            time.sleep(0.002)
            if time.monotonic() - begun_s > LONGEST_S:
                raise TimeoutError(is_so)

    until(lambda: batchscope.is_complete)
    batchscope.window.toolbar.take_step()
    composition = batchscope.composition
    until(lambda: composition.session.state is LifeCycle.RUNNING and composition.history.in_force is not None)
    lessons, recorder = composition.lessons, composition.recorder
    for path in [path_of(word) for word in sys.argv[1:]] or list(shipped().values()):
        if not read(path).recording:
            continue
        recorder.record(path.parent / read(path).recording)
        lessons.open(path)
        while lessons.panel.next_button.text() != "End lesson":
            lessons.go_on()
            until(lessons.panel.next_button.isEnabled)
        ended: list[str] = []
        recorder.written.connect(ended.append)
        recorder.record_or_stop()
        until(lambda ended=ended: ended)
        lessons.end()
        rests_s = time.monotonic() + SETTLES_S
        until(lambda rests_s=rests_s: time.monotonic() > rests_s and not batchscope.composition.presenter.present.queue)
        print(f"{path.name}: {(path.parent / read(path).recording).stat().st_size / 1e3:.0f} kB", flush=True)
    closed: list[bool] = []
    batchscope.closed.connect(lambda: closed.append(True))
    batchscope.close()
    until(lambda: closed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
