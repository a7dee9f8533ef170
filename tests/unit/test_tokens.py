"""The look's computed promises: contrast on every ground, and colours that stay apart for colour-blind eyes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from itertools import combinations, pairwise

import pytest

from gui.look.tokens import DARK, FONT_FILES, LIGHT, LINE_WIDTHS, MARK_SIZES, Palette
from gui.series.declaration import OF_WHOLE_BATCHES

Rgb = tuple[float, float, float]
Matrix = tuple[Rgb, Rgb, Rgb]

# Machado, Oliveira and Fernandes 2009, severity 1.0, for linear RGB.
VISIONS: Mapping[str, Matrix] = {
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
NORMAL: Matrix = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
XYZ_OF_RGB: Matrix = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)
WHITE_D65: Rgb = (0.95047, 1.0, 1.08883)

both_palettes = pytest.mark.parametrize("palette", [DARK, LIGHT], ids=lambda palette: palette.name)


@both_palettes
def test_that_text_is_legible_on_every_ground_it_stands_on(palette: Palette) -> None:
    for text, grounds in _texts_and_grounds(palette):
        for ground in grounds:
            assert contrast(text, ground) >= 4.5, f"{text} on {ground}"


@both_palettes
def test_that_data_stand_out_from_the_plot(palette: Palette) -> None:
    for name, colour in _data_colours(palette).items():
        assert contrast(colour, palette.plot) >= 3.0, name


def test_that_the_lowest_contrasts_are_the_ones_the_look_was_chosen_for() -> None:
    lowest = {p.name: min(contrast(t, g) for t, gs in _texts_and_grounds(p) for g in gs) for p in (DARK, LIGHT)}
    assert lowest == {"dark": pytest.approx(4.6, abs=0.1), "light": pytest.approx(4.56, abs=0.1)}
    assert contrast(LIGHT.waiting, LIGHT.plot) == pytest.approx(3.06, abs=0.02)


@pytest.mark.parametrize(("vision", "least"), [("protan", 19.0), ("deutan", 25.0), ("tritan", 24.0)])
def test_that_release_reasons_stay_apart_for_colour_blind_eyes(vision: str, least: float) -> None:
    assert _smallest_difference("release_reasons", vision, OF_WHOLE_BATCHES) >= least - 0.5


@pytest.mark.parametrize("vision", VISIONS)
def test_that_joined_and_left_stay_apart_from_these_and_each_other(vision: str) -> None:
    assert _smallest_difference("release_reasons", vision) >= 10.5


@pytest.mark.parametrize("vision", VISIONS)
def test_that_stages_stay_apart_for_colour_blind_eyes(vision: str) -> None:
    assert _smallest_difference("stages", vision) >= 10.5


@pytest.mark.parametrize("vision", VISIONS)
@both_palettes
def test_that_neighbouring_percentiles_stay_apart_for_colour_blind_eyes(vision: str, palette: Palette) -> None:
    for one, other in pairwise(palette.percentiles.values()):
        assert delta_e(seen_as(one, vision), seen_as(other, vision)) >= 10.5


def test_that_nothing_is_told_by_hue_alone() -> None:
    assert len(set(MARK_SIZES.values())) == len(MARK_SIZES)
    assert list(LINE_WIDTHS.values()) == sorted(LINE_WIDTHS.values(), reverse=True)
    assert len(set(LINE_WIDTHS.values())) == 3


@both_palettes
def test_that_chrome_is_grey_and_data_are_not(palette: Palette) -> None:
    chrome = ("plot", "panel", "raised", "hover", "line", "border", "track", "grid", "t1", "t2", "t3", "primary")
    assert max(_chroma(getattr(palette, name)) for name in chrome) < 12
    assert min(_chroma(colour) for colour in palette.release_reasons.values()) > 30


def test_that_the_three_weights_of_the_font_are_shipped() -> None:
    from gui.look.theme import ASSETS

    assert [name for name in FONT_FILES if not (ASSETS / name).is_file()] == []
    assert "SIL OPEN FONT LICENSE" in (ASSETS / "OFL.txt").read_text(encoding="utf-8")


def test_that_delta_e_agrees_with_the_published_pairs() -> None:
    # Sharma, Wu and Dalal 2005, table 1, pairs 1, 7, 17 and 25.
    pairs = [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
    ]
    for one, other, expected in pairs:
        assert delta_e(one, other) == pytest.approx(expected, abs=1e-4)


# What stands on what ------------------------------------------------------------------------------------------------


def _texts_and_grounds(p: Palette) -> list[tuple[str, tuple[str, ...]]]:
    everywhere = (p.plot, p.panel, p.raised, p.segment)
    return [
        (p.t1, (*everywhere, p.hover, p.segment_selected)),
        (p.t2, (*everywhere, p.hover)),
        (p.t3, (*everywhere, p.hover)),
        (p.primary_text, (p.primary,)),
        (p.error, (p.plot, p.panel, p.error_ground)),
    ]


def _data_colours(p: Palette) -> dict[str, str]:
    return {**p.release_reasons, **p.stages, **p.percentiles, "error": p.error}


def _smallest_difference(group: str, vision: str, names: Collection[str] | None = None) -> float:
    """Of the colours of a group, or of some of them."""
    groups = (getattr(palette, group) for palette in (DARK, LIGHT))
    return min(
        delta_e(seen_as(one, vision), seen_as(other, vision))
        for colours in groups
        for one, other in combinations([colours[name] for name in names or colours], 2)
    )


# Colour -------------------------------------------------------------------------------------------------------------


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def seen_as(colour: str, vision: str) -> Rgb:
    """CIELAB of `colour` as an eye with that deficiency sees it."""
    return _lab(_times(VISIONS[vision], _linear(colour)))


def delta_e(one: Rgb, other: Rgb) -> float:
    """CIEDE2000 colour difference of two CIELAB colours."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean_chroma = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * math.sqrt(mean_chroma**7 / (mean_chroma**7 + 25**7))
    c1, c2 = math.hypot(a1 * stretch, b1), math.hypot(a2 * stretch, b2)
    h1, h2 = (math.degrees(math.atan2(b, a * stretch)) % 360 for a, b in ((a1, b1), (a2, b2)))
    hue_step = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    d_l, d_c = l2 - l1, c2 - c1
    d_h = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(hue_step / 2))
    light, c = (l1 + l2) / 2, (c1 + c2) / 2
    h = h1 + h2 if c1 * c2 == 0 else (h1 + hue_step / 2) % 360
    t = (
        1
        - 0.17 * math.cos(math.radians(h - 30))
        + 0.24 * math.cos(math.radians(2 * h))
        + 0.32 * math.cos(math.radians(3 * h + 6))
        - 0.20 * math.cos(math.radians(4 * h - 63))
    )
    s_l = 1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2)
    s_c, s_h = 1 + 0.045 * c, 1 + 0.015 * c * t
    turn = 30 * math.exp(-(((h - 275) / 25) ** 2))
    r_t = -2 * math.sqrt(c**7 / (c**7 + 25**7)) * math.sin(math.radians(2 * turn))
    x, y, z = d_l / s_l, d_c / s_c, d_h / s_h
    return math.sqrt(x * x + y * y + z * z + r_t * y * z)


def _linear(colour: str) -> Rgb:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return _expand(red), _expand(green), _expand(blue)


def _expand(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _luminance(colour: str) -> float:
    return _times(XYZ_OF_RGB, _linear(colour))[1]


def _times(matrix: Matrix, vector: Rgb) -> Rgb:
    x, y, z = (sum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix)
    return x, y, z


def _lab(linear: Rgb) -> Rgb:
    clipped = (min(1.0, max(0.0, linear[0])), min(1.0, max(0.0, linear[1])), min(1.0, max(0.0, linear[2])))
    xyz = _times(XYZ_OF_RGB, clipped)
    x, y, z = (_cube_root(value / white) for value, white in zip(xyz, WHITE_D65, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _cube_root(value: float) -> float:
    return value ** (1 / 3) if value > (6 / 29) ** 3 else value / (3 * (6 / 29) ** 2) + 4 / 29


def _chroma(colour: str) -> float:
    _, a, b = _lab(_times(NORMAL, _linear(colour)))
    return math.hypot(a, b)
