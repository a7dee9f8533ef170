"""The hub without Ray: what it reports of replicas, and what outlives it when another one takes its place."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec
import pytest

from service.messages.settings import Scale, SettingError, Settings, VersionedSettings
from service.messages.telemetry import TelemetryFrame
from service.ray_serve.redeployer import DeploymentSnapshot
from service.replica.frames import SILENCE_S, UNWATCHED_INTERVAL_S
from service.replica.hub import SILENT_POLL_S, Hub
from service.replica.recorder import Recorder
from service.replica.settings_board import ADOPTION_TIMEOUT_S
from tests.unit.test_telemetry import DECODER, NUMBERS, batch, status
from tests.virtual_time import VirtualTimeLoop, now_s

Result = TypeVar("Result")

FIRST = VersionedSettings(version=1, settings=Settings())
AS_CHANGED = VersionedSettings(version=2, settings=Settings(max_batch_size=3))
CHANGE: dict[str, object] = {"max_batch_size": 3}
OTHER_CHANGE: dict[str, object] = {"max_batch_size": 5}

SOON_S = 3 * (SILENCE_S + SILENT_POLL_S)
"""Within this time a hub has noticed whatever it notices."""


class Blocking:
    """What is called in threads.

    Attributes:
        takes_s: until it has answered, in virtual time.
    """

    takes_s = 0.001


class Serve(Blocking):
    """An application whose replicas start and end as the test says; the controller outlives every hub."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.starting: set[str] = set()
        self.failure: Exception | None = None
        self.asked = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def look(self) -> DeploymentSnapshot:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        snapshot = DeploymentSnapshot(
            wanted=Scale(replicas=max(len(self.running), 1)),
            running=frozenset(self.running),
            starting=frozenset(self.starting),
            leaving=frozenset(),
            resources={},
            is_autoscaled=False,
            is_settled=True,
        )
        self.meanwhile()
        return snapshot


class Store(Blocking):
    """Keeps what was saved last, and outlives every hub."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self._state: bytes | None = None

    def load(self) -> bytes | None:
        return self._state

    def save(self, state: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self._state = state


KEEPING_S = 2 * Store.takes_s
"""The call of a change is kept, and what it changes."""


class SlowStore(Store):
    """Saves nothing while it may not."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()
        self.may_save = threading.Event()
        self.may_save.set()

    def save(self, state: bytes) -> None:
        self.is_asked.set()
        assert self.may_save.wait(timeout=10.0), "the event loop waits for the store"
        super().save(state)


class HubLoop(VirtualTimeLoop):
    """In place of threads: what is `Blocking` is done at once, and the loop hears of it when its time is over."""

    def run_in_executor(self, _executor: object, call: Any, *arguments: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        answer = self.create_future()
        try:
            settle = partial(answer.set_result, call(*arguments))
        except Exception as error:
            settle = partial(answer.set_exception, error)
        self.call_later(call.__self__.takes_s, lambda: answer.done() or settle())
        return answer


def a_call() -> str:
    """Another text for each call."""
    return secrets.token_hex(4)


@pytest.fixture
def serve() -> Serve:
    return Serve()


@pytest.fixture
def store() -> Store:
    return Store()


def life(
    serve: Serve,
    store: Store,
    work: Callable[[Hub], Awaitable[Result]],
    *,
    service: str = "s",
    settings: Settings = FIRST.settings,
) -> Result:
    """What `work` returns at the end of a hub's life, whose tasks end with it; the next one's time begins anew."""

    async def live() -> Result:
        return await work(Hub(settings, serve, store, service, now_s))

    with asyncio.Runner(loop_factory=HubLoop) as runner:
        return runner.run(live())


async def started(hub: Hub, serve: Serve, *replicas: str) -> list[str]:
    """The names of replicas that start, one after the other."""
    names = []
    for replica in replicas:
        names.append((await hub.register(replica))[0])
        serve.running.add(replica)
    return names


async def report(hub: Hub, name: str, *, is_last: bool = False) -> None:
    report = Recorder(name).report(status(name, at_s=now_s()), is_last=is_last)
    await hub.report(msgspec.structs.replace(report, number=next(NUMBERS)))


async def keep_reporting(hub: Hub, *names: str) -> None:
    while True:
        for name in names:
            await report(hub, name)
        await asyncio.sleep(SILENCE_S / 3)


async def follow(hub: Hub, name: str, held: VersionedSettings) -> None:
    """Do as a replica does that adopts everything at once."""
    while True:
        held = await hub.follow(name, held)


async def frames_within(hub: Hub, seconds: float) -> list[TelemetryFrame]:
    """The frames of the time from now on."""
    frames: list[TelemetryFrame] = []
    number = None
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                answer = await hub.frames_after("reader", number)
                assert answer is not None
                number, events = answer
                frames += [frame for event in events if isinstance(frame := DECODER.decode(event), TelemetryFrame)]
    return frames


async def first_lost(hub: Hub) -> tuple[str, ...]:
    """The names of the replicas that the first frame with any calls lost; none where there are none for long."""
    frames = await frames_within(hub, SOON_S)
    return next((frame.lost_replicas for frame in frames if frame.lost_replicas), ())


async def seconds_to_revise(hub: Hub, changes: dict[str, object]) -> float:
    began_s = now_s()
    assert isinstance(await hub.revise(a_call(), changes), VersionedSettings)
    return now_s() - began_s


# Names ---------------------------------------------------------------------------------------------------------------


def test_replicas_that_start_together_have_names_of_their_own(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> set[str]:
        return {name for name, _ in await asyncio.gather(*(hub.register(replica) for replica in "abc"))}

    assert life(serve, store, work) == {"r1", "r2", "r3"}


def test_a_replica_that_registers_twice_keeps_its_name(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> list[str]:
        both = await asyncio.gather(hub.register("a"), hub.register("a"))
        return [name for name, _ in (*both, await hub.register("b"), await hub.register("a"))]

    assert life(serve, store, work) == ["r1", "r1", "r2", "r1"]


def test_a_restarted_hub_knows_the_names_of_those_there_are_and_gives_only_new_ones(serve: Serve, store: Store) -> None:
    assert life(serve, store, lambda hub: started(hub, serve, "a", "b")) == ["r1", "r2"]
    assert life(serve, store, lambda hub: started(hub, serve, "c", "b", "a")) == ["r3", "r2", "r1"]


def test_a_name_is_not_given_again_after_its_replica_has_ended(serve: Serve, store: Store) -> None:
    async def lose_the_newest(hub: Hub) -> tuple[str, ...]:
        await started(hub, serve, "a", "b")
        serve.running.remove("b")
        lost = await first_lost(hub)
        await hub.revise(a_call(), CHANGE)
        return lost

    assert life(serve, store, lose_the_newest) == ("r2",)
    assert life(serve, store, lambda hub: started(hub, serve, "c")) == ["r3"]


def test_a_restarted_hub_that_has_heard_of_no_replica_keeps_none_from_starting(serve: Serve, store: Store) -> None:
    life(serve, store, lambda hub: started(hub, serve, "a", "b"))

    async def work(hub: Hub) -> float:
        await hub.register("c")
        return now_s()

    assert life(serve, store, work) == pytest.approx(Store.takes_s)


async def test_the_hub_answers_while_a_name_is_being_kept(serve: Serve) -> None:
    store = SlowStore()
    hub = Hub(Settings(), serve, store, "s")
    store.may_save.clear()
    store.is_asked.clear()
    registering = asyncio.create_task(hub.register("a"))
    await asyncio.to_thread(store.is_asked.wait)
    await hub.report(Recorder("r9").report(status("r9")))
    assert not registering.done(), "a name that is not kept is not given"
    store.may_save.set()
    assert await registering == ("r1", FIRST)


# Settings ------------------------------------------------------------------------------------------------------------


def test_a_restarted_hub_goes_on_with_the_settings_in_force_and_counts_on(serve: Serve, store: Store) -> None:
    assert life(serve, store, lambda hub: hub.revise(a_call(), CHANGE)) == AS_CHANGED

    async def work(hub: Hub) -> list[object]:
        _, at_start = await hub.register("a")
        return [at_start, await hub.revise(a_call(), OTHER_CHANGE)]

    assert life(serve, store, work, settings=Settings(max_batch_size=9)) == [
        AS_CHANGED,
        VersionedSettings(version=3, settings=Settings(max_batch_size=5)),
    ]


def test_settings_that_a_replica_has_heard_of_outlive_the_hub(serve: Serve, store: Store) -> None:
    async def until_heard(hub: Hub) -> VersionedSettings:
        (name,) = await started(hub, serve, "a")
        following = asyncio.create_task(hub.follow(name, FIRST))
        revising = asyncio.create_task(hub.revise(a_call(), CHANGE))
        heard = await following
        assert not revising.done()
        return heard

    async def follow_at_once(hub: Hub) -> VersionedSettings:
        return await hub.follow("r1", FIRST)

    heard = life(serve, store, until_heard)
    assert heard == life(serve, store, follow_at_once) == AS_CHANGED


def test_a_change_that_comes_twice_undoes_nothing_that_came_meanwhile(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> object:
        await hub.revise("first", CHANGE)
        await hub.revise("second", OTHER_CHANGE)
        return await hub.revise("first", CHANGE)

    answer = life(serve, store, work)
    assert isinstance(answer, VersionedSettings)
    assert answer.settings.max_batch_size == OTHER_CHANGE["max_batch_size"]
    assert life(serve, store, lambda hub: hub.revise("first", CHANGE)) == answer, "nor does it at a restarted hub"


def test_a_name_is_given_once_also_where_the_one_before_could_not_be_kept(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> list[str]:
        store.failure = OSError("the store is gone")
        with pytest.raises(OSError, match="gone"):
            await hub.register("a")
        store.failure = None
        return [(await hub.register(replica))[0] for replica in ("b", "a")]

    assert life(serve, store, work) == ["r1", "r2"]


def test_a_change_upon_settings_that_are_in_force_no_more_changes_nothing(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> list[VersionedSettings | SettingError]:
        _, first = await hub.register("a")
        await hub.revise(a_call(), CHANGE)
        return [await hub.revise(a_call(), OTHER_CHANGE, upon=first.version), hub.in_force]

    assert life(serve, store, work) == [AS_CHANGED, AS_CHANGED]


def test_why_a_program_changes_settings_stands_beside_the_change(serve: Serve, store: Store) -> None:
    async def reasons(hub: Hub) -> list[str]:
        await hub.revise(a_call(), CHANGE, "Hold: rate 4.0 → 9.0")
        await hub.revise(a_call(), OTHER_CHANGE)
        frames = await frames_within(hub, SOON_S)
        return [change.reason for frame in frames for change in frame.changes]

    assert life(serve, store, reasons) == ["Hold: rate 4.0 → 9.0", ""]


def test_a_hub_of_another_service_begins_anew(serve: Serve, store: Store) -> None:
    async def of_a_service(hub: Hub) -> tuple[str, VersionedSettings]:
        answer = await hub.register("a")
        await hub.revise(a_call(), CHANGE)
        return answer

    own = Settings(max_batch_size=7)
    assert life(serve, store, of_a_service) == ("r1", FIRST)
    begun = life(serve, store, of_a_service, service="another", settings=own)
    assert begun == ("r1", VersionedSettings(version=1, settings=own))


def test_a_refused_change_is_answered_with_the_reason_and_changes_nothing(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> object:
        assert (await hub.register("a"))[1] == FIRST
        return await hub.revise(a_call(), {"max_batch_size": 0})

    assert isinstance(life(serve, store, work), SettingError)
    assert life(serve, store, lambda hub: hub.register("b")) == ("r2", FIRST)


def test_a_change_waits_for_each_replica_that_a_restarted_hub_expects(serve: Serve, store: Store) -> None:
    life(serve, store, lambda hub: started(hub, serve, "a", "b"))
    comes_s = 0.6 * ADOPTION_TIMEOUT_S

    async def work(hub: Hub) -> float:
        async def come_late() -> None:
            await asyncio.sleep(comes_s)
            await follow(hub, "r2", FIRST)

        followers = [asyncio.create_task(follow(hub, "r1", FIRST)), asyncio.create_task(come_late())]
        took_s = await seconds_to_revise(hub, CHANGE)
        assert not any(follower.done() for follower in followers)
        return took_s

    assert life(serve, store, work) == pytest.approx(comes_s)


def test_a_change_waits_for_a_replica_that_has_registered_and_follows_soon(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> float:
        await started(hub, serve, "a")
        revising = asyncio.create_task(seconds_to_revise(hub, CHANGE))
        await asyncio.sleep(0.3 * ADOPTION_TIMEOUT_S)
        following = asyncio.create_task(follow(hub, "r1", FIRST))
        took_s = await revising
        assert not following.done()
        return took_s

    assert life(serve, store, work) == pytest.approx(0.3 * ADOPTION_TIMEOUT_S)


def test_a_change_does_not_wait_long_for_a_replica_that_does_not_come_back(serve: Serve, store: Store) -> None:
    life(serve, store, lambda hub: started(hub, serve, "a"))
    took_s = life(serve, store, lambda hub: seconds_to_revise(hub, CHANGE))
    assert took_s == pytest.approx(KEEPING_S + ADOPTION_TIMEOUT_S)


def test_a_change_waits_for_no_replica_that_is_lost(serve: Serve, store: Store) -> None:
    life(serve, store, lambda hub: started(hub, serve, "a"))
    serve.running.clear()

    async def work(hub: Hub) -> float:
        assert await first_lost(hub) == ("r1",)
        return await seconds_to_revise(hub, CHANGE)

    assert life(serve, store, work) == pytest.approx(KEEPING_S)


# Replicas that end ---------------------------------------------------------------------------------------------------


def test_a_silent_replica_is_lost_when_serve_knows_it_no_more_and_late_until_then(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> list[tuple[str, ...]]:
        for name in await started(hub, serve, "late", "ended", "starting"):
            await report(hub, name)
        serve.running.remove("starting")
        serve.starting.add("starting")
        before = await first_lost(hub)
        serve.running.remove("ended")
        return [before, await first_lost(hub)]

    assert life(serve, store, work) == [(), ("r2",)]


def test_a_replica_that_never_reports_after_it_registered_is_lost_when_it_ends(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> tuple[str, ...]:
        await started(hub, serve, "a")
        serve.running.clear()
        return await first_lost(hub)

    assert life(serve, store, work) == ("r1",)


def test_a_replica_that_ended_while_no_hub_was_there_is_lost(serve: Serve, store: Store) -> None:
    life(serve, store, lambda hub: started(hub, serve, "silent", "ended", "reports"))
    serve.running.remove("ended")

    async def work(hub: Hub) -> list[tuple[float, tuple[str, ...]]]:
        reporting = asyncio.create_task(keep_reporting(hub, "r3"))
        frames = await frames_within(hub, SOON_S)
        assert not reporting.done()
        return [(frame.at_s, frame.lost_replicas) for frame in frames if frame.lost_replicas]

    ((at_s, lost),) = life(serve, store, work)
    assert lost == ("r2",)
    assert SILENCE_S < at_s < SILENCE_S + 2 * SILENT_POLL_S


def test_the_ends_of_late_are_said_again_by_the_next_hub(serve: Serve, store: Store) -> None:
    async def end(hub: Hub) -> None:
        left, _ = await started(hub, serve, "leaves", "dies")
        await report(hub, left, is_last=True)
        serve.running.clear()
        await first_lost(hub)

    async def listen(hub: Hub) -> tuple[tuple[str, ...], tuple[str, ...]]:
        (frame,) = await frames_within(hub, SOON_S)
        return frame.left_replicas, frame.lost_replicas

    life(serve, store, end)
    assert life(serve, store, listen) == (("r1",), ("r2",))


def test_a_report_of_a_replica_that_ended_in_the_life_of_the_hub_before_comes_too_late(
    serve: Serve, store: Store
) -> None:
    async def leave(hub: Hub) -> None:
        (name,) = await started(hub, serve, "leaves")
        await report(hub, name, is_last=True)

    async def listen(hub: Hub) -> list[TelemetryFrame]:
        await report(hub, "r1")
        return await frames_within(hub, SOON_S)

    life(serve, store, leave)
    assert not any(frame.replicas for frame in life(serve, store, listen))


def test_a_replica_that_comes_while_serve_is_asked_of_another_is_not_lost(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> tuple[str, ...]:
        await started(hub, serve, "ended")
        serve.running.clear()
        coming: list[asyncio.Task[None]] = []

        async def come() -> None:
            await started(hub, serve, "new")
            await report(hub, "r2")

        def come_once() -> None:
            if now_s() > SILENCE_S and not coming:
                coming.append(asyncio.create_task(come()))

        serve.meanwhile, serve.takes_s = come_once, 1.5 * SILENCE_S
        lost = await first_lost(hub)
        assert coming, "Serve was asked"
        return lost

    assert life(serve, store, work) == ("r1",)


def test_a_replica_that_reports_again_while_serve_is_asked_is_not_lost(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> tuple[str, ...]:
        await started(hub, serve, "late", "ended")
        serve.running.clear()  # of the one that is late Serve hears later than the hub
        reporting: list[asyncio.Task[None]] = []

        def report_from_now_on() -> None:
            if now_s() > SILENCE_S and not reporting:
                reporting.append(asyncio.create_task(keep_reporting(hub, "r1")))

        serve.meanwhile = report_from_now_on
        lost = await first_lost(hub)
        assert reporting, "Serve was asked"
        return lost

    assert life(serve, store, work) == ("r2",)


def test_a_controller_that_does_not_answer_loses_no_replica(
    serve: Serve, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    life(serve, store, lambda hub: started(hub, serve, "a"))
    serve.running.clear()

    async def work(hub: Hub) -> list[tuple[str, ...]]:
        await asyncio.sleep(SILENCE_S / 2)
        serve.failure, asked = RuntimeError("the controller is gone"), serve.asked
        without = await first_lost(hub)
        assert serve.asked > asked + 1, "it is asked again and again"
        await hub.check_health()
        serve.failure = None
        return [without, await first_lost(hub)]

    assert life(serve, store, work) == [(), ("r1",)]
    assert "Ray does not say whether r1 has ended: the controller is gone" in caplog.text


def test_a_replica_that_says_that_its_report_is_the_last_has_left(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> tuple[list[TelemetryFrame], float]:
        (name,) = await started(hub, serve, "a")
        reading = asyncio.create_task(frames_within(hub, SOON_S))
        recorder = Recorder(name)
        recorder.note_batch(batch(1))
        await hub.report(recorder.report(status(name, at_s=now_s()), is_last=True))
        serve.running.clear()
        return await reading, await seconds_to_revise(hub, CHANGE)

    frames, took_s = life(serve, store, work)
    (parting,) = [frame for frame in frames if frame.gone_replicas]
    assert (parting.left_replicas, parting.lost_replicas) == (("r1",), ())
    assert [each.id for each in parting.batches] == ["r1-b1"], "what it reported last is told as well"
    assert took_s == pytest.approx(KEEPING_S), "a change does not wait for it"


def test_a_replica_that_ends_without_a_last_report_has_not_left(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> list[TelemetryFrame]:
        (name,) = await started(hub, serve, "a")
        await report(hub, name)
        serve.running.clear()
        return await frames_within(hub, SOON_S)

    (parting,) = [frame for frame in life(serve, store, work) if frame.gone_replicas]
    assert (parting.left_replicas, parting.lost_replicas) == ((), ("r1",))


# What it answers -----------------------------------------------------------------------------------------------------


def test_an_answer_tells_whether_another_hub_has_taken_the_place_of_the_one_before(serve: Serve, store: Store) -> None:
    async def lives(hub: Hub) -> list[str]:
        (name,) = await started(hub, serve, "a")
        recorder = Recorder(name)
        return [(await hub.report(recorder.report(status(name, at_s=now_s() + n)))).life for n in range(2)]

    first, again = life(serve, store, lives)
    after, _ = life(serve, store, lives)
    assert first == again
    assert after != first


def test_reports_are_wanted_more_often_when_there_is_a_reader(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> list[float]:
        (name,) = await started(hub, serve, "a")
        recorder = Recorder(name)
        before = await hub.report(recorder.report(status(name, at_s=now_s())))
        await frames_within(hub, 1.0)
        after = await hub.report(recorder.report(status(name, at_s=now_s())))
        return [before.interval_s, after.interval_s]

    before_s, after_s = life(serve, store, work)
    assert before_s == UNWATCHED_INTERVAL_S > after_s


def test_frames_name_the_service_and_hold_its_settings(serve: Serve, store: Store) -> None:
    async def work(hub: Hub) -> list[TelemetryFrame]:
        reading = asyncio.create_task(frames_within(hub, 1.0))
        await hub.revise(a_call(), CHANGE)
        return await reading

    (frame,) = life(serve, store, work, service="drawn")
    assert (frame.service, frame.in_force) == ("drawn", AS_CHANGED)
    assert [(change.version, change.previous) for change in frame.changes] == [(AS_CHANGED.version, FIRST.settings)]
