"""The findings: three or all, each with its evidence, what to do, and a button that does it or leads to its control."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from gui.look import tokens
from gui.panels.section import SECTION_MARGINS, section_head
from gui.widgets.buttons import Button
from gui.widgets.icons import Icon
from gui.widgets.labels import label
from gui.widgets.layouts import box, column, row, scrolled
from service.messages.settings import Scale, Settings

if TYPE_CHECKING:  # it takes numpy, which the window's first frame does not wait for
    from service.analysis.findings.facts import Finding

MOST: Final = 3
ROWS: Final = 12  # made at once, so that focus ring and tab order know them
EMPTY_TEXT: Final = "Explains what the plots show, with the evidence and the slider that would change it."
CONTROLS: Final = frozenset(Settings.__struct_fields__ + Scale.__struct_fields__)  # a finding may name no such
ICONS: Final = {"check": "ph.check-circle", "info": "ph.info", "warning": "ph.warning"}


class FindingsPanel(QWidget):
    """A scrolling list of findings; those beyond the first three are shown on demand."""

    control_wanted = Signal(str)  # the name of a setting
    change_wanted = Signal(dict)  # the settings that a finding changes

    def __init__(self) -> None:
        super().__init__()
        self._empty = label(EMPTY_TEXT, "dim", wrap=True)
        self._rows = [_FindingRow() for _ in range(ROWS)]
        self._shown: Sequence[Finding] = ()
        self._more = Button(role="link")
        self._more.setCursor(Qt.CursorShape.PointingHandCursor)
        self._shows_all = False
        words = column(self._empty, *self._rows, self._more, None, gap=tokens.GAP_2)
        words.setAlignment(self._more, Qt.AlignmentFlag.AlignLeft)
        scroll = scrolled(box(words))
        scroll.setMinimumHeight(tokens.HEIGHT_FINDINGS_MIN)
        margins = (SECTION_MARGINS[0], SECTION_MARGINS[1], SECTION_MARGINS[2], 0)
        self.setLayout(column(section_head("What it means"), scroll, gap=tokens.GAP_1, margins=margins))
        for shown in self._rows:
            shown.control_wanted.connect(self.control_wanted)
            shown.change_wanted.connect(self.change_wanted)
        self._more.clicked.connect(self._on_more_clicked)
        self._can_change = False
        self._said: tuple[str, ...] = ("", "")
        self.show_findings(())

    def set_can_change(self, can_change: bool) -> None:
        """Offer the changes; those of a recording or of the past would be made elsewhere than they are shown."""
        if can_change != self._can_change:
            self._can_change = can_change
            self.show_findings(self._shown, self._nothing)

    def set_said(self, finding: Finding | None, mend: Finding | None) -> None:
        """Leave out the title that the verdict says and the button that it has; what it rests on leads the list."""
        said = tuple("" if each is None else each.rule for each in (finding, mend))
        if said != self._said:
            self._said = said
            self.show_findings(self._shown, self._nothing)

    def show_findings(self, findings: Sequence[Finding], nothing: str = EMPTY_TEXT) -> None:
        """Show these findings, the most useful first; without one, `nothing`."""
        self._shown, self._nothing = findings, nothing
        said, mended = self._said
        self._empty.setText(nothing)
        self._empty.setVisible(not findings)
        visible = findings if self._shows_all else findings[:MOST]
        for at, shown in enumerate(self._rows):
            finding = visible[at] if at < len(visible) else None
            shown.show_finding(finding, self._can_change and (finding is None or finding.rule != mended))
            shown.leave_out_title(finding is not None and bool(said) and finding.rule == said)
        beyond = len(findings) - MOST
        self._more.setVisible(beyond > 0)
        self._more.setText("Show fewer" if self._shows_all else f"{beyond} more ›")

    @property
    def last_in_tab_order(self) -> QWidget:
        return self._more

    def titles(self) -> list[str]:
        return [shown.title for shown in self._rows if not shown.isHidden() and shown.title]

    def _on_more_clicked(self) -> None:
        self._shows_all = not self._shows_all
        self.show_findings(self._shown, self._nothing)


class _FindingRow(QWidget):
    control_wanted = Signal(str)
    change_wanted = Signal(dict)

    def __init__(self) -> None:
        super().__init__()
        self._icon = Icon()
        self._title = label("", "name", wrap=True)
        self._evidence, self._advice = label("", "text", wrap=True), label("", "text", wrap=True)
        self._expected = label("", "caption", wrap=True)
        self.apply, self.link = Button(), Button(role="link")
        self.link.setCursor(Qt.CursorShape.PointingHandCursor)
        self._control = ""
        self._change: dict[str, object] = {}
        words = column(
            self._title, self._evidence, self._advice, self.apply, self._expected, self.link, gap=tokens.GAP_HALF
        )
        for button in (self.apply, self.link):
            words.setAlignment(button, Qt.AlignmentFlag.AlignLeft)
        line = row(self._icon, words, gap=tokens.GAP_2 - 2, stretch=words)
        line.setAlignment(self._icon, Qt.AlignmentFlag.AlignTop)
        self.setLayout(line)
        self.apply.clicked.connect(lambda: self.change_wanted.emit(self._change))
        self.link.clicked.connect(lambda: self.control_wanted.emit(self._control))

    @property
    def title(self) -> str:
        return "" if self._title.isHidden() else self._title.text()

    def leave_out_title(self, is_left_out: bool) -> None:
        self._title.setVisible(not is_left_out)

    def show_finding(self, finding: Finding | None, can_change: bool) -> None:
        self.setVisible(finding is not None)
        if finding is None:
            return
        self._icon.show_icon(ICONS.get(finding.severity, ICONS["info"]))
        self._title.setText(finding.title)
        expected = f"Expected: {finding.expected}" if finding.expected else ""
        for shown, text in (
            (self._evidence, finding.evidence),
            (self._advice, finding.advice),
            (self._expected, expected),
        ):
            shown.setText(text)
            shown.setVisible(bool(text))
        self._change = dict(finding.change or {})
        is_offered = bool(self._change) and can_change
        self.apply.setText(finding.action)
        self.apply.setVisible(is_offered)
        self._control = finding.control if finding.control in CONTROLS else ""
        self.link.setText(f"Change {self._control} ›")
        self.link.setVisible(bool(self._control) and not is_offered)
