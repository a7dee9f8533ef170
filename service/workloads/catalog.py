"""Workloads by name: those that are built in, and the user's own as `package.module:Class`."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import traceback
from types import ModuleType
from typing import Final

from service.messages.text import UserError
from service.messages.workload import TEXT, WorkloadAbout
from service.workloads.adder import Adder
from service.workloads.house_price import HousePrice
from service.workloads.workload import Workload

FUNCTIONS: Final[dict[str, type[Workload]]] = {each.name: each for each in (Adder, HousePrice)}
OWN_NAME: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
BUILT_IN: Final = (TEXT, *(each.about() for each in FUNCTIONS.values()))


class WorkloadError(UserError, ValueError):
    """There is no such workload, or it breaks the contract; the text is a sentence that says what to do."""


def is_function(name: str) -> bool:
    """Whether that is the name of a workload other than `text`, found or not, and none of a model.

    >>> is_function("adder"), is_function("my.module:Class"), is_function("gpt2"), is_function("org/model")
    (True, True, False, False)
    """
    return name in FUNCTIONS or OWN_NAME.fullmatch(name) is not None


def about(name: str) -> WorkloadAbout:
    """Of the workload that is named so; raises `WorkloadError`."""
    return TEXT if name == TEXT.name else find(name).about()


def computes_on_device(name: str) -> bool:
    """Whether the workload that is named so makes use of a GPU; raises `WorkloadError`."""
    return name == TEXT.name or find(name).computes_on_device


def find(name: str) -> type[Workload]:
    """The class of a workload other than `text`; the user's own module is imported. Raises `WorkloadError`."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    module_name, colon, class_name = name.partition(":")
    if not (colon and module_name and class_name):
        known = ", ".join(each.name for each in BUILT_IN)
        raise WorkloadError(f"There is no workload {name!r}; there are {known}, and your own as package.module:Class.")
    try:
        found = getattr(_imported(module_name), class_name, None)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]:
            raise WorkloadError(
                f"There is no module {module_name!r} for the workload; start in its folder, or put that on PYTHONPATH."
            ) from error
        last = traceback.format_exception_only(error)[-1].strip()
        raise WorkloadError(f"The module {module_name!r} of the workload cannot be imported: {last}") from error
    if not (inspect.isclass(found) and issubclass(found, Workload)):
        raise WorkloadError(
            f"{name!r} is no workload: let the class {class_name} in {module_name} inherit from "
            "service.workloads.workload.Workload."
        )
    return _checked(name, found)


def _imported(module_name: str) -> ModuleType:
    """The module of the user's; the current folder is searched after every other place."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    return importlib.import_module(module_name)


def _checked(name: str, found: type[Workload]) -> type[Workload]:
    if missing := [each for each in ("name", "description", "examples") if not getattr(found, each, None)]:
        raise WorkloadError(f"The workload {name!r} lacks {', '.join(missing)}; give the class these attributes.")
    if inspect.isabstract(found):
        raise WorkloadError(f"The workload {name!r} lacks __call__, which computes a list of inputs.")
    try:
        workload = found()
        for line in found.examples:
            workload.check(workload.parse(line))
    except Exception as error:
        raise WorkloadError(f"The workload {name!r} refuses its own example: {error}") from error
    return found
