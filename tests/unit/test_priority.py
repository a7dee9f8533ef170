from __future__ import annotations

from pathlib import Path

from service.launch.priority import yield_to_other_sessions


def test_that_the_session_is_made_nice_where_linux_shares_by_sessions(tmp_path: Path) -> None:
    autogroup = tmp_path / "autogroup"
    autogroup.write_text("/autogroup-5 nice 0\n")

    yield_to_other_sessions(autogroup)

    assert autogroup.read_text() == "10"


def test_that_a_system_without_autogroups_is_left_alone(tmp_path: Path) -> None:
    yield_to_other_sessions(tmp_path / "none")

    assert list(tmp_path.iterdir()) == []
