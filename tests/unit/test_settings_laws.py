"""What holds of the settings of all replicas, whatever changes them meanwhile, and however slow a replica is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

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

LONG_S = 100 * FOLLOW_TIMEOUT_S


@dataclass
class Replica:
    """Follows the board from a moment on; takes its time with what it hears, and may stop to listen."""

    name: str
    begins_s: float
    adopts_in_s: float
    silent_from_s: float
    held: VersionedSettings
    heard: list[VersionedSettings] = field(default_factory=list)

    async def follow(self, board: SettingsBoard) -> None:
        await asyncio.sleep(self.begins_s)
        while now_s() < self.silent_from_s:
            news = await board.follow(self.name, self.held)
            self.heard.append(news)
            if news != self.held:
                await asyncio.sleep(self.adopts_in_s)
            self.held = news


@dataclass
class Revision:
    at_s: float
    changes: dict[str, Any]
    took_s: float = 0.0
    answer: SettingsChange | SettingError | None = None

    async def revise(self, board: SettingsBoard) -> None:
        await asyncio.sleep(self.at_s)
        began_s = now_s()
        try:
            self.answer = await board.revise(self.changes)
        except SettingError as error:
            self.answer = error
        self.took_s = now_s() - began_s


REPLICAS = st.lists(st.tuples(DELAYS_S, DELAYS_S, st.sampled_from([0.0, 2.0, 1e9])), max_size=3)
REVISIONS = st.lists(st.builds(Revision, at_s=DELAYS_S, changes=CHANGES), max_size=8)


async def board_after(replicas: list[Replica], revisions: list[Revision]) -> SettingsBoard:
    """The board when all revisions were answered and every replica that listens has had the time to hear of them."""
    board = SettingsBoard(Settings(), clock=now_s)
    followers = [asyncio.create_task(replica.follow(board)) for replica in replicas]
    await asyncio.gather(*(revision.revise(board) for revision in revisions))
    await asyncio.sleep(LONG_S)
    for follower in followers:
        follower.cancel()
    return board


@settings(deadline=None)
@given(replicas=REPLICAS, revisions=REVISIONS)
def test_that_changes_are_a_chain_without_gaps_that_every_replica_follows_forward(
    replicas: list[tuple[float, float, float]], revisions: list[Revision]
) -> None:
    start = VersionedSettings(version=1, settings=Settings())
    followers = [Replica(f"r{number}", *each, held=start) for number, each in enumerate(replicas)]
    revisions = [Revision(each.at_s, each.changes) for each in revisions]
    board = run_in_virtual_time(board_after(followers, revisions))

    made = sorted(
        (revision.answer for revision in revisions if isinstance(revision.answer, SettingsChange)),
        key=lambda change: change.version,
    )
    assert [change.version for change in made] == list(range(2, len(made) + 2))
    chain = [start.settings, *(change.settings for change in made)]
    assert [change.previous for change in made] == chain[:-1]
    assert board.in_force == VersionedSettings(version=len(chain), settings=chain[-1])
    for revision in revisions:
        assert isinstance(revision.answer, SettingError) == (revision.changes.get("max_batch_size") == 0)
        assert revision.took_s <= ADOPTION_TIMEOUT_S * len(revisions) + 1e-9, "one after the other, each so long"
    for replica in followers:
        versions = [each.version for each in replica.heard]
        assert versions == sorted(versions)
        assert all(chain[each.version - 1] == each.settings for each in replica.heard)
        assert replica.silent_from_s < 1e9 or replica.held == board.in_force


@given(held=st.integers(1, 50))
def test_that_a_board_that_was_restarted_learns_from_the_replicas_and_never_counts_back(held: int) -> None:
    async def learn() -> int:
        board = SettingsBoard(Settings(), clock=now_s)
        following = asyncio.create_task(
            board.follow("r1", VersionedSettings(version=held, settings=Settings(max_batch_size=7)))
        )
        await asyncio.sleep(0)
        learned = board.in_force.version
        await board.revise({"max_batch_size": 9})
        assert (await following).version == board.in_force.version == learned + 1
        return learned

    assert run_in_virtual_time(learn()) == held


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
