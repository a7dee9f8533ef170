"""The style sheet, written from the tokens."""

from __future__ import annotations

from string import Template

from gui.look import tokens
from gui.look.tokens import Palette

_SHEET = Template("""
QWidget { color: $t1; }
QToolTip { background: $raised; color: $t1; border: ${edge}px solid $border; padding: ${gap1}px ${gap_menu}px; }

#panel, #toolbar, #status { background: $panel; }
#centre { background: $plot; }
QFrame#hairline { background: $line; border: none; }
QSplitter::handle { background: $line; }

QLabel[role="title"] { font-size: ${title}px; font-weight: $bold; }
QLabel[role="heading"] { font-size: ${heading}px; font-weight: $bold; }
QLabel[role="name"] { font-weight: $medium; }
QLabel[role="strong"] { font-weight: $bold; }
QLabel[role="stage"] { font-size: ${title}px; font-weight: $bold; }
QLabel[role="failed"] { color: $error; font-weight: $bold; }
QLabel[role="text"] { color: $t2; }
QLabel[role="dim"] { color: $t3; }
QLabel[role="caption"] { color: $t3; font-size: ${caption}px; }
QLabel[role="status"] { color: $t2; font-size: ${caption}px; font-weight: $medium; }
QLabel[role="error"] { color: $error; font-size: ${caption}px; font-weight: $medium; }
QLabel[role="chip"] {
    color: $t1; background: $hover; border-radius: ${r4}px; padding: ${gap_half}px ${gap_menu}px;
    font-size: ${caption}px; font-weight: $medium;
}

QPushButton {
    background: $raised; border: ${edge}px solid $border; border-radius: ${r6}px; color: $t1;
    font-weight: $bold; padding: 0 ${gap3}px; min-height: ${control_inner}px; outline: none;
}
QPushButton:hover { background: $hover; }
QPushButton:pressed, QPushButton:checked { background: $hover; border-color: $t3; }
QPushButton:disabled { background: transparent; border-color: $line; color: $t3; }
QPushButton::menu-indicator { image: none; width: 0; }
QPushButton[role="primary"] { background: $primary; border-color: $primary; color: $primary_text; }
QPushButton[role="primary"]:hover { background: $t2; border-color: $t2; }
QPushButton[role="primary"]:pressed { background: $t3; border-color: $t3; }
QPushButton[role="primary"]:disabled { background: transparent; border-color: $line; color: $t3; }
QPushButton[role="link"] {
    background: transparent; border: none; padding: 0; font-weight: $medium; text-align: left; border-radius: ${r4}px;
}
QPushButton[role="link"]:hover { text-decoration: underline; }
QPushButton[role="link"]:disabled { color: $t3; }
QPushButton[role="icon"] { background: transparent; border: none; padding: 0; }
QPushButton[role="icon"]:hover, QPushButton[role="icon"]:pressed { background: $hover; }
QPushButton[role="quiet"] {
    background: transparent; border: none; padding: 0; font-weight: $medium; color: $t2; text-align: left;
}
QPushButton[role="quiet"]:hover { color: $t1; }
QPushButton[tall="true"] { min-height: ${toolbar_inner}px; }

#segmented { background: $segment; border: none; border-radius: ${r6}px; }
#segmented QPushButton {
    background: transparent; border: ${edge}px solid transparent; border-radius: ${r4}px; color: $t2;
    font-weight: $medium; padding: 0 ${gap_segment}px; min-height: ${segment_inner}px; margin: ${segment_margin}px;
}
#segmented QPushButton:hover { color: $t1; }
#segmented QPushButton:checked { background: $segment_selected; color: $t1; }
#segmented[tall="true"] QPushButton { min-height: ${segment_toolbar_inner}px; padding: 0 ${gap2}px; }

QLineEdit, QTextEdit {
    background: $raised; border: ${edge}px solid $border; border-radius: ${r6}px; color: $t1;
    selection-background-color: $track; selection-color: $t1;
}
QLineEdit { font-weight: $medium; min-height: ${control_inner}px; padding: 0 ${gap2}px; }
QLineEdit[number="true"] { padding: 0 ${gap_menu_y}px; }
QLineEdit:hover { border-color: $t3; }
QLineEdit:focus, QTextEdit:focus { border-color: $t3; }
QLineEdit:disabled, QLineEdit[readOnly="true"] { background: transparent; border-color: $line; }
QLineEdit:disabled { color: $t2; }
QLineEdit[refused="true"] { border-color: $error; }
QLineEdit[tall="true"] { min-height: ${toolbar_inner}px; }
QTextEdit { background: $plot; padding: ${gap_half}px ${gap1}px; }
#log { border: none; background: $plot; color: $t2; padding: 0 ${gap3}px; }

QTableView { background: $panel; border: none; outline: none; }
QScrollArea, QScrollArea > QWidget > QWidget { background: transparent; border: none; }

QScrollBar:vertical { background: transparent; width: ${scroll}px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: ${scroll}px; margin: 0; }
QScrollBar::handle {
    background: $track; border-radius: ${scroll_radius}px; margin: ${gap_half}px;
    min-height: ${scroll_least}px; min-width: ${scroll_least}px;
}
QScrollBar::handle:hover { background: $t3; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }

QMenu { background: $raised; border: ${edge}px solid $border; padding: ${gap1}px; }
QMenu::item {
    padding: ${gap_menu_y}px ${gap_menu_right}px ${gap_menu_y}px ${gap3}px; border-radius: ${r4}px; color: $t1;
}
QMenu::item:selected { background: $hover; }
QMenu::item:disabled { color: $t3; }
QMenu::separator { height: ${edge}px; background: $line; margin: ${gap1}px ${gap2}px; }

#notice { background: $plot; }
#notice[state="failed"] { background: $error_ground; }
#failure { border: none; border-left: ${error_edge}px solid $error; }
#step {
    border: ${edge}px solid $border; border-radius: ${step_radius}px; color: $t1;
    font-size: ${caption}px; font-weight: $bold;
}
#drawer { background: $panel; border-left: ${edge}px solid $line; }
""")


def style_sheet(palette: Palette) -> str:
    """The window's style sheet in the colours of `palette`."""
    colours = {name: value for name, value in vars(palette).items() if isinstance(value, str)}
    edges = 2 * tokens.HAIRLINE
    return _SHEET.substitute(
        colours,
        edge=tokens.HAIRLINE,
        bold=tokens.WEIGHT_BOLD,
        medium=tokens.WEIGHT_MEDIUM,
        gap_half=tokens.GAP_HALF,
        gap1=tokens.GAP_1,
        gap2=tokens.GAP_2,
        gap3=tokens.GAP_3,
        gap_segment=tokens.SEGMENT_INSET,
        gap_menu=tokens.MENU_INSET,
        gap_menu_y=tokens.MENU_INSET_Y,
        gap_menu_right=tokens.MENU_INSET_RIGHT,
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
        scroll_least=tokens.SCROLL_BAR_LEAST,
        scroll_radius=(tokens.SCROLL_BAR - 4) // 2,
        error_edge=tokens.ERROR_EDGE,
        step_radius=tokens.STEP_CIRCLE // 2,
    )
