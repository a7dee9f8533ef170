from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.control.arguments import Arguments
from gui.demo.run import Demo
from gui.session.processes.service import ServiceStart
from service.messages.load import ConstantRate
from tests.window.children import scripted


@pytest.fixture
def arguments(tmp_path: Path) -> Arguments:
    return Arguments(theme="dark", demo_s=3.0, report=tmp_path / "report.json", screenshot=tmp_path / "window.png")


def run(qtbot: QtBot, qapp: QApplication, arguments: Arguments, start: ServiceStart) -> Demo:
    batchscope = Batchscope(qapp, arguments, service_start=start)
    demo = Demo(batchscope, arguments)
    with qtbot.waitSignal(batchscope.closed):
        batchscope.show()
    assert not batchscope.window.isVisible()
    batchscope.window.deleteLater()
    batchscope.deleteLater()
    return demo


def test_that_a_demo_does_it_all_and_reports_what_it_measured(
    qtbot: QtBot, qapp: QApplication, arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gui.demo.run.LOAD", ConstantRate(rate_per_s=4.0))
    demo = run(qtbot, qapp, arguments, scripted("--step-s=0.02"))

    assert arguments.report is not None
    report = json.loads(arguments.report.read_text())
    assert demo.exit_code == 0
    assert report["model"] == "scripted"
    assert report["requests"]["ok"] == report["requests"]["sent"] > 6
    assert 0.4 < report["latency_s"]["p50"] <= report["latency_s"]["p99"]
    assert report["batches"]["count"] > 1
    [change] = report["settings_changes"]
    assert (change["field"], change["value"]) == ("max_batch_size", 16)
    assert 0 < change["in_force_after_ms"] < 100
    assert report["frames"]["count"] > 60
    assert report["startup_s"]["ready"] > 0
    assert QImage(str(arguments.screenshot)).width() > 1000


def test_that_a_demo_whose_service_fails_says_so_and_ends(
    qtbot: QtBot, qapp: QApplication, arguments: Arguments, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = run(qtbot, qapp, arguments, scripted("--fail=The model is not there."))

    assert demo.exit_code == 1
    assert "The model is not there." in capsys.readouterr().err
    assert arguments.report is not None
    assert json.loads(arguments.report.read_text())["requests"]["sent"] == 0


def test_that_a_demo_too_short_for_a_request_says_so(
    qtbot: QtBot,
    qapp: QApplication,
    arguments: Arguments,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("gui.demo.run.LOAD", ConstantRate(rate_per_s=0.01))
    demo = run(qtbot, qapp, dataclasses.replace(arguments, demo_s=0.1), scripted())

    assert demo.exit_code == 1
    assert capsys.readouterr().err == "batchscope: No request was due within the demo's 0.1 s: run it for longer.\n"


def test_that_a_demo_whose_report_cannot_be_written_fails(qtbot: QtBot, qapp: QApplication, tmp_path: Path) -> None:
    arguments = Arguments(theme="dark", demo_s=1.0, report=tmp_path / "none" / "report.json")

    assert run(qtbot, qapp, arguments, scripted()).exit_code == 1
