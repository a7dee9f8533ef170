"""The window on a service that it did not start: it looks, asks and changes as ever, and leaves it running."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit
from pytestqt.qtbot import QtBot

from gui.app import Batchscope
from gui.control.arguments import Arguments
from gui.control.preferences import Preferences, PreferencesFile
from gui.demo.run import Demo
from gui.session.lifecycle import LifeCycle
from gui.session.processes.service import ServiceProcess
from gui.widgets.model_field import ModelField
from service.messages.life import Ready
from service.messages.options import Attachment
from service.messages.settings import Settings
from service.messages.workload import TEXT
from tests.foreign_server import VLLM, foreign_server
from tests.window.children import scripted
from tests.window.conftest import MakeBatchscope
from tests.window.seen import texts
from tests.window.test_app import fire, outcomes

TOKEN = "0123456789abcdef"

RunScripted = Callable[..., tuple[ServiceProcess, Ready]]


@pytest.fixture
def run_scripted(qtbot: QtBot) -> Iterator[RunScripted]:
    """Runs scripted services that no window started; those that still run end with the test."""
    begun: list[ServiceProcess] = []

    def run(*options: str, settings: Settings | None = None, workload: str = TEXT.name) -> tuple[ServiceProcess, Ready]:
        process = ServiceProcess(grace_ms=500)
        begun.append(process)
        with qtbot.waitSignal(process.state_changed, check_params_cb=lambda state: isinstance(state, Ready)):
            process.start(scripted(*options, settings=settings, workload=workload))
        assert process.ready is not None
        return process, process.ready

    yield run
    for process in begun:
        if process.is_running:
            with qtbot.waitSignal(process.stopped):
                process.stop()
        process.deleteLater()


@pytest.fixture
def other(run_scripted: RunScripted) -> tuple[ServiceProcess, Ready]:
    return run_scripted()


def attached(
    qtbot: QtBot, make_batchscope: MakeBatchscope, at: Attachment, preferences: PreferencesFile | None = None
) -> Batchscope:
    """The window as `batchscope --url` opens it, once it knows the settings of the service."""
    batchscope = make_batchscope(arguments=Arguments(theme="dark", attachment=at), preferences=preferences)
    wait_until_running(qtbot, batchscope)
    return batchscope


def wait_until_running(qtbot: QtBot, batchscope: Batchscope) -> None:
    session, history = batchscope.composition.session, batchscope.composition.history
    qtbot.waitUntil(lambda: session.state is LifeCycle.RUNNING and history.in_force is not None)


def test_that_the_lines_to_send_are_those_of_the_workload_that_runs_there(
    qtbot: QtBot, make_batchscope: MakeBatchscope, run_scripted: RunScripted, tmp_path: Path
) -> None:
    preferences = PreferencesFile(tmp_path / "preferences.json")
    preferences.save(Preferences(prompts=("my prompt",)))
    at = Attachment(run_scripted(workload="adder")[1].url, "")

    first = attached(qtbot, make_batchscope, at, preferences)
    prompts = first.window.prompts
    assert prompts.prompts == tuple("012345678"), "a function reads no prompt"
    assert first.choices.load.prompts == prompts.prompts
    assert "Inputs" in texts(prompts)
    prompts.set_prompts(["77"])
    with qtbot.waitSignal(first.closed):
        first.close()

    second = attached(qtbot, make_batchscope, at, preferences)
    assert second.window.prompts.prompts == ("77",)
    with qtbot.waitSignal(second.closed):
        second.close()

    text = Attachment(run_scripted()[1].url, "")
    assert attached(qtbot, make_batchscope, text, preferences).window.prompts.prompts == ("my prompt",)


def cap(batchscope: Batchscope) -> object:
    return batchscope.window.batching.settings.max_batch_size


def test_that_a_running_service_is_looked_at_asked_changed_and_left_running(
    qtbot: QtBot, make_batchscope: MakeBatchscope, other: tuple[ServiceProcess, Ready]
) -> None:
    service, ready = other
    batchscope = attached(qtbot, make_batchscope, Attachment(ready.url))
    assert {"Attached", "Detach"} <= set(texts(batchscope.window.toolbar))
    assert model_field(batchscope).text() == ready.url.removeprefix("http://")

    fire(batchscope, "one", copies=3)
    qtbot.waitUntil(lambda: outcomes(batchscope) == ["done"] * 3)
    batchscope.window.batching.want({"max_batch_size": 5})
    in_force = batchscope.composition.history
    qtbot.waitUntil(lambda: in_force.in_force is not None and in_force.in_force.settings.max_batch_size == 5)

    batchscope.window.toolbar.step_wanted.emit("stop")
    qtbot.waitUntil(lambda: batchscope.composition.session.state is LifeCycle.NOT_STARTED)
    assert service.is_running
    assert {"Not attached", "Attach"} <= set(texts(batchscope.window.toolbar))
    assert outcomes(batchscope) == ["done"] * 3
    assert batchscope.errors == []


def test_that_nothing_has_failed_of_what_runs_as_it_is_left(
    qtbot: QtBot, make_batchscope: MakeBatchscope, run_scripted: RunScripted
) -> None:
    _, ready = run_scripted("--step-s=0.2")
    near, far = (attached(qtbot, make_batchscope, Attachment(ready.url)) for _ in range(2))
    fire(far, "one")
    qtbot.waitUntil(lambda: outcomes(near) == ["running"])

    near.window.toolbar.step_wanted.emit("stop")
    qtbot.waitUntil(lambda: near.composition.session.state is LifeCycle.NOT_STARTED)
    qtbot.waitUntil(lambda: outcomes(near) == ["cancelled"])
    qtbot.waitUntil(lambda: outcomes(far) == ["done"])


def test_that_two_windows_agree_on_one_service_one_of_them_through_a_forwarded_port(
    qtbot: QtBot, make_batchscope: MakeBatchscope, other: tuple[ServiceProcess, Ready]
) -> None:
    service, ready = other
    tunnel = Tunnel(ready.url)
    near = attached(qtbot, make_batchscope, Attachment(ready.url))
    far = attached(qtbot, make_batchscope, Attachment(tunnel.url))

    far.window.batching.want({"max_batch_size": 7})
    qtbot.waitUntil(lambda: (cap(near), cap(far)) == (7, 7))
    fire(near, "one", copies=2)
    qtbot.waitUntil(lambda: outcomes(near) == outcomes(far) == ["done"] * 2)

    with qtbot.waitSignal(near.closed):
        near.close()
    fire(far, "one")
    qtbot.waitUntil(lambda: outcomes(far) == ["done"] * 3)
    with qtbot.waitSignal(far.closed):
        far.close()
    tunnel.close()
    assert service.is_running
    assert near.errors == far.errors == []


def test_that_it_follows_the_service_that_takes_the_place_of_another(
    qtbot: QtBot, make_batchscope: MakeBatchscope, run_scripted: RunScripted
) -> None:
    first, ready = run_scripted(settings=Settings(max_batch_size=3))
    batchscope = attached(qtbot, make_batchscope, Attachment(ready.url))
    fire(batchscope, "one")
    qtbot.waitUntil(lambda: outcomes(batchscope) == ["done"])
    with qtbot.waitSignal(first.stopped):
        first.stop()
    window = batchscope.window
    qtbot.waitUntil(lambda: "Reconnecting" in texts(window.toolbar))
    assert window.verdict.text.startswith(f"No word from {ready.url.removeprefix('http://')} for ")
    assert not window.batching.isEnabled()
    assert not window.load.button.isEnabled()

    run_scripted(f"--on-port={ready.url.rpartition(':')[2]}", settings=Settings(max_batch_size=9))

    window.verdict.button.click()
    qtbot.waitUntil(lambda: cap(batchscope) == 9)
    wait_until_running(qtbot, batchscope)
    fire(batchscope, "two")
    qtbot.waitUntil(lambda: outcomes(batchscope) == ["done"] * 2)
    assert batchscope.errors == []


def test_that_where_nothing_answers_it_says_so_and_tries_again_when_asked(
    qtbot: QtBot, make_batchscope: MakeBatchscope, run_scripted: RunScripted
) -> None:
    service, ready = run_scripted()
    with qtbot.waitSignal(service.stopped):
        service.stop()
    batchscope = make_batchscope(arguments=Arguments(theme="dark", attachment=Attachment(ready.url)))
    session = batchscope.composition.session
    qtbot.waitUntil(lambda: session.state is LifeCycle.FAILED)
    assert f"{ready.url} does not answer" in batchscope.errors[0]

    run_scripted(f"--on-port={ready.url.rpartition(':')[2]}")
    batchscope.window.notice.failed.restart.click()
    wait_until_running(qtbot, batchscope)


def test_that_a_token_opens_what_wants_one(
    qtbot: QtBot, make_batchscope: MakeBatchscope, run_scripted: RunScripted, tmp_path: Path
) -> None:
    _, ready = run_scripted(f"--token={TOKEN}")
    batchscope = make_batchscope(arguments=Arguments(theme="dark", attachment=Attachment(ready.url)))
    session = batchscope.composition.session
    qtbot.waitUntil(lambda: session.state is LifeCycle.FAILED)
    assert batchscope.errors == [f"{ready.url} wants its bearer token: give it with --token-file FILE."]

    token_file = tmp_path / "token"
    token_file.write_text(f"{TOKEN}\n")
    batchscope.window.toolbar.token_file_chosen.emit(str(token_file))
    batchscope.window.toolbar.take_step()
    wait_until_running(qtbot, batchscope)
    fire(batchscope, "one")
    qtbot.waitUntil(lambda: outcomes(batchscope) == ["done"])


def test_that_an_address_is_entered_where_the_model_stands_and_is_remembered(
    qtbot: QtBot, make_batchscope: MakeBatchscope, other: tuple[ServiceProcess, Ready], tmp_path: Path
) -> None:
    _, ready = other
    preferences = PreferencesFile(tmp_path / "preferences.json")
    batchscope = make_batchscope(preferences=preferences)
    field = model_field(batchscope)
    field.setFocus()
    field.selectAll()
    QTest.keyClicks(field, f"{ready.url}/v1/\r")
    assert batchscope.window.toolbar.step_button.text() == "Attach"
    batchscope.window.toolbar.take_step()
    wait_until_running(qtbot, batchscope)
    with qtbot.waitSignal(batchscope.closed):
        batchscope.close()

    kept = preferences.load()
    assert (kept.model, kept.token_files) == (ready.url, {ready.url: ""})


def test_that_a_demo_runs_on_a_service_that_was_there_and_leaves_its_settings(
    qtbot: QtBot, qapp: QApplication, other: tuple[ServiceProcess, Ready], tmp_path: Path
) -> None:
    service, ready = other
    arguments = Arguments(theme="dark", attachment=Attachment(ready.url), demo_s=3.0, report=tmp_path / "report.json")
    batchscope = Batchscope(qapp, arguments)
    demo = Demo(batchscope, arguments)
    with qtbot.waitSignal(batchscope.closed):
        batchscope.show()
    assert (batchscope.errors, demo.exit_code, service.is_running) == ([], 0, True)
    history = batchscope.composition.history
    assert history.in_force is not None
    assert history.in_force.version == 1
    batchscope.window.deleteLater()
    batchscope.deleteLater()


def test_that_a_server_that_is_not_ours_is_looked_at_and_asked_and_its_settings_are_left_to_it(
    qtbot: QtBot, make_batchscope: MakeBatchscope
) -> None:
    with foreign_server(VLLM, places=2) as server:
        batchscope = attached(qtbot, make_batchscope, Attachment(server.url))
        window, history = batchscope.window, batchscope.composition.history
        assert any("--max-num-seqs" in text.replace("\u2060", "") for text in texts(window.batching))
        assert "max_batch_size" not in texts(window.batching)
        assert not window.toolbar.show_me_action.isEnabled()
        assert not window.notice.ready.show_me.isVisible()

        fire(batchscope, "one", copies=6)
        qtbot.waitUntil(lambda: outcomes(batchscope) == ["done"] * 6)
        qtbot.waitUntil(lambda: len(history.batches.columns) > 0)
        assert history.server == "vLLM 0.32.0"
        assert len(server.asked) == 6
        assert batchscope.errors == []
    qtbot.waitUntil(lambda: not history.replicas)  # it is lost, and so is nothing else
    assert batchscope.composition.session.state is LifeCycle.RUNNING


def test_that_where_requests_go_elsewhere_it_looks_and_changes_and_sends_none(
    qtbot: QtBot, qapp: QApplication, make_batchscope: MakeBatchscope, run_scripted: RunScripted, tmp_path: Path
) -> None:
    why = "Requests go elsewhere."
    _, ready = run_scripted(f"--closed={why}")
    batchscope = attached(qtbot, make_batchscope, Attachment(ready.url))
    window = batchscope.window
    assert why in texts(window.load)
    assert not any(each.isEnabled() for each in (window.load.button, window.prompts.button))
    assert not window.toolbar.show_me_action.isEnabled()
    assert window.notice.isHidden()
    assert window.verdict.button.isHidden()
    window.batching.want({"max_batch_size": 5})
    qtbot.waitUntil(lambda: cap(batchscope) == 5)
    with qtbot.waitSignal(batchscope.closed):
        batchscope.close()

    arguments = Arguments(theme="dark", attachment=Attachment(ready.url), demo_s=1.0, report=tmp_path / "report.json")
    batchscope = Batchscope(qapp, arguments)
    demo = Demo(batchscope, arguments)
    with qtbot.waitSignal(batchscope.closed):
        batchscope.show()
    assert (batchscope.errors, demo.exit_code) == ([], 0)
    batchscope.window.deleteLater()
    batchscope.deleteLater()


def model_field(batchscope: Batchscope) -> QLineEdit:
    (field,) = batchscope.window.toolbar.findChildren(ModelField)
    return field


class Tunnel:
    """Another port of this machine through which the service is reached."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._connect, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        asyncio.run_coroutine_threadsafe(self._cancelled(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancelled(self) -> None:
        connected = asyncio.all_tasks() - {asyncio.current_task()}
        for each in connected:
            each.cancel()
        await asyncio.gather(*connected, return_exceptions=True)

    async def _connect(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        far, to_far = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            async with asyncio.TaskGroup() as group:
                for source, sink in ((near, to_far), (far, to_near)):
                    group.create_task(_copy(source, sink))
        finally:
            for each in (to_far, to_near):
                each.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while part := await source.read(65536):
            sink.write(part)
            await sink.drain()
        sink.write_eof()
