"""The generated parts of the documents: `python -m tests.documents` writes them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gui.look.glossary import GLOSSARY, PLOTS, plot_title
from gui.panels import shortcuts

ROOT: Final = Path(__file__).parents[1]
WINDOW: Final = ROOT / "gui" / "README.md"
END: Final = "<!-- end -->"


def keys_table() -> str:
    """The table of shortcuts."""
    rows = [f"| {shortcut.keys} | {shortcut.does} |" for shortcut in shortcuts.ALL]
    return "\n".join(["| keys | effect |", "|---|---|", *rows])


def plots_list() -> str:
    """How each plot is read."""
    return "\n".join(f"- **{plot_title(name)}**: {text}." for name, text in PLOTS.items())


def glossary_table() -> str:
    """The table of terms."""
    rows = [f"| {term} | {text} |" for term, text in GLOSSARY.items()]
    return "\n".join(["| term | meaning |", "|---|---|", *rows])


def window_document(text: str) -> str:
    """`text` of gui/README.md with its generated tables as they have to be."""
    text = _with_table(text, "<!-- the plots of gui/look/glossary.py -->", plots_list())
    text = _with_table(text, "<!-- the keys of gui/panels/shortcuts.py -->", keys_table())
    return _with_table(text, "<!-- the terms of gui/look/glossary.py -->", glossary_table())


def _with_table(text: str, marker: str, table: str) -> str:
    before, _, rest = text.partition(marker)
    return f"{before}{marker}\n\n{table}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    WINDOW.write_text(window_document(WINDOW.read_text()))
