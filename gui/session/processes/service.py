"""The service as a child process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import asdict
from PySide6.QtCore import QObject, Signal

from gui.session.processes.child import ChildOwner, Ending
from service.messages.life import Failed, Ready, ServiceState, Starting, Stopped
from service.messages.options import Attachment, ServiceOptions
from service.messages.pipes import our_python

GRACE_MS: Final = 15_000
SERVICE: Final = our_python("service")


@dataclass(frozen=True)
class ServiceStart:
    """The command line of a service.

    Attributes:
        port: the one to listen on; ``None`` for 8000 or the next free one.
        extra: further options of the service, as they stand on its command line.
        program: the command before its options.
    """

    options: ServiceOptions = field(default_factory=ServiceOptions)
    port: int | None = None
    extra: tuple[str, ...] = ()
    program: tuple[str, ...] = SERVICE

    @property
    def command(self) -> list[str]:
        values: dict[str, object] = asdict(self.options) | asdict(self.options.settings)
        del values["settings"], values["hold"]  # the window holds by itself
        if self.port is not None:
            values["port"] = self.port
        return [*self.program, *(_option(name, value) for name, value in values.items()), *self.extra]


def _option(name: str, value: object) -> str:
    """
    >>> _option("allow_small_batch", False)
    '--allow-small-batch=off'
    """
    if isinstance(value, bool):
        value = "on" if value else "off"
    return f"--{name.replace('_', '-')}={value}"


class ServiceProcess(ChildOwner):
    """Owner of the service's process."""

    state_changed = Signal(object)  # each `ServiceState` that the service reports
    died = Signal(str)  # a sentence about a failure or an unexpected end; once a run
    stopped = Signal()  # it ended as asked

    def __init__(self, grace_ms: int = GRACE_MS, parent: QObject | None = None) -> None:
        super().__init__(ServiceState, grace_ms, parent)
        self._is_dead = False
        self._is_stop_wanted = False
        self._next: ServiceStart | Attachment | None = None
        self.instance: str | None = None
        self.ready: Ready | None = None

    def start(self, start: ServiceStart | Attachment) -> None:
        """Start the service, or attach to one that runs, after the last one has ended."""
        if self._child.is_running:
            self._next = start
            self._is_stop_wanted = True
            self._child.end()
            return
        self._is_dead = self._is_stop_wanted = False
        self._next = self.instance = self.ready = None
        self._child.start(start.command)

    def stop(self) -> None:
        """End the service in any state, without waiting; `stopped` follows."""
        self._next = None
        self._is_stop_wanted = True
        if self._child.is_running:
            self._child.end()
        else:
            self.stopped.emit()

    def kill(self) -> None:
        """Kill the service; its children notice that and end."""
        self._next = None
        self._is_stop_wanted = True
        self._child.kill()

    def _take(self, state: ServiceState) -> None:
        match state:
            case Starting():
                self.instance = state.instance
            case Ready():
                self.ready = state
            case Stopped():
                self.ready = None
            case Failed():
                self._die(state.reason)
                return
        self.state_changed.emit(state)

    def _die(self, reason: str) -> None:
        if self._is_dead or self._is_stop_wanted:
            return
        self._is_dead = True
        self.ready = None
        self.died.emit(reason)

    def _on_child_ended(self, ending: Ending) -> None:
        self.ready = None
        if ending.asked and not ending.is_orderly:
            self.logged.emit(ending.sentence("While stopping, the service"))
        follower = self._next
        if follower is not None:
            self.start(follower)
        elif self._is_stop_wanted:
            self.stopped.emit()
        else:
            self._die(ending.sentence("The service"))
