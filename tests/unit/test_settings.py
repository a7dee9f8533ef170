"""Settings check themselves, and the board carries a change to all followers."""

from __future__ import annotations

import asyncio
import math
import pickle
from collections.abc import Awaitable, Callable

import pytest

from service.messages.settings import BOUNDS, LONGEST_WAIT_S, Settings, SettingsChange, VersionedSettings
from service.messages.settings import SettingError as Refused
from service.replica.settings_board import ADOPTION_TIMEOUT_S, SettingsBoard
from tests.virtual_time import now_s, run_in_virtual_time

NONSENSE = [None, True, "8", "８", [], {}, math.nan, math.inf, -math.inf, -1, 10**400, 1e400]


@pytest.mark.parametrize("field", ["formation", *BOUNDS, "allow_small_batch"])
@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_that_nonsense_is_refused_and_the_field_is_named(field: str, value: object) -> None:
    if field == "allow_small_batch" and value is True:
        return
    with pytest.raises(Refused) as refusal:
        Settings().revised({field: value})
    assert refusal.value.field == field
    assert "Must be" in refusal.value.rule


@pytest.mark.parametrize(("field", "value"), [("max_batch_size", 4.0), ("max_batch_size", 257), ("max_batch_size", 0)])
def test_that_a_size_is_a_whole_number_within_its_bounds(field: str, value: object) -> None:
    with pytest.raises(Refused, match="whole number from 1 to 256"):
        Settings().revised({field: value})


@pytest.mark.parametrize("value", [1, 15, 8193, 64.0])
def test_that_a_chunk_of_prompts_is_a_whole_number_within_its_bounds_or_that_of_the_device(value: object) -> None:
    with pytest.raises(Refused, match="whole number from 16 to 8192, or 0"):
        Settings().revised({"prefill_chunk_tokens": value})
    settings = Settings().revised({"prefill_chunk_tokens": 16})
    assert settings.chunk_tokens("cpu") == settings.chunk_tokens("cuda:0") == 16
    assert (Settings().chunk_tokens("cpu"), Settings().chunk_tokens("cuda:0")) == (128, 1024)


def test_that_an_unknown_setting_is_refused_with_the_names_of_those_there_are() -> None:
    with pytest.raises(Refused, match="max_batch_size") as refusal:
        Settings().revised({"max_batchsize": 8})
    assert refusal.value.field == "max_batchsize"


def test_that_the_bounds_themselves_are_accepted() -> None:
    settings = Settings().revised({"max_batch_size": 256, "batch_wait_timeout_s": 5})
    assert (settings.max_batch_size, settings.batch_wait_timeout_s) == (256, 5.0)
    assert math.copysign(1, Settings().revised({"batch_wait_timeout_s": -0.0}).batch_wait_timeout_s) == 1


def test_that_a_replica_always_admits_a_full_batch_and_a_full_queue() -> None:
    settings = Settings(max_batch_size=256, max_queued_requests=1)
    assert settings.max_ongoing_requests == 257


def test_that_a_batch_that_may_not_leave_small_waits_for_a_stated_time() -> None:
    settings = Settings(batch_wait_timeout_s=0.05)
    assert settings.longest_wait_s == 0.05
    assert settings.revised({"allow_small_batch": False}).longest_wait_s == LONGEST_WAIT_S


@pytest.mark.parametrize("change", [{"max_queued_requests": 15}, {"max_batch_size": 65}])
def test_that_a_batch_that_could_never_fill_is_refused_while_none_may_leave_small(change: dict[str, object]) -> None:
    settings = Settings(max_batch_size=16, max_queued_requests=64, allow_small_batch=False)
    with pytest.raises(Refused, match="could never fill") as refusal:
        settings.revised(change)
    assert refusal.value.field in change, "the refusal stands where the change was made"
    assert settings.revised({**change, "allow_small_batch": True}).allow_small_batch


def test_that_a_refusal_survives_being_sent_to_another_process() -> None:
    refusal = pickle.loads(pickle.dumps(Refused("max_batch_size", "Must be from 1 to 256.")))
    assert (refusal.field, refusal.rule) == ("max_batch_size", "Must be from 1 to 256.")


FIRST = VersionedSettings(version=1, settings=Settings())


async def keep_nothing(_in_force: VersionedSettings) -> None:
    """What a board awaits that no other takes the place of."""


def board_with(
    in_force: VersionedSettings = FIRST, keep: Callable[[VersionedSettings], Awaitable[None]] = keep_nothing
) -> SettingsBoard:
    return SettingsBoard(in_force, keep, clock=now_s)


class Replica:
    """Follows the board as a replica does, taking `delay_s` to adopt a change."""

    def __init__(self, name: str, board: SettingsBoard, delay_s: float = 0.0) -> None:
        self.adopted: list[VersionedSettings] = []
        self.task = asyncio.get_running_loop().create_task(self._follow(name, board, delay_s))

    async def _follow(self, name: str, board: SettingsBoard, delay_s: float) -> None:
        held = board.join(name)
        while True:
            held = await board.follow(name, held)
            await asyncio.sleep(delay_s)
            self.adopted.append(held)


def on_a_board(*delays_s: float, changes: list[dict[str, object]]) -> tuple[list[Replica], list[SettingsChange]]:
    async def run() -> tuple[list[Replica], list[SettingsChange]]:
        board = board_with()
        replicas = [Replica(f"r{i}", board, delay_s) for i, delay_s in enumerate(delays_s)]
        await asyncio.sleep(0.001)
        made = [change for c in changes if (change := await board.revise(c)) is not None]
        for replica in replicas:
            replica.task.cancel()
        return replicas, made

    return run_in_virtual_time(run())


def test_that_a_change_is_in_force_when_the_slowest_replica_has_adopted_it() -> None:
    replicas, (change,) = on_a_board(0.0, 0.03, changes=[{"max_batch_size": 4}])
    assert change.in_force_after_ms == pytest.approx(30)
    assert change.changed_fields == ("max_batch_size",)
    assert [replica.adopted[-1].settings.max_batch_size for replica in replicas] == [4, 4]


def test_that_a_replica_that_hangs_is_not_waited_for_for_ever() -> None:
    _, (change,) = on_a_board(0.0, 1e6, changes=[{"max_batch_size": 4}])
    assert change.in_force_after_ms == pytest.approx(ADOPTION_TIMEOUT_S * 1e3)


def test_that_a_change_that_changes_nothing_makes_no_version() -> None:
    _, changes = on_a_board(0.0, changes=[{"max_batch_size": 16}])
    assert changes == []


def test_that_versions_count_the_changes() -> None:
    _, changes = on_a_board(0.0, changes=[{"max_batch_size": 4}, {"batch_wait_timeout_s": 1}])
    assert [change.version for change in changes] == [2, 3]


def test_that_a_late_follower_is_told_at_once() -> None:
    async def run() -> VersionedSettings:
        board = board_with()
        before = board.in_force
        await board.revise({"max_batch_size": 2})
        async with asyncio.timeout(0.001):
            return await board.follow("late", before)

    assert run_in_virtual_time(run()).settings.max_batch_size == 2


def test_that_a_board_goes_on_from_the_settings_that_it_begins_with() -> None:
    kept = VersionedSettings(version=9, settings=Settings(max_batch_size=3))

    async def run() -> list[VersionedSettings]:
        board = board_with(kept)
        behind = await board.follow("behind", FIRST)
        up_to_date = asyncio.create_task(board.follow("up to date", board.join("up to date")))
        await board.revise({"batch_wait_timeout_s": 1.0})
        return [behind, await up_to_date]

    revised = VersionedSettings(version=10, settings=Settings(max_batch_size=3, batch_wait_timeout_s=1.0))
    assert run_in_virtual_time(run()) == [kept, revised]


def test_that_a_follower_that_holds_what_was_never_in_force_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="was in force here"):
        run_in_virtual_time(board_with().follow("r1", VersionedSettings(version=2, settings=Settings())))


def test_that_a_change_is_kept_before_a_replica_hears_of_it() -> None:
    kept: list[VersionedSettings] = []

    async def keep(in_force: VersionedSettings) -> None:
        await asyncio.sleep(0.3)
        kept.append(in_force)

    async def run() -> list[object]:
        board = board_with(keep=keep)
        follower = asyncio.create_task(board.follow("r1", board.join("r1")))
        revising = asyncio.create_task(board.revise({"max_batch_size": 4}))
        await asyncio.sleep(0.29)
        before = [
            board.in_force,
            follower.done(),
            await board.follow("late", VersionedSettings(version=0, settings=FIRST.settings)),
        ]
        heard = await follower
        revising.cancel()
        return [*before, now_s(), kept == [heard]]

    assert run_in_virtual_time(run()) == [FIRST, False, FIRST, pytest.approx(0.3), True]


def test_that_a_change_that_cannot_be_kept_is_not_in_force_and_takes_no_version() -> None:
    failures = [OSError("the store is gone")]

    async def keep(_in_force: VersionedSettings) -> None:
        if failures:
            raise failures.pop()

    async def run() -> list[VersionedSettings]:
        board = board_with(keep=keep)
        with pytest.raises(OSError, match="the store is gone"):
            await board.revise({"max_batch_size": 4})
        before = board.in_force
        await board.revise({"batch_wait_timeout_s": 1.0})
        return [before, board.in_force]

    after = VersionedSettings(version=2, settings=Settings(batch_wait_timeout_s=1.0))
    assert run_in_virtual_time(run()) == [FIRST, after]


@pytest.mark.parametrize(("adopts_in_s", "until_s"), [(1.5, 1.5), (1e6, 2 * ADOPTION_TIMEOUT_S)], ids=["slow", "hangs"])
def test_that_a_change_that_changes_nothing_waits_a_while_for_what_is_in_force(
    adopts_in_s: float, until_s: float
) -> None:
    async def run() -> tuple[SettingsChange | None, float]:
        board = board_with()
        replica = Replica("r1", board, adopts_in_s)
        await asyncio.sleep(0)
        await board.revise({"max_batch_size": 4})
        assert now_s() == pytest.approx(ADOPTION_TIMEOUT_S), "the replica has not adopted it by then"
        again = await board.revise({"max_batch_size": 4})
        replica.task.cancel()
        return again, now_s()

    assert run_in_virtual_time(run()) == (None, pytest.approx(until_s))


@pytest.mark.parametrize("note", [SettingsBoard.join, SettingsBoard.expect])
def test_that_a_change_waits_for_a_replica_that_has_not_followed_yet(
    note: Callable[[SettingsBoard, str], object],
) -> None:
    async def run() -> float:
        board = board_with()
        note(board, "r1")
        revising = asyncio.create_task(board.revise({"max_batch_size": 4}))
        await asyncio.sleep(0.3)
        held = await board.follow("r1", FIRST)
        following = asyncio.create_task(board.follow("r1", held))
        change = await revising
        following.cancel()
        assert change is not None
        return change.in_force_after_ms

    assert run_in_virtual_time(run()) == pytest.approx(300)


def test_that_a_replica_that_joins_holds_what_is_in_force_and_one_that_is_expected_may_not() -> None:
    async def run() -> list[float]:
        board = board_with()
        board.join("joined")
        await board.revise({"max_batch_size": FIRST.settings.max_batch_size})
        joined_s = now_s()
        board.expect("expected")
        await board.revise({"max_batch_size": FIRST.settings.max_batch_size})
        return [joined_s, now_s()]

    assert run_in_virtual_time(run()) == [0.0, pytest.approx(ADOPTION_TIMEOUT_S)]


def test_that_a_replica_whose_call_comes_twice_is_waited_for_until_it_follows() -> None:
    async def run() -> float:
        board = board_with()
        board.join("r1")
        revising = asyncio.create_task(board.revise({"max_batch_size": 4}))
        await asyncio.sleep(0.3)
        board.join("r1")
        other = Replica("r2", board)  # with each of its calls it is looked whether all hold the change
        change = await revising
        other.task.cancel()
        assert change is not None
        return change.in_force_after_ms

    assert run_in_virtual_time(run()) == pytest.approx(ADOPTION_TIMEOUT_S * 1e3)


def test_that_a_change_waits_for_no_replica_that_is_forgotten() -> None:
    async def run() -> float:
        board = board_with()
        board.join("r1")
        board.forget("r1")
        await board.revise({"max_batch_size": 4})
        return now_s()

    assert run_in_virtual_time(run()) == 0.0
