"""The benchmark beside other servers: a peer that cannot run is named with its reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.benchmarks.against_peers import figures
from tests.benchmarks.peers import Peer, PeerError, installed, main


def peer_that_runs(program: str) -> Peer:
    return Peer("peer", (), lambda place: [sys.executable, "-c", program])


def test_that_a_peer_without_an_environment_is_not_installed(tmp_path: Path) -> None:
    with (
        pytest.raises(PeerError, match="not installed: run python -m"),
        installed(tmp_path, peer_that_runs("")).served(),
    ):
        pass


def test_that_the_last_line_of_a_peer_that_ends_is_its_reason(tmp_path: Path) -> None:
    (tmp_path / "peer").mkdir()
    peer = peer_that_runs("print('loading'); raise SystemExit('no such model')")
    with pytest.raises(PeerError, match="not started: no such model"), installed(tmp_path, peer).served():
        pass


def test_that_a_failed_installation_leaves_its_reason_and_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = Peer("peer", (str(tmp_path / "missing.whl"),), lambda place: [])
    monkeypatch.setattr("tests.benchmarks.peers.PEERS", (peer,))
    monkeypatch.setattr(sys, "argv", ["peers", str(tmp_path)])
    assert main() == 1
    assert "peer: not installed: ERROR:" in capsys.readouterr().out
    with pytest.raises(PeerError, match=r"not installed: ERROR: .*missing\.whl"), installed(tmp_path, peer).served():
        pass


def test_that_figures_are_judged_under_many_users_and_under_arrivals() -> None:
    judged = {figure.load for figure in figures(4.0) if figure.wanted is not None}
    loads = ("16 users", "32 users", "Poisson 4/s")
    assert judged == {f"{load}, {answer}" for load in loads for answer in ("whole", "streamed")}


def test_that_ours_is_held_against_the_best_of_the_others() -> None:
    speed = next(figure for figure in figures(4.0) if figure.load == "16 users, whole")
    assert speed.verdict(speed.ratio({"ours": 120.0, "slow": 50.0, "fast": 100.0})) == "1.20 (≥ 1.1: holds)"
    latency = next(figure for figure in figures(4.0) if figure.unit == "p95 (s)")
    assert latency.verdict(latency.ratio({"ours": 1.0, "slow": 2.0, "fast": 0.5})) == "2.00 (≤ 1: FAILS)"
