"""Sends changes of the settings and of the deployment to the service, and reports what is in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from PySide6.QtCore import QElapsedTimer, QObject, Signal
from PySide6.QtNetwork import QNetworkAccessManager

from gui.session.clients.resource import Resource, ResourceClient
from service.messages.settings import VersionedSettings
from service.messages.telemetry import Deployment

QUIET_MS: Final = 60
LONGEST_WAIT_MS: Final = 240
REDEPLOYMENT_QUIET_MS: Final = 400  # a redeployment takes seconds: three steps of a number are one
SETTINGS: Final = Resource("/batching", 5_000, "The settings", "settings", "a change of settings")
DEPLOYMENT: Final = Resource("/deployment", 10_000, "The redeployment", "deployment", "a redeployment")


class SettingsClient(ResourceClient):
    """Asks for changes with `PUT /batching`.

    A change waits until the user has been quiet for `QUIET_MS`, and never longer than `LONGEST_WAIT_MS`, so that a drag
    becomes a few changes instead of sixty a second.

    Signals:
        applied: the `VersionedSettings` in force, in order; also after an answer that changed nothing.
    """

    applied = Signal(object)

    def __init__(self, manager: QNetworkAccessManager, parent: QObject | None = None) -> None:
        super().__init__(SETTINGS, manager, parent)
        self.in_force: VersionedSettings | None = None
        self._held = QElapsedTimer()

    def ask(self, changes: Mapping[str, object]) -> None:
        """Ask for `changes`, with those that have not been sent yet; the service checks them."""
        if not changes or self._url is None:
            return
        if not self._asked:
            self._held.start()
        self._ask(dict(changes))

    def observe(self, in_force: VersionedSettings) -> None:
        """Take over settings in force that telemetry reports."""
        if self.in_force is None or in_force.version > self.in_force.version:
            self.in_force = in_force
            self.applied.emit(in_force)

    def _forget(self) -> None:
        self.in_force = None

    def _quiet_ms(self) -> int:
        return max(0, min(QUIET_MS, LONGEST_WAIT_MS - self._held.elapsed()))

    def _take(self, body: bytes) -> None:
        in_force = msgspec.json.decode(body, type=VersionedSettings)
        if self.in_force is None or in_force.version >= self.in_force.version:
            self.in_force = in_force
            self.applied.emit(in_force)


class DeploymentClient(ResourceClient):
    """Asks with `PUT /deployment` when the user has been quiet for `REDEPLOYMENT_QUIET_MS`.

    Telemetry reports the progress of a redeployment, by way of `observe`.

    Signals:
        seen: a `Deployment`, each newer than the one before.
    """

    seen = Signal(object)

    def __init__(self, manager: QNetworkAccessManager, parent: QObject | None = None) -> None:
        super().__init__(DEPLOYMENT, manager, parent)
        self._seen: Deployment | None = None

    def ask(self, changes: Mapping[str, object]) -> None:
        """Ask for `changes`, with those that have not been sent yet."""
        if self._url is not None:
            self._ask(dict(changes))

    def observe(self, deployment: Deployment | None) -> None:
        """Take over a deployment from an answer or from telemetry, unless a newer one is known."""
        if deployment is not None and (self._seen is None or deployment.at_s > self._seen.at_s):
            self._seen = deployment
            self.seen.emit(deployment)

    def _forget(self) -> None:
        self._seen = None

    def _quiet_ms(self) -> int:
        return REDEPLOYMENT_QUIET_MS

    def _take(self, body: bytes) -> None:
        self.observe(msgspec.json.decode(body, type=Deployment))
