from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from service.analysis.observed.request_row import RequestRow
from service.analysis.recording.reader import open_recording
from tests.service import HANG_S
from tests.service.conftest import Service

LENGTH = 9  # tokens; no other test asks for as many


def record(service: Service, path: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "service", "record", "--url", service.url, *options, str(path)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> str:
    """What it said, once it has ended in order."""
    _, said = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, said
    return said


def done_in(path: Path) -> list[RequestRow]:
    """The requests of this module that a recording has seen answered."""
    rows = open_recording(path).history.requests.rows() if path.exists() else []
    return [row for row in rows if row.max_tokens == LENGTH and row.state == "done"]


def test_that_the_command_records_for_as_long_as_it_is_told(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "run.bsr"
    assert "run.bsr: 1.0 s" in ended(record(service, path, "--seconds", "1"))
    assert open_recording(path).damage is None


def test_that_it_records_what_the_service_does_until_ctrl_c(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "run.bsr"
    recorder = record(service, path)
    answered = 0
    while not done_in(path):
        answered += service.complete("Once upon a time", max_tokens=LENGTH).ok
    recorder.send_signal(signal.SIGINT)

    ended(recorder)
    recording = open_recording(path)
    assert recording.damage is None
    assert recording.model == service.ready.model
    assert 0 < len(done_in(path)) <= answered
    assert all(row.tokens == LENGTH for row in done_in(path))


def test_that_a_service_that_is_not_there_is_told_in_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "service", "record", "--url", "http://127.0.0.1:9", str(tmp_path / "run.bsr")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)

    assert done.returncode == 2
    assert "does not answer" in done.stderr
    assert not (tmp_path / "run.bsr").exists()
