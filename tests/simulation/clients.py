"""The programs around the service: the load generator behind a proxy, a reader of telemetry, one that changes settings.

The load is sent by the product's own generator, and its answers are read by its own client's code.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from service.load.client import completion_body, take_event
from service.load.flight import Answer, Flight, Observer
from service.load.generator import Generator
from service.messages.event_stream import EventReader
from service.messages.load import LoadCommand
from service.messages.settings import SettingError, Settings, VersionedSettings
from service.messages.telemetry import FramesMissed, RequestRecord, TelemetryEvent
from service.replica.bodies import CompletionBody
from tests.simulation.replica import SimulatedReplica
from tests.simulation.serve import NOTICED_S, Controller
from tests.simulation.world import Process, World

RETRY_S: Final = 0.1


def expected_text(prompt: str, tokens: int) -> str:
    return "".join(f"<{prompt}#{number}>" for number in range(1, tokens + 1))


class Clock:
    """As `service.load.loops.Clock`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self) -> float:
        return self._process.world.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> asyncio.Handle:
        return self._process.call_at(when_s, callback)


class Sender:
    """Takes flights through the proxy to a replica, and keeps each with how it ended."""

    def __init__(self, process: Process, controller: Controller) -> None:
        self.ended: dict[Flight, list[Answer]] = defaultdict(list)
        self.texts: dict[Flight, str] = {}
        self.replicas: dict[Flight, SimulatedReplica] = {}
        self.cancelled: set[str] = set()
        self._process, self._controller = process, controller
        self._tasks: dict[Flight, asyncio.Task[None]] = {}

    @property
    def under_way(self) -> list[Flight]:
        return list(self._tasks)

    def start(self, flight: Flight, observer: Observer) -> None:
        self._tasks[flight] = self._process.create_task(self._fly(flight, observer))

    def cancel(self, flight: Flight) -> None:
        self.cancelled.add(flight.id)
        self._tasks[flight].cancel()

    async def _fly(self, flight: Flight, observer: Observer) -> None:
        flight.sent_s = self._process.world.now_s
        observer.sent(flight)
        try:
            answer = await self._ask(flight, observer)
        except asyncio.CancelledError:
            answer = Answer("cancelled")
        self.ended[flight].append(answer)
        observer.concluded(flight, answer)
        del self._tasks[flight]

    async def _ask(self, flight: Flight, observer: Observer) -> Answer:
        body = CompletionBody(**msgspec.json.decode(completion_body(flight, None)))
        while True:
            self.replicas[flight] = await self._controller.routed_replica()
            connection = Connection(self._process, self.replicas[flight], body, flight.id)
            answer = await self._heard(connection, flight, observer)
            if answer is not None or connection.has_begun:
                return answer or Answer("failed", "broken off")

    async def _heard(self, connection: Connection, flight: Flight, observer: Observer) -> Answer | None:
        """The answer; ``None`` if the connection breaks."""
        reader, status, whole = EventReader(), 0, b""
        try:
            while (message := await connection.heard.get()) is not None:
                status = message.get("status", status)
                chunk = message.get("body", b"")
                if status != 200 or not flight.streams:
                    whole += chunk
                    if message["type"] == "http.response.body" and not message.get("more_body", False):
                        return self._whole(flight, status, whole)
                    continue
                for event in reader.feed(chunk):
                    answer = take_event(event, flight, self._process.world.now_s)
                    self._note_text(flight)
                    if answer is not None:
                        return answer
                observer.progressed(flight)
            return None
        finally:
            connection.close()

    def _note_text(self, flight: Flight) -> None:
        self.texts[flight] = self.texts.get(flight, "") + flight.report().new_text

    def _whole(self, flight: Flight, status: int, body: bytes) -> Answer:
        if status == 200:
            flight.add_text(msgspec.json.decode(body)["choices"][0]["text"])
            self._note_text(flight)
            return Answer("ok")
        if status == 503:
            return Answer("refused", "full", retry_after_s=msgspec.json.decode(body)["retry_after_s"])
        return Answer("failed", msgspec.json.decode(body)["error"])


class Connection:
    """A request on its way to a replica; `heard` gets what that sends, in order, and ``None`` when it breaks.

    Where it breaks before it `has_begun`, Serve's router tries another replica.
    """

    def __init__(self, process: Process, replica: SimulatedReplica, body: CompletionBody, client_id: str) -> None:
        self.heard: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._process, self._replica = process, replica
        self._world: World = process.world
        self._network = replica.network
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.has_begun = False
        self._last_s = 0.0  # when the last message arrives

        def begin() -> None:
            if self._closed:
                return
            if not replica.process.is_alive:
                self._break()
                return
            replica.process.on_death.append(self._break)
            replica.process.call_soon(start)

        def start() -> None:
            if replica.has_ended:
                self._break()
            elif not self._closed:
                self.has_begun = True
                replica.open += 1  # at once, as Serve does: between that and a look whether it is drained is nothing
                self._task = replica.process.create_task(replica.complete(body, client_id, self._send))
                self._task.add_done_callback(self._on_end)

        self._world.call_later(self._network.delay_s(), begin)

    def close(self) -> None:
        """The client leaves: Serve's proxy has the replica's task cancelled."""
        self._closed = True

        def cancel() -> None:
            if self._task is not None:
                self._replica.process.call_soon(self._task.cancel)

        self._world.call_later(self._network.delay_s(), cancel)

    async def _send(self, message: Mapping[str, Any]) -> None:
        self._arrive(dict(message))
        await asyncio.sleep(0)

    def _arrive(self, message: dict[str, Any] | None, after_s: float = 0.0) -> None:
        self._last_s = max(self._last_s, self._world.now_s + after_s + self._network.delay_s())
        self._world.call_at(self._last_s, lambda: self._process.call_soon(self.heard.put_nowait, message))

    def _break(self) -> None:
        self._arrive(None, self._world.random.choice(NOTICED_S))

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._replica.open -= 1
        self._replica.process.on_death.remove(self._break)
        if task.cancelled() or task.exception() is not None:
            if not task.cancelled():
                self._world.faults.append(f"a handler of {self._replica.serve_id} raised {task.exception()!r}")
            self._break()


class NoJournal:
    """Of the load: what it would show is looked at where it is kept."""

    def flight_changed(self, flight: Flight) -> None: ...
    def load_changed(self) -> None: ...
    def refused(self, reason: str) -> None: ...


class LoadProcess:
    """The load generator in a process of its own."""

    def __init__(self, world: World, controller: Controller) -> None:
        self.process = Process(world, "load")
        self.sender = Sender(self.process, controller)
        self.generator = Generator(self.sender, Clock(self.process), NoJournal())

    def obey(self, command: LoadCommand) -> None:
        self.process.call_soon(self.generator.obey, command)


class Reader:
    """Reads telemetry, at whichever replica there is, as the window and `record` do.

    Attributes:
        requests: the last record of each.
        missed: how often a gap in the frames was reported.
    """

    def __init__(self, world: World, controller: Controller) -> None:
        self.process = Process(world, "reader")
        self.requests: dict[str, RequestRecord] = {}
        self.ledgers: dict[str, Any] = {}
        self.gone: set[str] = set()
        self.left: set[str] = set()
        self.in_force: VersionedSettings | None = None
        self.missed = 0
        self.last_number: int | None = None
        self._controller = controller
        self._decoder: msgspec.json.Decoder[TelemetryEvent] = msgspec.json.Decoder(TelemetryEvent)
        self.process.call_soon(lambda: self.process.create_task(self._read()))

    async def _read(self) -> None:
        while True:
            replica = await self._controller.routed_replica()
            try:
                while answer := await replica.call(self.process, lambda to=replica: to.frames_after(self.last_number)):
                    for event in answer[1]:
                        self._take(self._decoder.decode(event))
                    self.last_number = answer[0]
            except Exception:
                await asyncio.sleep(RETRY_S)

    def _take(self, event: TelemetryEvent) -> None:
        faults, last = self.process.world.faults, self.last_number
        if isinstance(event, FramesMissed):
            if last is not None and event.first != last + 1:
                faults.append(f"frames from {event.first} are said to be missed after {last}")
            self.missed += 1
            self.last_number = event.last
            return
        if last is not None and event.number != last + 1:
            faults.append(f"frame {event.number} after {last}, and no word of a gap")
        self.last_number = event.number
        if self.in_force is not None and event.in_force.version < self.in_force.version:
            faults.append(f"settings went back from version {self.in_force.version} to {event.in_force.version}")
        self.in_force = event.in_force
        self.requests.update((each.id, each) for each in event.requests)
        self.ledgers.update((each.replica, each.ledger) for each in event.replicas)
        self.gone.update(event.gone_replicas)
        self.left.update(event.left_replicas)
        for batch in event.batches:
            if batch.size > batch.cap and batch.release_reason != "left":
                faults.append(f"{batch.id} holds {batch.size} at a cap of {batch.cap}")
        for name in event.lost_replicas:
            if any(each.process.is_alive for each in self._controller.ever_named(name)):
                faults.append(f"{name} is said to be lost, and lives")
        for name in event.left_replicas:
            if not all(each.has_ended for each in self._controller.ever_named(name)):
                faults.append(f"{name} is said to have left, and was not asked to")


class Operator:
    """Changes settings and the number of replicas, one change after the other, as the window does.

    Attributes:
        possible: values that each setting may have now, by what was answered.
    """

    def __init__(self, world: World, controller: Controller, settings: Settings) -> None:
        self.process = Process(world, "operator")
        self.possible: dict[str, set[object]] = {}
        self._unanswered: dict[str, set[object]] = defaultdict(set)  # values of changes that may still be carried out
        self._initial = settings
        self._controller = controller
        self._changes: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self.is_busy = False
        self.on_accepted: Callable[[VersionedSettings, float], None] = lambda in_force, took_s: None
        self.process.call_soon(lambda: self.process.create_task(self._work()))

    def change(self, changes: dict[str, object]) -> None:
        self.is_busy = True
        self.process.call_soon(self._changes.put_nowait, changes)

    async def _work(self) -> None:
        while True:
            self.is_busy = not self._changes.empty()
            changes = await self._changes.get()
            replica = await self._controller.routed_replica()
            begun_s = self.process.world.now_s
            is_scale = "replicas" in changes
            try:
                in_force = await replica.call(
                    self.process, partial(replica.redeploy if is_scale else replica.change, changes)
                )
            except SettingError:
                continue
            except Exception:  # it may have been carried out, and may still be
                for name, value in changes.items():
                    self._unanswered[name].add(value)
                    self.possible.setdefault(name, {getattr(self._initial, name, None)}).add(value)
                continue
            if not is_scale:
                self.possible.update((name, {value} | self._unanswered[name]) for name, value in changes.items())
                self.on_accepted(in_force, self.process.world.now_s - begun_s)
