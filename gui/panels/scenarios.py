"""Loads by what they stand for: tiles with a name, its share of the capacity, and how requests arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QGridLayout, QSizePolicy, QStyle, QStyleOptionButton, QStylePainter, QWidget

from gui.look import tokens
from gui.look.theme import colour, current, font
from gui.widgets.buttons import Button
from gui.widgets.labels import draw_text
from service.messages.load import Length, Pattern

COLUMNS = 3


@dataclass(frozen=True)
class Scenario:
    """A load that is run by its name.

    Attributes:
        share: what is stressed of it, a share of the capacity or a number of users; empty where that is not known.
        words: what more it asks for.
        max_tokens: ``None`` for what the panel of the load says.
        bars: how many requests arrive in each part of it, of the most.
    """

    title: str
    share: str
    words: str
    pattern: Pattern
    bars: tuple[float, ...]
    max_tokens: Length | None = None

    @property
    def said(self) -> str:
        return f"{self.share} {self.words}".strip()


class ScenarioTiles(QWidget):
    """A click on a tile wants its scenario."""

    wanted = Signal(object)  # a `Scenario`

    def __init__(self) -> None:
        super().__init__()
        self._tiles: list[ScenarioTile] = []
        self._grid = QGridLayout()
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(tokens.GAP_2)
        for number in range(COLUMNS):
            self._grid.setColumnStretch(number, 1)
        self.setLayout(self._grid)

    def show_scenarios(self, scenarios: Sequence[Scenario]) -> None:
        while len(self._tiles) < len(scenarios):
            tile = ScenarioTile()
            tile.clicked.connect(lambda _checked=False, tile=tile: self.wanted.emit(tile.scenario))
            self._grid.addWidget(tile, len(self._tiles) // COLUMNS, len(self._tiles) % COLUMNS)
            self._tiles.append(tile)
        for tile, scenario in zip(self._tiles, scenarios, strict=False):
            tile.show_scenario(scenario)
        for tile in self._tiles[len(scenarios) :]:
            tile.hide()


class ScenarioTile(Button):
    def __init__(self) -> None:
        super().__init__()
        self.scenario: Scenario | None = None
        self.setFixedHeight(tokens.HEIGHT_SCENARIO)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def show_scenario(self, scenario: Scenario) -> None:
        if scenario != self.scenario:
            self.scenario = scenario
            self.setAccessibleName(f"{scenario.title}: {scenario.said}")
            self.setToolTip(f"Run this load: {scenario.said}")
            self.update()
        self.show()

    def sizeHint(self) -> QSize:
        return QSize(tokens.WIDTH_SIDE_MIN, tokens.HEIGHT_SCENARIO)

    def minimumSizeHint(self) -> QSize:
        return QSize(tokens.WIDTH_NUMBER, tokens.HEIGHT_SCENARIO)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, option = QStylePainter(self), QStyleOptionButton()
        self.initStyleOption(option)
        option.text = ""
        painter.drawControl(QStyle.ControlElement.CE_PushButton, option)
        if self.scenario is None:
            return
        palette, inside = current(), self.rect().adjusted(tokens.GAP_3, tokens.GAP_2, -tokens.GAP_3, -tokens.GAP_2)
        ink = palette.t1 if self.isEnabled() else palette.t3
        bars = self._paint_bars(painter, inside, palette.t3)
        upper = QRect(inside.left(), inside.top(), bars - inside.left() - tokens.GAP_2, inside.height() // 2)
        lower = upper.translated(0, upper.height())
        medium = font(tokens.FONT_TEXT, tokens.WEIGHT_MEDIUM)
        heavy, light = font(tokens.FONT_CAPTION, tokens.WEIGHT_BOLD), font(tokens.FONT_CAPTION)
        draw_text(painter, upper, _elided(self.scenario.title, medium, upper.width()), medium, ink)
        draw_text(painter, lower, self.scenario.share, heavy, ink)
        left = QFontMetrics(heavy).horizontalAdvance(f"{self.scenario.share} ") if self.scenario.share else 0
        rest = lower.adjusted(left, 0, 0, 0)
        words = _elided(self.scenario.words, light, rest.width())
        draw_text(painter, rest, words, light, palette.t2 if self.isEnabled() else palette.t3)

    def _paint_bars(self, painter: QPainter, inside: QRect, ink: str) -> int:
        """Arrivals as bars at the right; returns where they begin."""
        assert self.scenario is not None
        step, height = tokens.SCENARIO_BAR + tokens.HAIRLINE, inside.height() - tokens.GAP_2
        left = inside.right() - step * len(self.scenario.bars)
        bottom = inside.center().y() + height / 2
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour(ink))
        for number, share in enumerate(self.scenario.bars):
            tall = share * height
            painter.drawRect(QRectF(left + number * step, bottom - tall, tokens.SCENARIO_BAR, tall))
        return left


def _elided(text: str, used: QFont, room: int) -> str:
    return QFontMetrics(used).elidedText(text, Qt.TextElideMode.ElideRight, max(room, 0))
