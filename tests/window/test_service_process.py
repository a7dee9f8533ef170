from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import psutil
import pytest
from pytestqt.qtbot import QtBot

from gui.session.processes.child import ChildProcess, Ending
from gui.session.processes.service import ServiceProcess, ServiceStart
from service.messages.life import Ready, StageProgress, Starting, Stopped, Stopping
from service.messages.options import ServiceOptions
from service.messages.pipes import our_python
from service.messages.settings import Settings
from tests.window.children import scripted


@pytest.fixture
def service(qtbot: QtBot) -> Iterator[ServiceProcess]:
    process = ServiceProcess(grace_ms=500)
    yield process
    if process.is_running:
        with qtbot.waitSignal(process.stopped):
            process.stop()
    process.deleteLater()


def start_until_ready(qtbot: QtBot, service: ServiceProcess, start: ServiceStart) -> Ready:
    with qtbot.waitSignal(service.state_changed, check_params_cb=lambda state: isinstance(state, Ready)):
        service.start(start)
    assert service.ready is not None
    return service.ready


def test_that_the_states_of_a_life_come_in_order(qtbot: QtBot, service: ServiceProcess) -> None:
    states: list[object] = []
    service.state_changed.connect(states.append)

    start_until_ready(qtbot, service, scripted())
    with qtbot.waitSignal(service.stopped):
        service.stop()

    kinds = list(map(type, states))
    assert kinds == [Starting, *[StageProgress] * (len(kinds) - 4), Ready, Stopping, Stopped]


def test_that_the_options_reach_the_command_line() -> None:
    settings = Settings(formation="early", max_batch_size=7, batch_wait_timeout_s=0.5, max_queued_requests=9)
    start = ServiceStart(ServiceOptions(model="gpt2", device="cpu", settings=settings), port=8123)

    assert tuple(start.command[:4]) == our_python("service")
    assert {"--model=gpt2", "--device=cpu", "--port=8123", "--formation=early", "--max-batch-size=7"} <= set(
        start.command
    )
    assert {"--batch-wait-timeout-s=0.5", "--max-queued-requests=9"} <= set(start.command)


def test_that_its_log_is_handed_on(qtbot: QtBot, service: ServiceProcess) -> None:
    with qtbot.waitSignal(service.logged, check_params_cb=lambda line: line == "scripted service: starting"):
        service.start(scripted())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
@pytest.mark.promise("T08")
def test_that_a_death_by_signal_is_told_in_words_within_a_second(
    qtbot: QtBot, service: ServiceProcess, number: signal.Signals
) -> None:
    start_until_ready(qtbot, service, scripted())
    assert service.pid is not None

    with qtbot.waitSignal(service.died) as death:
        os.kill(service.pid, number)

    assert death.args == [f"The service was killed by signal {number.value} ({number.name})."]
    assert not service.is_running


@pytest.mark.promise("T08")
def test_that_a_service_that_ends_by_itself_has_died(qtbot: QtBot, service: ServiceProcess) -> None:
    start_until_ready(qtbot, service, scripted())
    assert service.pid is not None

    with qtbot.waitSignal(service.died) as death:
        os.kill(service.pid, signal.SIGTERM)

    assert death.args[0].startswith("The service ended by itself.")


def test_that_a_failure_is_told_once_and_in_the_service_s_own_words(qtbot: QtBot, service: ServiceProcess) -> None:
    deaths: list[str] = []
    service.died.connect(deaths.append)

    service.start(scripted("--fail=The model has no tokenizer. Choose another."))
    qtbot.waitUntil(lambda: not service.is_running)

    assert deaths == ["The model has no tokenizer. Choose another."]


def test_that_a_program_that_does_not_exist_is_told(qtbot: QtBot, service: ServiceProcess) -> None:
    with qtbot.waitSignal(service.died) as death:
        service.start(ServiceStart(program=("/no/such/program",)))

    assert "could not be started" in death.args[0]


@pytest.mark.promise("T08")
def test_that_it_works_again_after_a_death(qtbot: QtBot, service: ServiceProcess) -> None:
    first = start_until_ready(qtbot, service, scripted())
    assert service.pid is not None
    with qtbot.waitSignal(service.died):
        os.kill(service.pid, signal.SIGKILL)

    second = start_until_ready(qtbot, service, scripted())

    assert second.instance != first.instance


def test_that_a_start_during_a_run_waits_for_its_end(qtbot: QtBot, service: ServiceProcess) -> None:
    first = start_until_ready(qtbot, service, scripted())
    first_pid = service.pid
    assert first_pid is not None

    second = start_until_ready(qtbot, service, scripted())

    assert second.instance != first.instance
    assert not psutil.pid_exists(first_pid)


def test_that_a_start_can_be_cancelled(qtbot: QtBot, service: ServiceProcess) -> None:
    with qtbot.waitSignal(service.state_changed):
        service.start(scripted("--start-s=60"))

    with qtbot.waitSignal(service.stopped):
        service.stop()


def test_that_a_deaf_service_is_killed_after_the_grace(qtbot: QtBot, service: ServiceProcess) -> None:
    start_until_ready(qtbot, service, scripted("--deaf"))

    with qtbot.waitSignal(service.stopped):
        service.stop()

    assert not service.is_running


def test_that_stopping_what_does_not_run_is_answered(qtbot: QtBot, service: ServiceProcess) -> None:
    with qtbot.waitSignal(service.stopped):
        service.stop()


def test_that_a_line_that_is_no_state_goes_to_the_log(qtbot: QtBot, service: ServiceProcess) -> None:
    with qtbot.waitSignal(service.logged) as log:
        service.start(ServiceStart(program=(sys.executable, "-c", "print('hello')")))

    assert log.args[0].startswith("hello  (not understood:")


def test_that_the_child_sees_the_window_s_end_as_end_of_file(qtbot: QtBot) -> None:
    child = ChildProcess(grace_ms=5000)
    child.start([sys.executable, "-c", "import sys; print(sys.stdin.read())"])
    child.write_line(b"a word")

    with qtbot.waitSignal(child.ended) as end, qtbot.waitSignal(child.line_received) as line:
        child.end(by_end_of_file=True)

    assert line.args == [b"a word"]
    assert end.args == [Ending(exit_code=0, asked=True)]
    child.deleteLater()
