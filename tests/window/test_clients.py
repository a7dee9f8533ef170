"""The clients against a real process that answers over HTTP."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from PySide6.QtCore import QIODevice, Signal
from PySide6.QtNetwork import QHostAddress, QNetworkAccessManager, QNetworkReply, QNetworkRequest, QTcpServer
from pytestqt.qtbot import QtBot

from gui.session.clients.network import INSTANCE_HEADER, Address
from gui.session.clients.settings import DeploymentClient, SettingsClient
from gui.session.clients.telemetry import TelemetryClient
from gui.session.processes.load import LoadProcess
from gui.session.processes.service import ServiceProcess
from service.messages.life import Ready
from service.messages.load import Fire, LoadFrame
from service.messages.options import Attachment
from service.messages.settings import Scale, VersionedSettings
from service.messages.telemetry import Deployment, TelemetryFrame
from tests.window.children import scripted
from tests.window.conftest import LONGEST_WAIT_MS

INSTANCE = "made-up"


@pytest.fixture(scope="module")
def running(qapp: object) -> Iterator[ServiceProcess]:
    """One scripted service for all tests of this module."""
    from pytestqt.wait_signal import SignalBlocker

    service = ServiceProcess(grace_ms=500)
    ready = SignalBlocker(timeout=LONGEST_WAIT_MS)
    ready.connect(service.state_changed)
    service.start(scripted())
    while service.ready is None:
        ready.wait()
        ready = SignalBlocker(timeout=LONGEST_WAIT_MS)
        ready.connect(service.state_changed)
    yield service
    stopped = SignalBlocker(timeout=LONGEST_WAIT_MS)
    stopped.connect(service.stopped)
    service.stop()
    stopped.wait()
    service.deleteLater()


@pytest.fixture
def service(running: ServiceProcess) -> Ready:
    assert running.ready is not None
    return running.ready


@pytest.fixture
def url(service: Ready) -> str:
    return service.url


class WatchedNetwork(QNetworkAccessManager):
    """Reports every request that is sent, and its error."""

    sent = Signal()
    broke_off = Signal()

    def createRequest(
        self, operation: QNetworkAccessManager.Operation, request: QNetworkRequest, outgoing: QIODevice | None = None
    ) -> QNetworkReply:
        self.sent.emit()
        reply = super().createRequest(operation, request, outgoing)
        reply.errorOccurred.connect(self.broke_off)
        return reply


@pytest.fixture
def network(qapp: object) -> Iterator[WatchedNetwork]:
    manager = WatchedNetwork()
    yield manager
    manager.deleteLater()


@pytest.fixture
def settings(network: QNetworkAccessManager) -> Iterator[SettingsClient]:
    client = SettingsClient(network)
    yield client
    client.leave()
    client.deleteLater()


@pytest.fixture
def deployment(network: QNetworkAccessManager, qtbot: QtBot, service: Ready) -> Iterator[DeploymentClient]:
    client = DeploymentClient(network)
    with qtbot.waitSignal(client.seen):
        client.connect_to(Address(service.url, service.instance))
    yield client
    client.leave()
    client.deleteLater()


@pytest.fixture
def telemetry(network: QNetworkAccessManager) -> Iterator[TelemetryClient]:
    client = TelemetryClient(network)
    yield client
    client.leave()
    client.deleteLater()


def connected(qtbot: QtBot, settings: SettingsClient, service: Ready) -> VersionedSettings:
    with qtbot.waitSignal(settings.applied) as applied:
        settings.connect_to(Address(service.url, service.instance))
    value = applied.args[0]
    assert isinstance(value, VersionedSettings)
    return value


def test_that_settings_are_learned_from_the_service(qtbot: QtBot, settings: SettingsClient, service: Ready) -> None:
    assert connected(qtbot, settings, service).settings.formation == "late"


def test_that_what_is_told_is_what_is_in_force(qtbot: QtBot, settings: SettingsClient, service: Ready) -> None:
    before = connected(qtbot, settings, service)

    with qtbot.waitSignal(settings.applied) as applied:
        settings.ask({"max_batch_size": before.settings.max_batch_size + 1})

    assert applied.args[0].version == before.version + 1
    assert applied.args[0].settings.max_batch_size == before.settings.max_batch_size + 1
    assert not settings.is_busy


def test_that_a_drag_becomes_a_few_changes_and_its_last_value_wins(
    qtbot: QtBot, settings: SettingsClient, service: Ready
) -> None:
    versions: list[VersionedSettings] = []
    connected(qtbot, settings, service)
    settings.applied.connect(versions.append)

    for size in range(20, 80):
        settings.ask({"max_batch_size": size})
        qtbot.wait(2)
    qtbot.waitUntil(lambda: bool(versions) and versions[-1].settings.max_batch_size == 79)

    assert 1 <= len(versions) <= 3


def test_that_what_is_asked_while_a_request_is_under_way_is_not_lost(
    qtbot: QtBot, settings: SettingsClient, service: Ready, network: WatchedNetwork
) -> None:
    connected(qtbot, settings, service)

    with qtbot.waitSignal(network.sent):
        settings.ask({"max_batch_size": 100})
    settings.ask({"batch_wait_timeout_s": 1.5})
    qtbot.waitUntil(lambda: not settings.is_busy)

    assert settings.in_force is not None
    assert settings.in_force.settings.max_batch_size == 100
    assert settings.in_force.settings.batch_wait_timeout_s == 1.5


@pytest.mark.parametrize(
    ("field", "value"), [("max_batch_size", 0), ("max_batch_size", True), ("batch_wait_timeout_s", float("nan"))]
)
def test_that_a_value_against_the_rules_is_refused_and_changes_nothing(
    qtbot: QtBot, settings: SettingsClient, service: Ready, field: str, value: object
) -> None:
    before = connected(qtbot, settings, service)

    with qtbot.waitSignal(settings.refused) as refused:
        settings.ask({field: value})

    assert refused.args[0] == field
    assert refused.args[1].startswith("Must be ")
    assert settings.in_force == before
    assert not settings.is_busy


def test_that_a_refusal_by_the_service_names_field_and_rule(
    qtbot: QtBot, settings: SettingsClient, service: Ready
) -> None:
    connected(qtbot, settings, service)
    with qtbot.waitSignal(settings.applied):
        settings.ask({"max_batch_size": 16, "max_queued_requests": 8})

    with qtbot.waitSignal(settings.refused) as refused:
        settings.ask({"allow_small_batch": False})  # the client checks each field alone

    assert refused.args[0] == "allow_small_batch"
    assert "could never fill" in refused.args[1]


def test_that_an_older_version_does_not_replace_a_newer_one(
    qtbot: QtBot, settings: SettingsClient, service: Ready
) -> None:
    before = connected(qtbot, settings, service)

    with qtbot.assertNotEmitted(settings.applied):
        settings.observe(VersionedSettings(version=before.version - 1, settings=before.settings))

    assert settings.in_force == before


def test_that_a_service_that_is_not_there_is_told_in_words(qtbot: QtBot, settings: SettingsClient) -> None:
    with qtbot.waitSignal(settings.failed) as failed:
        settings.connect_to(Address("http://127.0.0.1:9", "nobody"))

    assert failed.args[0].startswith("The settings did not reach the service: ")


def test_that_a_service_may_be_left_while_an_answer_breaks_off(
    qtbot: QtBot, settings: SettingsClient, telemetry: TelemetryClient, network: WatchedNetwork
) -> None:
    """Qt reports the error before the end; what happens in between must not end the answer a second time."""
    said: list[str] = []
    settings.failed.connect(said.append)
    telemetry.trouble.connect(said.append)

    network.broke_off.connect(settings.leave)
    with qtbot.waitSignal(network.broke_off):
        settings.connect_to(Address("http://127.0.0.1:9", "nobody"))
    network.broke_off.connect(telemetry.leave)
    with qtbot.waitSignal(network.broke_off):
        telemetry.follow(Address("http://127.0.0.1:9", "nobody"))

    assert said == []


def test_that_a_service_that_never_answers_is_told_in_words(qtbot: QtBot, settings: SettingsClient) -> None:
    silent = QTcpServer()
    assert silent.listen(QHostAddress(QHostAddress.SpecialAddress.LocalHost))
    settings.resource = replace(settings.resource, timeout_ms=50)
    with qtbot.waitSignal(settings.failed) as failure:
        settings.connect_to(Address(f"http://127.0.0.1:{silent.serverPort()}", INSTANCE))
    assert failure.args is not None
    assert failure.args[0].startswith("The settings did not reach the service: ")
    silent.close()


def test_that_frames_come_in_order_and_without_gaps(qtbot: QtBot, telemetry: TelemetryClient, service: Ready) -> None:
    frames: list[TelemetryFrame] = []
    telemetry.frame_received.connect(frames.append)

    telemetry.follow(Address(service.url, service.instance))
    qtbot.waitUntil(lambda: len(frames) >= 5)

    numbers = [frame.number for frame in frames]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_that_reading_goes_on_where_it_broke_off(
    qtbot: QtBot, telemetry: TelemetryClient, service: Ready, network: WatchedNetwork
) -> None:
    frames: list[TelemetryFrame] = []
    telemetry.frame_received.connect(frames.append)
    telemetry.follow(Address(service.url, service.instance))
    qtbot.waitUntil(lambda: len(frames) >= 2)
    [stream] = network.findChildren(QNetworkReply)

    with qtbot.waitSignal(telemetry.trouble):
        stream.abort()
    seen = len(frames)
    qtbot.waitUntil(lambda: len(frames) >= seen + 4)

    numbers = [frame.number for frame in frames]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_that_news_of_missed_frames_are_handed_on(qtbot: QtBot, telemetry: TelemetryClient) -> None:
    with server(b'data: {"event": "missed", "first": 1, "last": 2}\n\n') as url:
        with qtbot.waitSignal(telemetry.frames_missed) as missed:
            telemetry.follow(Address(url, INSTANCE))
        telemetry.leave()

    assert (missed.args[0].first, missed.args[0].last) == (1, 2)


@pytest.mark.promise("T06")
def test_that_a_stream_whose_replica_died_is_said_to_have_ended_and_is_read_again(
    qtbot: QtBot, telemetry: TelemetryClient
) -> None:
    with server(b'event: error\ndata: {"error": {"message": "It ended."}}\n\n') as url:
        troubles: list[str] = []
        telemetry.trouble.connect(troubles.append)
        telemetry.follow(Address(url, INSTANCE))
        qtbot.waitUntil(lambda: len(troubles) == 2)
        telemetry.leave()

    assert set(troubles) == {"The replica that sent the telemetry ended."}


@contextmanager
def server(stream: bytes) -> Iterator[str]:
    """Answers every request with this stream, which does not end."""
    listening = QTcpServer()
    listening.listen(QHostAddress.SpecialAddress.LocalHost)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{INSTANCE_HEADER}: {INSTANCE}\r\n\r\n"
    listening.newConnection.connect(lambda: listening.nextPendingConnection().write(head.encode() + stream))
    yield f"http://127.0.0.1:{listening.serverPort()}"
    listening.close()
    listening.deleteLater()


def test_that_the_reader_keeps_trying_while_it_is_wanted(qtbot: QtBot, telemetry: TelemetryClient) -> None:
    troubles: list[str] = []
    telemetry.trouble.connect(troubles.append)

    telemetry.follow(Address("http://127.0.0.1:9", "nobody"))
    qtbot.waitUntil(lambda: len(troubles) >= 3)
    telemetry.leave()
    before = len(troubles)
    qtbot.wait(100)

    assert len(troubles) == before


def test_that_a_stranger_at_the_service_s_address_is_not_believed(
    qtbot: QtBot, telemetry: TelemetryClient, settings: SettingsClient, url: str
) -> None:
    with qtbot.waitSignal(settings.failed) as failed:
        settings.connect_to(Address(url, "another"))
    with qtbot.waitSignal(telemetry.trouble) as trouble:
        telemetry.follow(Address(url, "another"))

    assert failed.args == trouble.args == ["Another program answers at the service's address."]
    assert settings.in_force is None


def test_that_fired_prompts_come_back_with_their_text(qtbot: QtBot, url: str) -> None:
    load = LoadProcess()
    frames: list[LoadFrame] = []
    load.frame_received.connect(frames.append)

    load.start(Attachment(url))
    load.send(Fire(prompts=("one", "two"), copies=2, max_tokens=3))
    qtbot.waitUntil(lambda: bool(frames) and frames[-1].totals.ok == 4)

    texts: dict[str, str] = {}
    for frame in frames:
        for request in frame.requests:
            texts[request.id] = texts.get(request.id, "") + request.new_text
    assert list(texts.values()) == [" word1 word2 word3"] * 4
    with qtbot.waitSignal(load.stopped):
        load.stop()
    load.deleteLater()


def test_that_a_dead_load_generator_is_told_and_comes_back_with_the_next_command(qtbot: QtBot, url: str) -> None:
    load = LoadProcess()
    load.start(Attachment(url))
    with qtbot.waitSignal(load.frame_received):
        load.send(Fire(prompts=("one",), max_tokens=1))
    assert load.pid is not None

    with qtbot.waitSignal(load.died) as died:
        os.kill(load.pid, signal.SIGKILL)
    with qtbot.waitSignal(load.frame_received):
        load.send(Fire(prompts=("two",), max_tokens=1))

    assert died.args == ["The load generator was killed by signal 9 (SIGKILL)."]
    with qtbot.waitSignal(load.stopped):
        load.stop()
    load.deleteLater()


def test_that_a_command_without_a_service_is_refused_in_words(qtbot: QtBot) -> None:
    load = LoadProcess()
    with qtbot.waitSignal(load.refused) as refused:
        load.send(Fire(prompts=("one",)))

    assert refused.args == ["There is no service to ask: start it first."]
    load.deleteLater()


def test_that_the_scripted_service_is_ready(running: ServiceProcess) -> None:
    assert isinstance(running.ready, Ready)


def test_that_a_redeployment_is_told_begun_and_what_is_seen_later_comes_from_elsewhere(
    qtbot: QtBot, deployment: DeploymentClient
) -> None:
    with qtbot.waitSignal(deployment.seen) as begun:
        deployment.ask({"max_ongoing_requests": 500})
    seen = begun.args[0]
    assert isinstance(seen, Deployment)
    assert (seen.wanted.max_ongoing_requests, seen.is_settled) == (500, False)
    told: list[Deployment] = []
    deployment.seen.connect(told.append)
    done = Deployment(at_s=seen.at_s + 1, wanted=seen.wanted, running=1)
    for each in (None, Deployment(at_s=seen.at_s - 1, wanted=Scale(), running=1), done, done):
        deployment.observe(each)
    assert told == [done], "neither nothing, nor what is older, nor the same twice"


def test_that_steps_in_quick_succession_are_one_redeployment(qtbot: QtBot, deployment: DeploymentClient) -> None:
    told: list[Deployment] = []
    deployment.seen.connect(told.append)
    with qtbot.waitSignal(deployment.seen):
        for replicas in (2, 3, 4):
            deployment.ask({"replicas": replicas})
        deployment.ask({"max_ongoing_requests": 600})
    assert [each.wanted for each in told] == [Scale(replicas=4, max_ongoing_requests=600)]


def test_that_a_refused_redeployment_names_field_and_rule(qtbot: QtBot, deployment: DeploymentClient) -> None:
    with qtbot.waitSignal(deployment.refused) as refused:
        deployment.ask({"replicas": 65})
    assert refused.args == ["replicas", "Must be a whole number from 1 to 64."]


def test_that_a_redeployment_that_reaches_nobody_is_told(qtbot: QtBot, network: QNetworkAccessManager) -> None:
    client = DeploymentClient(network)
    with qtbot.waitSignal(client.failed) as failed:
        client.connect_to(Address("http://127.0.0.1:9", "nobody"))
    assert failed.args[0].startswith("The redeployment did not reach the service: ")
    client.leave()
    client.deleteLater()


def test_that_a_stranger_s_answer_about_the_deployment_is_not_believed(
    qtbot: QtBot, network: QNetworkAccessManager, service: Ready
) -> None:
    client = DeploymentClient(network)
    with qtbot.waitSignal(client.failed) as failed:
        client.connect_to(Address(service.url, "another"))
    assert failed.args == ["Another program answers at the service's address."]
    client.leave()
    client.deleteLater()
