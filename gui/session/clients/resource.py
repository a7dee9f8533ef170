"""A resource of the service: read with `GET`, changed with `PUT`."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from PySide6.QtCore import QObject, QTimer, QUrl, Signal
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkReply, QNetworkRequest

from gui.session.clients import network


@dataclass(frozen=True)
class Resource:
    """Path, timeout and names of a resource.

    Attributes:
        sent, about, change: its names in sentences: "The settings did not reach …", "The answer about the
            settings …", "The service answered 500 to a change of settings".
    """

    path: str
    answer_timeout_ms: int
    sent: str
    about: str
    change: str


class ResourceClient(QObject):
    """Sends one request at a time; changes asked for meanwhile go with the next one.

    Signals:
        refused: a field and the rule it broke; nothing changed.
        failed: a request got no answer; a sentence for the user.
    """

    refused = Signal(str, str)
    failed = Signal(str)

    def __init__(self, resource: Resource, manager: QNetworkAccessManager, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._resource = resource
        self._manager = manager
        self._url: str | None = None
        self._instance = ""
        self._reply: QNetworkReply | None = None
        self._asked: dict[str, object] = {}
        self._quiet = QTimer(self, singleShot=True)
        self._quiet.timeout.connect(self._send)

    @property
    def is_busy(self) -> bool:
        """Whether a change has not been answered yet."""
        return bool(self._asked) or self._reply is not None

    def connect_to(self, url: str, instance: str) -> None:
        """Use the service `instance` at `url`, and read the resource."""
        self.leave()
        self._url, self._instance = url, instance
        self._follow(self._manager.get(self._request()))

    def leave(self) -> None:
        """Forget the service and drop pending changes."""
        self._quiet.stop()
        self._asked.clear()
        self._url = None
        self._forget()
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.abort()

    # For subclasses ---------------------------------------------------------------------------------------------------

    # Not an ABC: its metaclass and Qt's exclude each other.

    def _forget(self) -> None:
        """Forget the last answer."""
        raise NotImplementedError

    def _quiet_ms(self) -> int:
        """Milliseconds without a further change before the changes are sent."""
        raise NotImplementedError

    def _take(self, body: bytes) -> None:
        """Take an answer; raises `msgspec.MsgspecError`."""
        raise NotImplementedError

    # Asking and hearing -----------------------------------------------------------------------------------------------

    def _ask(self, changes: dict[str, object]) -> None:
        self._asked |= changes
        if self._reply is None:
            self._quiet.start(self._quiet_ms())

    def _send(self) -> None:
        changes, self._asked = self._asked, {}
        request = self._request()
        request.setHeader(QNetworkRequest.KnownHeaders.ContentTypeHeader, "application/json")
        self._follow(self._manager.put(request, msgspec.json.encode(changes)))

    def _request(self) -> QNetworkRequest:
        request = network.request(QUrl(f"{self._url}{self._resource.path}"))
        request.setTransferTimeout(self._resource.answer_timeout_ms)
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
            self._quiet.start(self._quiet_ms())
        status, body = network.status(reply), bytes(reply.readAll().data())
        if status is None:
            self.failed.emit(f"{self._resource.sent} did not reach the service: {reply.errorString()}.")
        elif not network.is_from(reply, self._instance):
            self.failed.emit(network.STRANGER)
        elif status == 200:
            self._try_to_take(body)
        else:
            self._refuse(status, body)

    def _try_to_take(self, body: bytes) -> None:
        try:
            self._take(body)
        except msgspec.MsgspecError as error:
            self.failed.emit(f"The service's answer about its {self._resource.about} could not be read: {error}.")

    def _refuse(self, status: int, body: bytes) -> None:
        refusal = network.refusal(body)
        if refusal is None:
            self.failed.emit(f"The service answered {status} to {self._resource.change}.")
        elif refusal.param is None:
            self.failed.emit(refusal.message)
        else:
            self.refused.emit(refusal.param, refusal.message)
