"""Elements of a page, escaped by the standard library, and the few shapes that its plots are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

Child = Element | str


def element(tag: str, *children: Child | None, **attributes: object) -> Element:
    """`tag` with its children; `class_` and `text_anchor` become `class` and `text-anchor`.

    >>> html(element("p", "a < b", element("b", "!"), class_="note"))
    '<p class="note">a &lt; b<b>!</b></p>'
    """
    made = Element(tag, {_name(name): _value(value) for name, value in attributes.items()})
    for child in children:
        if isinstance(child, str):
            _append_text(made, child)
        elif child is not None:
            made.append(child)
    return made


def html(root: Element) -> str:
    """As it stands in an HTML page."""
    return tostring(root, encoding="unicode", method="html")


def table(header: Sequence[str], rows: Iterable[Sequence[Child]], **attributes: object) -> Element:
    """A table whose first column names its rows."""
    head = element("tr", *[element("th", title, scope="col") for title in header])
    body = [
        element("tr", element("th", row[0], scope="row"), *[element("td", cell) for cell in row[1:]]) for row in rows
    ]
    return element("table", element("thead", head), element("tbody", *body), **attributes)


def points(xs: Iterable[float], ys: Iterable[float]) -> str:
    """Coordinates of a polyline or polygon."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))


def _name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _value(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _append_text(parent: Element, text: str) -> None:
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text
