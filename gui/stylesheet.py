"""The style sheet, written from the tokens."""

from __future__ import annotations

from string import Template

from gui import tokens
from gui.tokens import Palette

_SHEET = Template("""
QWidget { color: $t1; }
QToolTip { background: $raised; color: $t1; border: 1px solid $border; padding: 4px 6px; }

#panel, #toolbar, #status { background: $panel; }
#centre { background: $plot; }
QFrame#hairline { background: $line; border: none; }
QSplitter::handle { background: $line; }

QLabel[role="title"] { font-size: ${title}px; font-weight: 600; }
QLabel[role="heading"] { font-size: ${heading}px; font-weight: 600; }
QLabel[role="name"] { font-weight: 500; }
QLabel[role="strong"] { font-weight: 600; }
QLabel[role="stage"] { font-size: ${title}px; font-weight: 600; }
QLabel[role="failed"] { color: $error; font-weight: 600; }
QLabel[role="text"] { color: $t2; }
QLabel[role="dim"] { color: $t3; }
QLabel[role="caption"] { color: $t3; font-size: ${caption}px; }
QLabel[role="status"] { color: $t2; font-size: ${caption}px; font-weight: 500; }
QLabel[role="error"] { color: $error; font-size: ${caption}px; font-weight: 500; }
QLabel[role="chip"] {
    color: $t1; background: $segment_selected; border-radius: ${r4}px; padding: 2px 6px;
    font-size: ${caption}px; font-weight: 500;
}

QPushButton {
    background: $raised; border: 1px solid $border; border-radius: ${r6}px; color: $t1;
    font-weight: 600; padding: 0 12px; min-height: ${control_inner}px; outline: none;
}
QPushButton:hover { background: $hover; }
QPushButton:pressed, QPushButton:checked { background: $segment_selected; border-color: $t3; }
QPushButton:disabled { background: transparent; border-color: $line; color: $t3; }
QPushButton::menu-indicator { image: none; width: 0; }
QPushButton[role="primary"] { background: $primary; border-color: $primary; color: $primary_text; }
QPushButton[role="primary"]:hover { background: $t2; border-color: $t2; }
QPushButton[role="primary"]:pressed { background: $t3; border-color: $t3; }
QPushButton[role="primary"]:disabled { background: transparent; border-color: $line; color: $t3; }
QPushButton[role="link"] {
    background: transparent; border: none; padding: 0; font-weight: 500; text-align: left; border-radius: ${r4}px;
}
QPushButton[role="link"]:hover { text-decoration: underline; }
QPushButton[role="link"]:disabled { color: $t3; }
QPushButton[role="icon"] { background: transparent; border: none; padding: 0; }
QPushButton[role="icon"]:hover, QPushButton[role="icon"]:pressed { background: $hover; }
QPushButton[role="quiet"] {
    background: transparent; border: none; padding: 0; font-weight: 500; color: $t2; text-align: left;
}
QPushButton[role="quiet"]:hover { color: $t1; }
QPushButton[tall="true"] { min-height: ${toolbar_inner}px; }

#segmented { background: $segment; border: none; border-radius: ${r6}px; }
#segmented QPushButton {
    background: transparent; border: 1px solid transparent; border-radius: ${r4}px; color: $t2;
    font-weight: 500; padding: 0 3px; min-height: ${segment_inner}px; margin: ${segment_margin}px;
}
#segmented QPushButton:hover { color: $t1; }
#segmented QPushButton:checked { background: $segment_selected; color: $t1; }
#segmented[tall="true"] QPushButton { min-height: ${segment_toolbar_inner}px; padding: 0 8px; }

QLineEdit, QTextEdit {
    background: $raised; border: 1px solid $border; border-radius: ${r6}px; color: $t1;
    selection-background-color: $track; selection-color: $t1;
}
QLineEdit { font-weight: 500; min-height: ${control_inner}px; padding: 0 8px; }
QLineEdit[number="true"] { padding: 0 5px; }
QLineEdit:hover { border-color: $t3; }
QLineEdit:focus, QTextEdit:focus { border-color: $t3; }
QLineEdit:disabled, QLineEdit[readOnly="true"] { background: transparent; border-color: $line; }
QLineEdit:disabled { color: $t2; }
QLineEdit[refused="true"] { border-color: $error; }
QLineEdit[tall="true"] { min-height: ${toolbar_inner}px; }
QTextEdit { background: $plot; padding: 2px 4px; }
#log { border: none; background: $plot; color: $t2; padding: 0 12px; }

QTableView { background: $panel; border: none; outline: none; }
QScrollArea, QScrollArea > QWidget > QWidget { background: transparent; border: none; }

QScrollBar:vertical { background: transparent; width: ${scroll}px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: ${scroll}px; margin: 0; }
QScrollBar::handle {
    background: $track; border-radius: ${scroll_radius}px; min-height: 24px; min-width: 24px; margin: 2px;
}
QScrollBar::handle:hover { background: $t3; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }

QMenu { background: $raised; border: 1px solid $border; padding: 4px; }
QMenu::item { padding: 5px 24px 5px 12px; border-radius: ${r4}px; color: $t1; }
QMenu::item:selected { background: $hover; }
QMenu::item:disabled { color: $t3; }
QMenu::separator { height: 1px; background: $line; margin: 4px 8px; }

#notice { background: $plot; }
#notice[state="failed"] { background: $error_ground; }
#failure { border: none; border-left: ${error_edge}px solid $error; }
#step {
    border: 1px solid $border; border-radius: ${step_radius}px; color: $t1; font-size: ${caption}px; font-weight: 600;
}
#drawer { background: $panel; border-left: 1px solid $line; }
""")


def style_sheet(palette: Palette) -> str:
    """The window's style sheet in the colours of `palette`."""
    colours = {name: value for name, value in vars(palette).items() if isinstance(value, str)}
    edges = 2 * tokens.HAIRLINE
    return _SHEET.substitute(
        colours,
        title=tokens.FONT_TITLE,
        heading=tokens.FONT_HEADING,
        caption=tokens.FONT_CAPTION,
        r4=tokens.RADIUS_INNER,
        r6=tokens.RADIUS_CONTROL,
        control_inner=tokens.HEIGHT_CONTROL - edges,
        toolbar_inner=tokens.HEIGHT_CONTROL_TOOLBAR - edges,
        segment_margin=tokens.SEGMENT_MARGIN,
        segment_inner=tokens.HEIGHT_CONTROL - edges - 2 * tokens.SEGMENT_MARGIN,
        segment_toolbar_inner=tokens.HEIGHT_CONTROL_TOOLBAR - edges - 2 * tokens.SEGMENT_MARGIN,
        scroll=tokens.SCROLL_BAR,
        scroll_radius=(tokens.SCROLL_BAR - 4) // 2,
        error_edge=tokens.ERROR_EDGE,
        step_radius=tokens.STEP_CIRCLE // 2,
    )
