"""What holds of the settings of all replicas, whatever changes them meanwhile, and however slow a replica is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from service.messages.settings import SettingError, Settings, SettingsChange, VersionedSettings
from service.replica.settings_board import ADOPTION_TIMEOUT_S, FOLLOW_TIMEOUT_S, SettingsBoard
from tests.virtual_time import now_s, run_in_virtual_time

CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "max_batch_size": st.integers(0, 20),  # 0 is refused
        "batch_wait_timeout_s": st.sampled_from([0.0, 0.05, 1.0]),
        "formation": st.sampled_from(["late", "early", "continuous"]),
        "allow_small_batch": st.booleans(),
    },
)
DELAYS_S = st.sampled_from([0.0, 0.001, 0.3, 0.9, 1.1, 4.0, 12.0])

KEEPS_IN_S = st.sampled_from([0.0, 0.001, 0.3])

LONG_S = 100 * FOLLOW_TIMEOUT_S


Answer = TypeVar("Answer")

START = VersionedSettings(version=1, settings=Settings())


class Boards:
    """A board at a time; one that takes the place of another begins with what was kept last, and expects its replicas.

    Attributes:
        kept: everything that was, in this order.
    """

    def __init__(self, keeps_in_s: float, replicas: list[str]) -> None:
        self.kept = [START]
        self._keeps_in_s = keeps_in_s
        self._replicas = replicas
        self._calls: set[asyncio.Task[Any]] = set()
        self.board = SettingsBoard(START, self._keep, now_s)

    async def call(self, make: Callable[[SettingsBoard], Coroutine[Any, Any, Answer]]) -> Answer:
        """What the board answers; raises `ConnectionError` if another takes its place before it does."""
        call = asyncio.create_task(make(self.board))
        self._calls.add(call)
        await asyncio.wait([call])
        self._calls.remove(call)
        if call.cancelled():
            raise ConnectionError("the board has ended")
        return call.result()

    async def restart_at(self, times_s: list[float]) -> None:
        for at_s in sorted(times_s):
            await asyncio.sleep(at_s - now_s())
            for call in self._calls:
                call.cancel()
            self.board = SettingsBoard(self.kept[-1], self._keep, now_s)
            for replica in self._replicas:
                self.board.expect(replica)

    async def _keep(self, in_force: VersionedSettings) -> None:
        """It is kept halfway, so that a board may end before it is, and after it is and before it knows."""
        await asyncio.sleep(self._keeps_in_s / 2)
        self.kept.append(in_force)
        await asyncio.sleep(self._keeps_in_s / 2)


@dataclass
class Replica:
    """Follows the board from a moment on; takes its time with what it hears, and may stop to listen."""

    name: str
    begins_s: float
    adopts_in_s: float
    silent_from_s: float
    held: VersionedSettings
    heard: list[VersionedSettings] = field(default_factory=list)

    async def follow(self, boards: Boards) -> None:
        await asyncio.sleep(self.begins_s)
        while now_s() < self.silent_from_s:
            try:
                news = await boards.call(lambda board: board.follow(self.name, self.held))
            except ConnectionError:
                continue
            self.heard.append(news)
            if news != self.held:
                await asyncio.sleep(self.adopts_in_s)
            self.held = news


@dataclass
class Revision:
    at_s: float
    changes: dict[str, Any]
    took_s: float = 0.0
    answer: SettingsChange | SettingError | ConnectionError | None = None

    async def revise(self, boards: Boards) -> None:
        await asyncio.sleep(self.at_s)
        began_s = now_s()
        try:
            self.answer = await boards.call(lambda board: board.revise(self.changes))
        except (SettingError, ConnectionError) as error:
            self.answer = error
        self.took_s = now_s() - began_s


REPLICAS = st.lists(st.tuples(DELAYS_S, DELAYS_S, st.sampled_from([0.0, 2.0, 1e9])), max_size=3)
REVISIONS = st.lists(st.builds(Revision, at_s=DELAYS_S, changes=CHANGES), max_size=8)


async def boards_after(
    replicas: list[Replica], revisions: list[Revision], keeps_in_s: float, restarts_s: list[float]
) -> Boards:
    """The boards when all revisions were answered and every replica that listens has had the time to hear of them."""
    boards = Boards(keeps_in_s, [replica.name for replica in replicas])
    followers = [asyncio.create_task(replica.follow(boards)) for replica in replicas]
    await asyncio.gather(boards.restart_at(restarts_s), *(revision.revise(boards) for revision in revisions))
    await asyncio.sleep(LONG_S)
    for follower in followers:
        assert not follower.done() or follower.exception() is None
        follower.cancel()
    return boards


@settings(deadline=None)
@given(replicas=REPLICAS, revisions=REVISIONS, keeps_in_s=KEEPS_IN_S)
def test_that_changes_are_a_chain_without_gaps_that_every_replica_follows_forward(
    replicas: list[tuple[float, float, float]], revisions: list[Revision], keeps_in_s: float
) -> None:
    followers = [Replica(f"r{number}", *each, held=START) for number, each in enumerate(replicas)]
    revisions = [Revision(each.at_s, each.changes) for each in revisions]
    boards = run_in_virtual_time(boards_after(followers, revisions, keeps_in_s, restarts_s=[]))

    made = sorted(
        (revision.answer for revision in revisions if isinstance(revision.answer, SettingsChange)),
        key=lambda change: change.version,
    )
    assert [change.version for change in made] == list(range(2, len(made) + 2))
    chain = [START.settings, *(change.settings for change in made)]
    assert [change.previous for change in made] == chain[:-1]
    assert boards.kept == [VersionedSettings(version=i + 1, settings=each) for i, each in enumerate(chain)]
    assert boards.board.in_force == boards.kept[-1]
    for revision in revisions:
        assert isinstance(revision.answer, SettingError) == (revision.changes.get("max_batch_size") == 0)
        longest_s = (keeps_in_s + ADOPTION_TIMEOUT_S) * len(revisions)
        assert revision.took_s <= longest_s + 1e-9, "one after the other, each so long"
    for replica in followers:
        versions = [each.version for each in replica.heard]
        assert versions == sorted(versions)
        assert all(chain[each.version - 1] == each.settings for each in replica.heard)
        assert replica.silent_from_s < 1e9 or replica.held == boards.board.in_force


@settings(deadline=None)
@given(
    replicas=REPLICAS,
    revisions=REVISIONS,
    keeps_in_s=KEEPS_IN_S,
    restarts_s=st.lists(st.sampled_from([0.0, 0.0005, 0.1, 0.2, 0.31, 1.0, 1.05, 4.1, 12.25]), max_size=3),
)
def test_that_a_board_that_takes_the_place_of_another_never_counts_back_and_every_replica_follows_it(
    replicas: list[tuple[float, float, float]],
    revisions: list[Revision],
    keeps_in_s: float,
    restarts_s: list[float],
) -> None:
    followers = [Replica(f"r{number}", *each, held=START) for number, each in enumerate(replicas)]
    revisions = [Revision(each.at_s, each.changes) for each in revisions]
    boards = run_in_virtual_time(boards_after(followers, revisions, keeps_in_s, restarts_s))

    assert [each.version for each in boards.kept] == list(range(1, len(boards.kept) + 1))
    assert boards.board.in_force == boards.kept[-1]
    for revision in revisions:
        if isinstance(revision.answer, SettingsChange):
            assert boards.kept[revision.answer.version - 1].settings == revision.answer.settings
    for replica in followers:
        versions = [each.version for each in replica.heard]
        assert versions == sorted(versions)
        assert all(boards.kept[each.version - 1] == each for each in replica.heard), "what it hears is kept"
        assert replica.silent_from_s < 1e9 or replica.held == boards.board.in_force


SETTINGS = st.builds(
    Settings,
    formation=st.sampled_from(["late", "early", "continuous"]),
    max_batch_size=st.integers(1, 256),
    batch_wait_timeout_s=st.floats(0, 5),
    max_queued_requests=st.integers(256, 4096),
    allow_small_batch=st.booleans(),
    max_batch_tokens=st.integers(0, 100_000),
)


@given(before=SETTINGS, after=SETTINGS)
def test_that_what_is_revised_is_as_named_and_the_rest_as_it_was(before: Settings, after: Settings) -> None:
    fields = msgspec.to_builtins(after)
    assert before.revised({}) == before
    assert before.revised(fields) == after
    for name, value in fields.items():
        one = before.revised({name: value})
        assert msgspec.to_builtins(one) == msgspec.to_builtins(before) | {name: value}


@given(before=SETTINGS)
def test_that_settings_are_the_same_after_they_were_sent(before: Settings) -> None:
    assert msgspec.json.decode(msgspec.json.encode(before), type=Settings) == before
