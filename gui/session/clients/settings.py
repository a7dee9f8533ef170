"""Reads and changes the settings and the deployment of the service, and reports what is in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from PySide6.QtCore import QElapsedTimer, QObject, QTimer, Signal
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkReply, QNetworkRequest

from gui.session.clients import network
from gui.session.clients.network import Address
from service.messages.settings import VersionedSettings
from service.messages.telemetry import Deployment


@dataclass(frozen=True)
class Resource:
    """A resource of the service, read with `GET` and changed with `PUT`.

    Attributes:
        sent, about, change: its names in sentences: "The settings did not reach …", "The answer about the
            settings …", "The service answered 500 to a change of settings".
        timeout_ms: how long an answer may take.
        quiet_ms: how long the user has made no further change when the changes are sent.
        longest_wait_ms: how long the first of the changes waits at most; ``None`` for as long as they go on.
    """

    path: str
    sent: str
    about: str
    change: str
    timeout_ms: int
    quiet_ms: int
    longest_wait_ms: int | None = None


SETTINGS: Final = Resource(  # a drag becomes a few changes instead of sixty a second
    "/batching", "The settings", "settings", "a change of settings", timeout_ms=5_000, quiet_ms=60, longest_wait_ms=240
)
DEPLOYMENT: Final = Resource(  # it takes seconds: three steps of a number are one
    "/deployment", "The redeployment", "deployment", "a redeployment", timeout_ms=10_000, quiet_ms=400
)


class ResourceClient(QObject):
    """Sends one request at a time; changes asked for meanwhile go with the next one."""

    refused = Signal(str, str)  # a field and the rule it broke; nothing changed
    failed = Signal(str)  # a request got no answer; a sentence for the user

    resource: Resource

    def __init__(self, manager: QNetworkAccessManager, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._manager = manager
        self._address: Address | None = None
        self._reply: QNetworkReply | None = None
        self._asked: dict[str, object] = {}
        self._held = QElapsedTimer()
        self._quiet = QTimer(self, singleShot=True)
        self._quiet.timeout.connect(self._send)

    @property
    def is_busy(self) -> bool:
        """Whether a change has not been answered yet."""
        return bool(self._asked) or self._reply is not None

    def connect_to(self, address: Address) -> None:
        """Use the service at `address`, and read the resource."""
        self.leave()
        self._address = address
        self._follow(self._manager.get(self._request(address)))

    def leave(self) -> None:
        """Forget the service and drop pending changes."""
        self._quiet.stop()
        self._asked.clear()
        self._address = None
        self._forget()
        reply, self._reply = self._reply, None
        if reply is not None:
            network.give_up(reply)

    def ask(self, changes: Mapping[str, object]) -> None:
        """Ask for `changes`, with those that have not been sent yet; the service checks them."""
        if not changes or self._address is None:
            return
        if not self._asked:
            self._held.start()
        self._asked |= changes
        if self._reply is None:
            self._wait_for_quiet()

    # Not an ABC: its metaclass and Qt's exclude each other.

    def _forget(self) -> None:
        """Forget the last answer."""
        raise NotImplementedError

    def _take(self, body: bytes) -> None:
        """Take an answer; raises `msgspec.MsgspecError`."""
        raise NotImplementedError

    def _wait_for_quiet(self) -> None:
        wait_ms, longest_ms = self.resource.quiet_ms, self.resource.longest_wait_ms
        if longest_ms is not None:
            wait_ms = max(0, min(wait_ms, longest_ms - self._held.elapsed()))
        self._quiet.start(wait_ms)

    def _send(self) -> None:
        assert self._address is not None
        changes, self._asked = self._asked, {}
        request = self._request(self._address)
        request.setHeader(QNetworkRequest.KnownHeaders.ContentTypeHeader, "application/json")
        self._follow(self._manager.put(request, msgspec.json.encode(changes)))

    def _request(self, address: Address) -> QNetworkRequest:
        request = address.request(self.resource.path)
        request.setTransferTimeout(self.resource.timeout_ms)
        return request

    def _follow(self, reply: QNetworkReply) -> None:
        self._reply = reply
        reply.finished.connect(lambda: self._on_finished(reply))

    def _on_finished(self, reply: QNetworkReply) -> None:
        reply.deleteLater()
        if reply is not self._reply:  # an answer to a question no longer asked
            return
        self._reply = None
        if self._asked:
            self._wait_for_quiet()
        status = network.status(reply)
        body = bytes(reply.readAll().data()) if reply.isOpen() else b""  # Qt closes one that took too long
        if status is None:
            self.failed.emit(f"{self.resource.sent} did not reach the service: {reply.errorString()}.")
        elif self._address is None or not self._address.has_sent(reply):
            self.failed.emit(network.STRANGER)
        elif status == 200:
            try:
                self._take(body)
            except msgspec.MsgspecError as error:
                about = self.resource.about
                self.failed.emit(f"The service's answer about its {about} could not be read: {error}.")
        else:
            self._refuse(status, body)

    def _refuse(self, status: int, body: bytes) -> None:
        refusal = network.refusal(body)
        if refusal is None:
            self.failed.emit(f"The service answered {status} to {self.resource.change}.")
        elif refusal.param is None:
            self.failed.emit(refusal.message)
        else:
            self.refused.emit(refusal.param, refusal.message)


class SettingsClient(ResourceClient):
    """Asks for changes with `PUT /batching`."""

    applied = Signal(object)  # the `VersionedSettings` in force, in order; also after an answer that changed nothing

    resource = SETTINGS
    in_force: VersionedSettings | None = None

    def observe(self, in_force: VersionedSettings) -> None:
        """Take over settings in force that telemetry reports."""
        if self.in_force is None or in_force.version > self.in_force.version:
            self.in_force = in_force
            self.applied.emit(in_force)

    def _forget(self) -> None:
        self.in_force = None

    def _take(self, body: bytes) -> None:
        in_force = msgspec.json.decode(body, type=VersionedSettings)
        if self.in_force is None or in_force.version >= self.in_force.version:
            self.in_force = in_force
            self.applied.emit(in_force)


class DeploymentClient(ResourceClient):
    """Asks for changes with `PUT /deployment`; telemetry reports their progress, by way of `observe`."""

    seen = Signal(object)  # a `Deployment`, each newer than the one before

    resource = DEPLOYMENT
    _seen: Deployment | None = None

    def observe(self, deployment: Deployment | None) -> None:
        """Take over a deployment from an answer or from telemetry, unless a newer one is known."""
        if deployment is not None and (self._seen is None or deployment.at_s > self._seen.at_s):
            self._seen = deployment
            self.seen.emit(deployment)

    def _forget(self) -> None:
        self._seen = None

    def _take(self, body: bytes) -> None:
        self.observe(msgspec.json.decode(body, type=Deployment))
