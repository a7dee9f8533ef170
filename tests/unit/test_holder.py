"""Hold as a part of the service: it reads the hub's telemetry, and moves the hub's settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pytest
from msgspec.structs import replace

from service.messages.objectives import Objectives
from service.messages.settings import LONGEST_REASON, SettingError, Settings, VersionedSettings
from service.replica.holder import Holder
from tests.synthetic_run import Step, SyntheticRun

SMALL = Settings(max_batch_size=2)
GROWS = SyntheticRun(30.0, (Step(0.0, 6.4, SMALL),))
CALM = SyntheticRun(30.0, (Step(0.0, 1.0, Settings()),))
IN_TWO_SECONDS = Objectives(latency_s=2.0)


@dataclass
class ToldHub:
    """Tells of a run that never happened, and keeps what it was changed to."""

    run: SyntheticRun
    fails: int = 0  # calls that fail at first
    refuses: bool = False
    others: Settings | None = None  # that somebody else has put in force meanwhile
    changes: list[tuple[Mapping[str, object], str]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_told: asyncio.Event = field(default_factory=asyncio.Event)

    async def frames_after(self, _reader: str, number: int | None) -> tuple[int, list[bytes]] | None:
        if self.fails:
            self.fails -= 1
            raise ConnectionError("the hub is being restarted")
        if number is not None:
            self.is_told.set()
            await asyncio.Event().wait()
        frames = [telemetry for telemetry, _ in self.run.frames()]
        return frames[-1].number, [msgspec.json.encode(each) for each in frames]

    async def revise(
        self, call: str, changes: dict[str, object], reason: str, upon: int | None
    ) -> VersionedSettings | SettingError:
        assert call
        assert upon == next(telemetry for telemetry, _ in self.run.frames()).in_force.version
        self.changes.append((changes, reason))
        self.changed.set()
        if self.refuses:
            return SettingError("max_batch_size", "no")
        settings = Settings(**changes) if self.others is None else self.others  # type: ignore[arg-type]
        return VersionedSettings(version=2, settings=settings)


async def test_that_it_moves_settings_that_break_the_objective_and_says_why() -> None:
    hub = ToldHub(GROWS)
    holder = Holder(hub, IN_TWO_SECONDS)
    await hub.changed.wait()
    changes, reason = hub.changes[0]
    assert changes["max_batch_size"] == 4, "at most doubled"
    assert reason.startswith("Hold: rate ")
    assert len(reason) <= LONGEST_REASON
    await holder.check_health()


async def test_that_it_leaves_settings_that_keep_it() -> None:
    hub = ToldHub(CALM)
    Holder(hub, Objectives(latency_s=10.0))
    await hub.is_told.wait()
    assert hub.changes == []


@pytest.mark.parametrize(
    ("others", "change"), [(replace(SMALL, max_batch_size=3), "max_batch_size 2 → 3"), (SMALL, "and changed them back")]
)
async def test_that_settings_that_somebody_changes_while_it_chooses_a_move_stay(
    caplog: pytest.LogCaptureFixture, others: Settings, change: str
) -> None:
    hub = ToldHub(GROWS, others=others)
    Holder(hub, IN_TWO_SECONDS)
    await hub.is_told.wait()
    assert len(hub.changes) == 1, "and it makes no other move"
    assert f"Somebody else changed settings ({change}): Hold leaves them alone." in caplog.text


@pytest.mark.parametrize("trouble", [{"fails": 1}, {"refuses": True}])
async def test_that_a_hub_that_fails_or_refuses_does_not_end_it(trouble: dict[str, int]) -> None:
    hub = ToldHub(GROWS, **trouble)  # type: ignore[arg-type]
    holder = Holder(hub, IN_TWO_SECONDS)
    await hub.changed.wait()
    await hub.is_told.wait()
    await holder.check_health()
