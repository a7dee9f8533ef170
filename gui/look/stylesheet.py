"""The style sheet, written from the tokens."""

from __future__ import annotations

from string import Template

from gui.look import tokens
from gui.look.tokens import Palette

_SHEET = Template("""
QWidget { color: $t1; }
QToolTip { background: $raised; color: $t1; border: ${HAIRLINE}px solid $border; padding: ${GAP_1}px ${MENU_INSET}px; }

#panel, #toolbar, #status { background: $panel; }
#centre { background: $plot; }
QFrame#hairline { background: $line; border: none; }
QSplitter::handle { background: $line; }

QLabel[role="title"] { font-size: ${FONT_TITLE}px; font-weight: $WEIGHT_BOLD; }
QLabel[role="heading"] { font-size: ${FONT_HEADING}px; font-weight: $WEIGHT_BOLD; }
QLabel[role="name"] { font-weight: $WEIGHT_MEDIUM; }
QLabel[role="strong"] { font-weight: $WEIGHT_BOLD; }
QLabel[role="stage"] { font-size: ${FONT_TITLE}px; font-weight: $WEIGHT_BOLD; }
QLabel[role="failed"] { color: $error; font-weight: $WEIGHT_BOLD; }
QLabel[role="text"] { color: $t2; }
QLabel[role="dim"] { color: $t3; }
QLabel[role="caption"] { color: $t3; font-size: ${FONT_CAPTION}px; }
QLabel[role="status"] { color: $t2; font-size: ${FONT_CAPTION}px; font-weight: $WEIGHT_MEDIUM; }
QLabel[role="error"] { color: $error; font-size: ${FONT_CAPTION}px; font-weight: $WEIGHT_MEDIUM; }
QLabel[role="chip"] {
    color: $t1; background: $hover; border-radius: ${RADIUS_INNER}px; padding: ${GAP_HALF}px ${MENU_INSET}px;
    font-size: ${FONT_CAPTION}px; font-weight: $WEIGHT_MEDIUM;
}

QPushButton {
    background: $raised; border: ${HAIRLINE}px solid $border; border-radius: ${RADIUS_CONTROL}px; color: $t1;
    font-weight: $WEIGHT_BOLD; padding: 0 ${GAP_3}px; min-height: ${control_inner}px; outline: none;
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
    background: transparent; border: none; border-radius: ${RADIUS_INNER}px;
    font-weight: $WEIGHT_MEDIUM; padding: 0; text-align: left;
}
QPushButton[role="link"]:hover { text-decoration: underline; }
QPushButton[role="link"]:disabled { color: $t3; }
QPushButton[role="icon"] { background: transparent; border: none; padding: 0; }
QPushButton[role="icon"]:hover, QPushButton[role="icon"]:pressed { background: $hover; }
QPushButton[role="quiet"] {
    background: transparent; border: none; padding: 0; font-weight: $WEIGHT_MEDIUM; color: $t2; text-align: left;
}
QPushButton[role="quiet"]:hover { color: $t1; }
QPushButton[tall="true"] { min-height: ${toolbar_inner}px; }

#segmented { background: $segment; border: none; border-radius: ${RADIUS_CONTROL}px; }
#segmented QPushButton {
    background: transparent; border: ${HAIRLINE}px solid transparent; border-radius: ${RADIUS_INNER}px; color: $t2;
    font-weight: $WEIGHT_MEDIUM; padding: 0 ${SEGMENT_INSET}px; margin: ${SEGMENT_MARGIN}px;
    min-height: ${segment_inner}px;
}
#segmented QPushButton:hover { color: $t1; }
#segmented QPushButton:checked { background: $segment_selected; color: $t1; }
#segmented[small="true"] QPushButton {
    min-height: ${segment_small_inner}px; padding: 0; margin: ${HAIRLINE}px; font-size: ${FONT_CAPTION}px;
}
#segmented[tall="true"] QPushButton { min-height: ${segment_toolbar_inner}px; padding: 0 ${GAP_2}px; }

QLineEdit, QTextEdit {
    background: $raised; border: ${HAIRLINE}px solid $border; border-radius: ${RADIUS_CONTROL}px; color: $t1;
    selection-background-color: $track; selection-color: $t1;
}
QLineEdit { font-weight: $WEIGHT_MEDIUM; min-height: ${control_inner}px; padding: 0 ${GAP_2}px; }
QLineEdit[number="true"] { padding: 0 ${MENU_INSET_Y}px; }
QLineEdit:hover { border-color: $t3; }
QLineEdit:focus, QTextEdit:focus { border-color: $t3; }
QLineEdit:disabled, QLineEdit[readOnly="true"] { background: transparent; border-color: $line; }
QLineEdit:disabled { color: $t2; }
QLineEdit[refused="true"] { border-color: $error; }
QLineEdit[tall="true"] { min-height: ${toolbar_inner}px; }
QTextEdit { background: $plot; padding: ${GAP_HALF}px ${GAP_1}px; }
#log { border: none; background: $plot; color: $t2; padding: 0 ${GAP_3}px; }

QTableView { background: $panel; border: none; outline: none; }
QScrollArea, QScrollArea > QWidget > QWidget { background: transparent; border: none; }

QScrollBar:vertical { background: transparent; width: ${SCROLL_BAR}px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: ${SCROLL_BAR}px; margin: 0; }
QScrollBar::handle {
    background: $track; border-radius: ${scroll_radius}px; margin: ${GAP_HALF}px;
    min-height: ${SCROLL_BAR_LEAST}px; min-width: ${SCROLL_BAR_LEAST}px;
}
QScrollBar::handle:hover { background: $t3; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }

QMenu { background: $raised; border: ${HAIRLINE}px solid $border; padding: ${GAP_1}px; }
QMenu::item {
    padding: ${MENU_INSET_Y}px ${MENU_INSET_RIGHT}px ${MENU_INSET_Y}px ${GAP_3}px;
    border-radius: ${RADIUS_INNER}px; color: $t1;
}
QMenu::item:selected { background: $hover; }
QMenu::item:disabled { color: $t3; }
QMenu::separator { height: ${HAIRLINE}px; background: $line; margin: ${GAP_1}px ${GAP_2}px; }

QListWidget {
    background: $raised; border: ${HAIRLINE}px solid $border; border-radius: ${RADIUS_CONTROL}px; outline: none;
}
QListWidget::item { padding: ${GAP_1}px ${GAP_2}px; color: $t1; }
QListWidget::item:selected, QListWidget::item:hover { background: $hover; color: $t1; }

#notice { background: $plot; }
#notice[state="failed"] { background: $error_ground; }
#failure { border: none; border-left: ${ERROR_EDGE}px solid $error; }
#step {
    border: ${HAIRLINE}px solid $border; border-radius: ${step_radius}px; color: $t1;
    font-size: ${FONT_CAPTION}px; font-weight: $WEIGHT_BOLD;
}
#drawer { background: $panel; border-left: ${HAIRLINE}px solid $line; }
""")


def style_sheet(palette: Palette, type_scale: float = 1.0) -> str:
    """The window's style sheet in the colours of `palette`, with all sizes of type multiplied by `type_scale`."""
    sizes = {name: round(type_scale * size) for name, size in vars(tokens).items() if name in tokens.FONT_SIZES}
    edges = 2 * tokens.HAIRLINE
    segment_edges = edges + 2 * tokens.SEGMENT_MARGIN
    return _SHEET.substitute(
        vars(tokens) | vars(palette) | sizes,
        control_inner=tokens.HEIGHT_CONTROL - edges,
        toolbar_inner=tokens.HEIGHT_CONTROL_TOOLBAR - edges,
        segment_inner=tokens.HEIGHT_CONTROL - segment_edges,
        segment_small_inner=tokens.HEIGHT_SEGMENTED_SMALL - 2 * edges - 2 * tokens.HAIRLINE,
        segment_toolbar_inner=tokens.HEIGHT_CONTROL_TOOLBAR - segment_edges,
        scroll_radius=(tokens.SCROLL_BAR - 4) // 2,
        step_radius=tokens.STEP_CIRCLE // 2,
    )
