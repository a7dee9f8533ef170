"""Asks the service to be redeployed while it runs, and tells how it stands: never what was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from PySide6.QtCore import QObject, Signal
from PySide6.QtNetwork import QNetworkAccessManager

from gui.session.clients.resource import Resource, ResourceClient
from service.messages.telemetry import Deployment

QUIET_MS: Final = 400  # a redeployment takes seconds: three steps of a number are one
RESOURCE: Final = Resource("/deployment", 10_000, "The redeployment", "deployment", "a redeployment")


class DeploymentClient(ResourceClient):
    """Asks with `PUT /deployment` when the user has been quiet for `QUIET_MS`.

    How far a redeployment is comes with the telemetry, by way of `observe`.

    Signals:
        seen: a `Deployment`, each newer than the one before.
    """

    seen = Signal(object)

    def __init__(self, manager: QNetworkAccessManager, parent: QObject | None = None) -> None:
        super().__init__(RESOURCE, manager, parent)
        self._seen: Deployment | None = None

    def ask(self, changes: Mapping[str, object]) -> None:
        """Ask for `changes`, with those that have not been sent yet."""
        if self._url is not None:
            self._ask(dict(changes))

    def observe(self, deployment: Deployment | None) -> None:
        """Take over what is seen, here or by another source (telemetry), unless something newer is known."""
        if deployment is not None and (self._seen is None or deployment.at_s > self._seen.at_s):
            self._seen = deployment
            self.seen.emit(deployment)

    def _forget(self) -> None:
        self._seen = None

    def _quiet_ms(self) -> int:
        return QUIET_MS

    def _take(self, body: bytes) -> None:
        self.observe(msgspec.json.decode(body, type=Deployment))
