"""Sends settings to the service as the user moves them, and tells what is in force: never what was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from PySide6.QtCore import QElapsedTimer, QObject, QTimer, QUrl, Signal
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkReply, QNetworkRequest

from gui.clients import network
from service.messages.settings import SettingError, Settings, VersionedSettings

QUIET_MS: Final = 60
LONGEST_WAIT_MS: Final = 240
ANSWER_TIMEOUT_MS: Final = 5_000


class SettingsClient(QObject):
    """Asks for changes with `PUT /batching`, one at a time.

    A change waits until the user has been quiet for `QUIET_MS`, and never longer than `LONGEST_WAIT_MS`, so that a drag
    becomes a few changes instead of sixty a second. What is asked while a request is under way goes with the next one.

    Signals:
        applied: the `VersionedSettings` in force, in order; an answer that changed nothing is told too.
        refused: a field and the rule it broke; nothing changed.
        failed: a request got no answer; a sentence for the user.
    """

    applied = Signal(object)
    refused = Signal(str, str)
    failed = Signal(str)

    def __init__(self, manager: QNetworkAccessManager, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._manager = manager
        self._url: str | None = None
        self._instance = ""
        self._reply: QNetworkReply | None = None
        self._asked: dict[str, object] = {}
        self._in_force: VersionedSettings | None = None
        self._held = QElapsedTimer()
        self._quiet = QTimer(self, singleShot=True)
        self._quiet.timeout.connect(self._send)

    @property
    def in_force(self) -> VersionedSettings | None:
        return self._in_force

    @property
    def is_busy(self) -> bool:
        """Whether a change is on its way, so that what is in force is about to be something else."""
        return bool(self._asked) or self._reply is not None

    def connect_to(self, url: str, instance: str) -> None:
        """Talk to the service `instance` at `url` and learn its settings."""
        self.leave()
        self._url, self._instance = url, instance
        self._follow(self._manager.get(self._request()))

    def leave(self) -> None:
        """Forget the service and whatever was on its way to it."""
        self._quiet.stop()
        self._asked.clear()
        self._url = self._in_force = None
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.abort()

    def ask(self, changes: Mapping[str, object]) -> None:
        """Ask for `changes`; a value that breaks a rule is refused here and now, the others go on."""
        allowed = {field: value for field, value in changes.items() if self._is_allowed(field, value)}
        if not allowed or self._url is None:
            return
        if not self._asked:
            self._held.start()
        self._asked |= allowed
        if self._reply is None:
            self._quiet.start(max(0, min(QUIET_MS, LONGEST_WAIT_MS - self._held.elapsed())))

    def _is_allowed(self, field: str, value: object) -> bool:
        try:
            Settings().revised({field: value})
        except SettingError as error:
            self.refused.emit(error.field, error.rule)
            return False
        return True

    def observe(self, in_force: VersionedSettings) -> None:
        """Take over what another source (telemetry) says is in force."""
        if self._in_force is None or in_force.version > self._in_force.version:
            self._in_force = in_force
            self.applied.emit(in_force)

    def _send(self) -> None:
        changes, self._asked = self._asked, {}
        request = self._request()
        request.setHeader(QNetworkRequest.KnownHeaders.ContentTypeHeader, "application/json")
        self._follow(self._manager.put(request, msgspec.json.encode(changes)))

    def _request(self) -> QNetworkRequest:
        request = network.request(QUrl(f"{self._url}/batching"))
        request.setTransferTimeout(ANSWER_TIMEOUT_MS)
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
            self._quiet.start(0)
        status = network.status(reply)
        body = bytes(reply.readAll().data())
        if status is None:
            self.failed.emit(f"The settings did not reach the service: {reply.errorString()}.")
        elif not network.is_from(reply, self._instance):
            self.failed.emit(network.STRANGER)
        elif status == 200:
            self._take(body)
        else:
            self._refuse(status, body)

    def _take(self, body: bytes) -> None:
        try:
            in_force = msgspec.json.decode(body, type=VersionedSettings)
        except msgspec.MsgspecError as error:
            self.failed.emit(f"The service's answer about its settings could not be read: {error}.")
            return
        if self._in_force is None or in_force.version >= self._in_force.version:
            self._in_force = in_force
            self.applied.emit(in_force)

    def _refuse(self, status: int, body: bytes) -> None:
        refusal = network.refusal(body)
        if refusal is None:
            self.failed.emit(f"The service answered {status} to a change of settings.")
        elif refusal.param is None:
            self.failed.emit(refusal.message)
        else:
            self.refused.emit(refusal.param, refusal.message)
