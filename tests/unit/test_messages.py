"""What holds for every message: it is a value, so it cannot change on its way."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import msgspec
import pytest

import service.messages

MODULES = [import_module(f"service.messages.{each.name}") for each in iter_modules(service.messages.__path__)]
STRUCTS = [
    value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_that_a_message_is_frozen(struct: type[msgspec.Struct]) -> None:
    assert struct.__struct_config__.frozen
