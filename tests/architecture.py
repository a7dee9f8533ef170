"""The structure of the product, read from its imports: `python -m tests.architecture` prints the counts."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SIDES: Final = ("service", "gui")


@dataclass(frozen=True)
class Module:
    """One file of the product; `name` is dotted, and that of its package where the file is an `__init__.py`."""

    name: str
    path: Path

    @property
    def room(self) -> str:
        """The first two parts of the name: a folder or a file at the top of `service/` or `gui/`."""
        return ".".join(self.name.split(".")[:2])

    @property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")


@cache
def modules() -> Mapping[str, Module]:
    """All modules of the product by name."""
    found = {}
    for side in SIDES:
        for path in sorted((ROOT / side).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name] = Module(name, path)
    return found


@cache
def imports() -> Mapping[str, Set[str]]:
    """The modules of the product that each module imports, anywhere in it: in functions and for types alone, too."""
    return {name: frozenset(_imported(module)) - {name} for name, module in modules().items()}


def rooms(side: str) -> Set[str]:
    """The rooms of `service` or `gui`."""
    return {module.room for module in modules().values() if module.room.startswith(f"{side}.")}


def arrows(side: str) -> Set[tuple[str, str]]:
    """The pairs of rooms of one side of which the first imports from the second."""
    pairs = {(modules()[a].room, modules()[b].room) for a, named in imports().items() for b in named}
    return {(a, b) for a, b in pairs if a != b and {a, b} <= rooms(side)}


def circle() -> Sequence[str]:
    """Modules each of which imports the next, from one of them back to itself; empty where there is no such circle."""
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        found: Sequence[str] = error.args[1]
        return found
    return ()


def line_count() -> int:
    """Lines of all modules, tests not among them."""
    return sum(len(module.source.splitlines()) for module in modules().values())


def _imported(module: Module) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules() else node.module for name in whole]
        else:
            continue
        yield from (name for name in names if name in modules())


def main() -> None:
    for side in SIDES:
        print(f"{side}: {len(rooms(side))} rooms, {len(arrows(side))} arrows between them")
    print(f"{len(modules())} files, {line_count():,} lines, circle: {' -> '.join(circle()) or 'none'}")


if __name__ == "__main__":
    main()
