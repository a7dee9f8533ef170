"""Light and dark: fonts, palette, style sheet and focus ring, all made from `gui.look.tokens`."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, TypeAlias

from PySide6.QtCore import QEvent, QObject, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QFont, QFontDatabase, QIcon, QPainter, QPaintEvent, QPalette, QPen
from PySide6.QtWidgets import QApplication, QFocusFrame, QProxyStyle, QStyle, QStyleHintReturn, QStyleOption, QWidget

from gui.look import tokens
from gui.look.stylesheet import style_sheet
from gui.look.tokens import DARK, LIGHT, Palette
from service.messages.pipes import SOURCE_ROOT

Preference: TypeAlias = Literal["system", "dark", "light"]

ASSETS: Final = SOURCE_ROOT / "assets"
ICON: Final = ASSETS / "desktop" / "batchscope.svg"

KEYBOARD_REASONS: Final = frozenset(
    {Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason, Qt.FocusReason.ShortcutFocusReason}
)
_PALETTE_PROPERTY: Final = "batchscope_palette"
_SCALE_PROPERTY: Final = "batchscope_type_scale"


class Theme(QObject):
    """The palette in force; follows the system until the user chooses."""

    changed = Signal(object)  # the new Palette, once everything wears it

    def __init__(self, app: QApplication, preference: Preference = "system", parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._app = app
        self._preference: Preference = preference
        for name in tokens.FONT_FILES:
            QFontDatabase.addApplicationFont(str(ASSETS / name))
        app.setWindowIcon(QIcon(str(ICON)))
        app.setStyle("Fusion")
        self._palette = self._wanted()
        self._type_scale = 1.0
        apply(app, self._palette)
        app.styleHints().colorSchemeChanged.connect(self._adopt_wanted)

    @property
    def palette(self) -> Palette:
        return self._palette

    @property
    def preference(self) -> Preference:
        return self._preference

    def set_preference(self, preference: Preference) -> None:
        self._preference = preference
        self._adopt_wanted()

    @property
    def is_large(self) -> bool:
        """Whether the type is large enough for a projector."""
        return self._type_scale > 1.0

    def set_large(self, is_large: bool) -> None:
        """Make the type large enough for a projector, or as it was."""
        if is_large != self.is_large:
            self._type_scale = tokens.TYPE_SCALE_LARGE if is_large else 1.0
            apply(self._app, self._palette, self._type_scale)
            self.changed.emit(self._palette)

    def toggle(self) -> None:
        """The other one of light and dark, from now on whatever the system wears."""
        self.set_preference("light" if self._palette.is_dark else "dark")

    def _wanted(self) -> Palette:
        if self._preference == "system":
            return DARK if self._app.styleHints().colorScheme() == Qt.ColorScheme.Dark else LIGHT
        return tokens.PALETTES[self._preference]

    def _adopt_wanted(self) -> None:
        palette = self._wanted()
        if palette is not self._palette:
            self._palette = palette
            apply(self._app, palette, self._type_scale)
            self.changed.emit(palette)


def apply(app: QApplication, palette: Palette, type_scale: float = 1.0) -> None:
    """Dress every widget of `app`, those that exist and those to come."""
    app.setProperty(_PALETTE_PROPERTY, palette.name)
    app.setProperty(_SCALE_PROPERTY, type_scale)
    app.setFont(font())
    app.setStyleSheet("")  # Qt styles all widgets four times as fast from none as from another
    app.setPalette(_qt_palette(palette))
    app.setStyleSheet(style_sheet(palette, type_scale))


def current() -> Palette:
    """The palette in force, for widgets that paint themselves."""
    app = QApplication.instance()
    name = app.property(_PALETTE_PROPERTY) if app is not None else None
    return tokens.PALETTES.get(name, DARK) if isinstance(name, str) else DARK


def scaled(size_px: int) -> int:
    """A size of type as it is shown: larger for a projector."""
    app = QApplication.instance()
    scale = app.property(_SCALE_PROPERTY) if app is not None else None
    return round(size_px * scale) if isinstance(scale, float) else size_px


def font(size_px: int = tokens.FONT_TEXT, weight: int = tokens.WEIGHT_REGULAR) -> QFont:
    """The window's typeface with tabular figures, in a size of the tokens."""
    return _font(scaled(size_px), weight)


@lru_cache(maxsize=64)
def _font(size_px: int, weight: int) -> QFont:
    made = QFont(list(tokens.FONT_FAMILIES))
    made.setPixelSize(size_px)
    made.setWeight(QFont.Weight(weight))
    made.setFeature(QFont.Tag("tnum"), 1)
    return made


def fixed_font() -> QFont:
    """The system's typeface of fixed width, for logs."""
    made = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
    made.setPixelSize(scaled(tokens.FONT_CAPTION))
    return made


@lru_cache(maxsize=128)
def colour(name: str, alpha: float = 1.0) -> QColor:
    made = QColor(name)
    made.setAlphaF(alpha)
    return made


def _qt_palette(p: Palette) -> QPalette:
    role = QPalette.ColorRole
    texts = (role.WindowText, role.Text, role.ButtonText)
    roles_of_colours = (
        (p.t1, (*texts, role.HighlightedText, role.ToolTipText, role.Link, role.LinkVisited)),
        (p.t3, (role.PlaceholderText,)),
        (p.panel, (role.Window,)),
        (p.plot, (role.Base,)),
        (p.raised, (role.Button, role.ToolTipBase)),
        (p.hover, (role.AlternateBase, role.Light, role.Midlight)),
        (p.border, (role.Mid, role.Dark)),
        (p.line, (role.Shadow,)),
        (p.track, (role.Highlight,)),
        (p.error, (role.BrightText,)),
    )
    made = QPalette()
    for name, roles in roles_of_colours:
        for each in roles:
            made.setColor(each, QColor(name))
    for each in texts:
        made.setColor(QPalette.ColorGroup.Disabled, each, QColor(p.t3))
    return made


class FocusRing(QFocusFrame):
    """A ring around the widget that got the focus by keyboard; no widget has to leave room for it."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._style = _RingStyle("Fusion")
        self.setStyle(self._style)
        self.hide()
        self._watcher = _FocusWatcher(self)
        for widget in window.findChildren(QWidget):
            self.watch(widget)

    def watch(self, widget: QWidget) -> None:
        """Show the ring on `widget` too; for what is made after the window."""
        if widget.focusPolicy() != Qt.FocusPolicy.NoFocus:
            widget.installEventFilter(self._watcher)

    def surround(self, widget: QWidget | None) -> None:
        self.setWidget(widget)  # type: ignore[arg-type]  # None is allowed: it hides the ring
        self.raise_()

    def settle(self) -> None:
        """Find the widget again once it stands where it will stay."""
        widget = self.widget()
        self.surround(None)
        self.surround(widget)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(colour(current().t1), tokens.FOCUS_RING))
        half = tokens.FOCUS_RING / 2
        radius = self.widget().property("focus_radius") if self.widget() is not None else None
        radius = (tokens.RADIUS_CONTROL if radius is None else radius) + tokens.FOCUS_RADIUS_EXTRA
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(half, half, -half, -half), radius, radius)


class _RingStyle(QProxyStyle):
    """The ring's own style, so that no other widget pays for a style in Python."""

    def pixelMetric(
        self, metric: QStyle.PixelMetric, option: QStyleOption | None = None, widget: QWidget | None = None
    ) -> int:
        if metric in (QStyle.PixelMetric.PM_FocusFrameHMargin, QStyle.PixelMetric.PM_FocusFrameVMargin):
            return tokens.FOCUS_MARGIN
        return super().pixelMetric(metric, option, widget)

    def styleHint(
        self,
        hint: QStyle.StyleHint,
        option: QStyleOption | None = None,
        widget: QWidget | None = None,
        answer: QStyleHintReturn | None = None,
    ) -> int:
        if hint == QStyle.StyleHint.SH_FocusFrame_AboveWidget:  # or the widget's parent would cut the ring
            return 1
        return super().styleHint(hint, option, widget, answer)


class _FocusWatcher(QObject):
    """Sees focus come and go; apart from the ring, which takes its own event filter away when it moves on."""

    def __init__(self, ring: FocusRing) -> None:
        super().__init__(ring)
        self._ring = ring
        self._by_keyboard = False
        self._is_passed_on = False  # the focus, by a widget that cannot have it any more

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(watched, QWidget) and isinstance(event, QFocusEvent):
            if event.gotFocus():
                self._on_focus_in(watched, event.reason())
            else:
                can_have_it = watched.isEnabled() and watched.isVisible()
                self._is_passed_on = event.reason() in KEYBOARD_REASONS and not can_have_it
                if watched is self._ring.widget():
                    self._ring.surround(None)
        return False

    def _on_focus_in(self, widget: QWidget, reason: Qt.FocusReason) -> None:
        # The window's comes back to where it was; what is passed on, Qt gives away as if by Tab.
        if reason != Qt.FocusReason.ActiveWindowFocusReason and not self._is_passed_on:
            self._by_keyboard = reason in KEYBOARD_REASONS
        self._is_passed_on = False
        self._ring.surround(widget if self._by_keyboard else None)
