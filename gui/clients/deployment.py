"""Asks the service to be redeployed while it runs, and tells how it stands: never what was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from PySide6.QtCore import QObject, QTimer, QUrl, Signal
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkReply, QNetworkRequest

from gui.clients import network
from service.messages.deployment import Deployment

QUIET_MS: Final = 400  # a redeployment takes seconds: three steps of a number are one
ANSWER_TIMEOUT_MS: Final = 10_000


class DeploymentClient(QObject):
    """Asks with `PUT /deployment`, one request at a time, when the user has been quiet for `QUIET_MS`.

    How far a redeployment is comes with the telemetry, by way of `observe`.

    Signals:
        seen: a `Deployment`, each newer than the one before.
        refused: a field and the rule it broke; nothing changed.
        failed: a request got no answer; a sentence for the user.
    """

    seen = Signal(object)
    refused = Signal(str, str)
    failed = Signal(str)

    def __init__(self, manager: QNetworkAccessManager, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._manager = manager
        self._url: str | None = None
        self._instance = ""
        self._reply: QNetworkReply | None = None
        self._asked: dict[str, object] = {}
        self._seen: Deployment | None = None
        self._quiet = QTimer(self, singleShot=True, interval=QUIET_MS)
        self._quiet.timeout.connect(self._send)

    def connect_to(self, url: str, instance: str) -> None:
        """Talk to the service `instance` at `url` and learn how it is deployed."""
        self.leave()
        self._url, self._instance = url, instance
        self._follow(self._manager.get(self._request()))

    def leave(self) -> None:
        """Forget the service and whatever was on its way to it."""
        self._quiet.stop()
        self._asked.clear()
        self._url = self._seen = None
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.abort()

    def ask(self, changes: Mapping[str, object]) -> None:
        """Ask for `changes`, with those that have not been sent yet."""
        if self._url is not None:
            self._asked |= changes
            self._quiet.start()

    def observe(self, deployment: Deployment | None) -> None:
        """Take over what is seen, here or by another source (telemetry), unless something newer is known."""
        if deployment is not None and (self._seen is None or deployment.at_s > self._seen.at_s):
            self._seen = deployment
            self.seen.emit(deployment)

    def _send(self) -> None:
        if self._reply is not None:  # goes with the next
            self._quiet.start()
            return
        changes, self._asked = self._asked, {}
        request = self._request()
        request.setHeader(QNetworkRequest.KnownHeaders.ContentTypeHeader, "application/json")
        self._follow(self._manager.put(request, msgspec.json.encode(changes)))

    def _request(self) -> QNetworkRequest:
        request = network.request(QUrl(f"{self._url}/deployment"))
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
        status, body = network.status(reply), bytes(reply.readAll().data())
        if status is None:
            self.failed.emit(f"The redeployment did not reach the service: {reply.errorString()}.")
        elif not network.is_from(reply, self._instance):
            self.failed.emit(network.STRANGER)
        elif status == 200:
            self._take(body)
        else:
            self._refuse(status, body)

    def _take(self, body: bytes) -> None:
        try:
            self.observe(msgspec.json.decode(body, type=Deployment))
        except msgspec.MsgspecError as error:
            self.failed.emit(f"The service's answer about its deployment could not be read: {error}.")

    def _refuse(self, status: int, body: bytes) -> None:
        refusal = network.refusal(body)
        if refusal is None:
            self.failed.emit(f"The service answered {status} to a redeployment.")
        elif refusal.param is None:
            self.failed.emit(refusal.message)
        else:
            self.refused.emit(refusal.param, refusal.message)
