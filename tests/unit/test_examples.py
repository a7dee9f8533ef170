"""The examples in docstrings, in every module that has any."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [path for package in ("gui", "service") for path in sorted((ROOT / package).rglob("*.py"))]
MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in FILES if ">>> " in path.read_text()]


@pytest.mark.parametrize("name", MODULES)
def test_that_the_examples_of_a_module_hold(name: str) -> None:
    tests = [test for test in doctest.DocTestFinder().find(importlib.import_module(name)) if test.examples]
    runner = doctest.DocTestRunner()
    for test in tests:
        runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0
