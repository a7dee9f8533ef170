"""The plots on a screen of high density: as sharp as it is, and otherwise as on any other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PySide6.QtGui import QColor, QImage

from gui.look.tokens import DARK, RUNNING_FILL_ALPHA
from gui.plots.columns import dotted
from gui.plots.paint import blended

PROGRAM = Path(__file__).with_name("picture_plots.py")
Picture = NDArray[np.uint32]


def pictures(folder: Path, scale: int) -> dict[str, Picture]:
    folder.mkdir()
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "QT_SCALE_FACTOR": str(scale)}
    subprocess.run([sys.executable, PROGRAM, folder], env=environment, check=True, timeout=120, capture_output=True)
    return {path.stem: read(path) for path in folder.iterdir()}


def read(path: Path) -> Picture:
    image = QImage(str(path)).convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(image.constBits(), np.uint32).reshape(image.height(), image.width()).copy()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Picture]:
    return pictures(tmp_path_factory.mktemp("plain") / "plots", 1)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Picture]:
    return pictures(tmp_path_factory.mktemp("dense") / "plots", 2)


def edges(picture: Picture, ink: str, axis: int) -> set[int]:
    """Where this ink begins next to the ground, whether that is an odd place (1) or an even one (0)."""
    before, after = np.split(picture, [-1], axis)[0], np.split(picture, [1], axis)[1]
    begins = (before == QColor(DARK.plot).rgb()) & (after == QColor(ink).rgb())
    places = np.nonzero(begins)[axis] + 1
    return set((places % 2).tolist())


@pytest.mark.parametrize(
    ("plot", "ink", "axis"),
    [
        ("timeline", DARK.timeout, 1),
        ("timeline", DARK.waiting, 1),
        ("queue-depth", DARK.waiting, 0),
        ("queue-depth", DARK.waiting, 1),
        ("latency-histogram", blended(DARK.running, DARK.plot, RUNNING_FILL_ALPHA).name(), 0),
        ("wasted-work", blended(DARK.t2, DARK.plot, DARK.fill_alpha).name(), 1),
    ],
)
def test_that_bars_and_areas_end_at_the_pixels_of_the_screen(
    dense: dict[str, Picture], plot: str, ink: str, axis: int
) -> None:
    assert 1 in edges(dense[plot], ink, axis), "between two pixels of the widget"


def test_that_nothing_else_changes(plain: dict[str, Picture], dense: dict[str, Picture]) -> None:
    assert plain.keys() == dense.keys()
    for name, picture in plain.items():
        height, width = picture.shape
        assert dense[name].shape == (2 * height, 2 * width)
        fine = dense[name].view(np.uint8).reshape(height, 2, width, 2, 4).mean(axis=(1, 3))
        differing = np.abs(fine - picture.view(np.uint8).reshape(height, width, 4)).max(axis=2) > 64
        assert differing.mean() < 0.03, name


def test_that_points_have_as_many_pixels_as_the_screen_gives_them() -> None:
    points = dotted(np.array([10]), np.array([10]), 21, 21, QColor("#FFFFFF"), ratio=2.0)
    assert (points[10] > 0).sum() == 7
    assert (points == points.T).all()
