"""What ARCHITECTURE.md promises of the structure and no contract of import-linter can say."""

from __future__ import annotations

import ast
import importlib
import re

import pytest

from tests import architecture

MOST_ROOMS = {"service": 13, "gui": 17}
MOST_ARROWS = {"service": 40, "gui": 55}
MOST_LINES_OF_A_ROOM_DOCSTRING = 8
PRIVATE_TO_RAY = re.compile(
    r"ray\.[\w.]*_private|from ray\.[\w.]* import _|_get_global_client|_deployment_config|_run_router_in_separate_loop"
)


@pytest.mark.parametrize("side", architecture.SIDES)
def test_that_a_side_has_few_rooms_with_few_arrows_between_them(side: str) -> None:
    assert len(architecture.rooms(side)) <= MOST_ROOMS[side]
    assert len(architecture.arrows(side)) <= MOST_ARROWS[side]


def test_that_no_modules_import_each_other_in_a_circle() -> None:
    assert architecture.circle() == ()


def test_that_names_private_to_ray_stand_in_one_room() -> None:
    naming = {module.room for module in architecture.modules().values() if PRIVATE_TO_RAY.search(module.source)}
    assert naming == {"service.ray_serve"}


def test_that_each_room_says_in_a_few_lines_what_it_holds() -> None:
    packages = [module for module in architecture.modules().values() if module.path.name == "__init__.py"]
    rooms = [module for module in packages if module.name == module.room and "." in module.name]
    docstrings = {room.name: ast.get_docstring(ast.parse(room.source)) or "" for room in rooms}
    assert [name for name, text in docstrings.items() if not text] == []
    assert [name for name, text in docstrings.items() if text.count("\n") >= MOST_LINES_OF_A_ROOM_DOCSTRING] == []


@pytest.mark.parametrize("name", ["service.app:build", "service.app:generator", "service.workloads.workload:Workload"])
def test_that_names_in_users_files_stay(name: str) -> None:
    module, _, attribute = name.partition(":")
    assert hasattr(importlib.import_module(module), attribute)
