from __future__ import annotations

import sys

import pytest

from gui import system_libraries
from gui.system_libraries import COMMON, WAYLAND, XCB, complaint, is_loadable


def lacking(*libraries: str):  # type: ignore[no-untyped-def]
    return lambda library: library not in libraries


def test_that_nothing_is_said_where_nothing_is_missing() -> None:
    for environ in ({"DISPLAY": ":0"}, {"WAYLAND_DISPLAY": "w"}, {"QT_QPA_PLATFORM": "offscreen"}):
        assert complaint(environ, lacking()) is None


@pytest.mark.parametrize("library", XCB)
def test_that_each_library_of_xcb_is_named_with_its_package(library: str) -> None:
    sentence = complaint({"DISPLAY": ":0"}, lacking(library))

    assert sentence is not None
    assert library in sentence
    assert f"sudo apt install {XCB[library]}" in sentence
    assert [other for other in XCB if other in sentence.split()] == [library]


def test_that_without_a_screen_the_xcb_ones_are_not_asked_for() -> None:
    assert complaint({"QT_QPA_PLATFORM": "offscreen"}, lacking(*XCB, *WAYLAND)) is None
    assert complaint({"QT_QPA_PLATFORM": "offscreen:size=1x1"}, lacking(*XCB, *WAYLAND)) is None


@pytest.mark.parametrize("library", COMMON)
def test_that_what_every_platform_needs_is_asked_for_everywhere(library: str) -> None:
    sentence = complaint({"QT_QPA_PLATFORM": "offscreen"}, lacking(library))

    assert sentence is not None
    assert COMMON[library] in sentence


def test_that_under_wayland_either_platform_will_do() -> None:
    both = {"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}

    assert complaint(both, lacking(*XCB)) is None
    assert complaint(both, lacking(*WAYLAND)) is None
    assert complaint(both, lacking(*XCB, *WAYLAND)) is not None
    assert complaint({"WAYLAND_DISPLAY": "wayland-0"}, lacking(*WAYLAND)) is not None


def test_that_a_machine_without_a_screen_is_told_so() -> None:
    sentence = complaint({}, lacking())

    assert sentence is not None
    assert "QT_QPA_PLATFORM=offscreen" in sentence


def test_that_the_program_ends_with_the_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setitem(system_libraries.COMMON, "libdoes-not-exist.so.9", "libdoes-not-exist9")  # type: ignore[misc]

    with pytest.raises(SystemExit) as end:
        system_libraries.exit_if_missing({"QT_QPA_PLATFORM": "offscreen"})

    assert end.value.code == 1
    assert "libdoes-not-exist9" in capsys.readouterr().err


def test_that_a_library_that_is_not_there_cannot_be_loaded() -> None:
    assert not is_loadable("libdoes-not-exist.so.9")
