"""What all tests share: the model, and how the tests are spread over processes."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections import Counter, defaultdict

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from service.engine.model.resolve import DEFAULT_MODEL, ModelFolder, resolve

MOST_PROCESSES = 4
"""So many take the tests of real services; the others, too, are no faster in more."""

os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch's and numpy's threads would wait for each other; models are tiny
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process of a service would compile every module anew

settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")  # how fast an example is depends on what else the machine does
settings.register_profile("long", settings.get_profile("no clock"), max_examples=2_000)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; Serve is ended by this signal
    signal.signal(signal.SIGINT, signal.default_int_handler)

REAL_SERVICES = (
    tuple(f"tests/service/test_{name}.py" for name in ("batch_cluster", "serve_config", "tutorial")),  # on another Ray
    ("tests/service/test_process.py",),  # a start a test
    ("tests/service/", "tests/window/test_real_service.py"),  # one service for all; at last the window starts its own
)
"""Where the tests with real services are; those of a line run in one process, one after the other."""


@pytest.fixture(scope="session")
def model_folder() -> ModelFolder:
    """The default model, fetched and converted if this is the first run here."""
    return resolve(DEFAULT_MODEL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also what takes hours, and larger numbers: tests/README.md")


@pytest.fixture(scope="session")
def is_long(pytestconfig: pytest.Config) -> bool:
    """Whether a test may take its time."""
    return bool(pytestconfig.getoption("--long"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes hours, and have the report of each test of a promise name it."""
    if not config.getoption("--long"):
        items[:] = [item for item in items if item.get_closest_marker("long") is None]
    for item in items:
        promises = [test for mark in item.iter_markers("promise") for test in mark.args]
        item.user_properties += [(test, "") for test in promises]
        item.extra_keyword_matches.update(promises)  # `-k T04`


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of promises (`tests/README.md`): how many of the tests of each passed, and what they recorded of it."""
    passed, failed, seen = Counter[str](), Counter[str](), defaultdict[str, list[str]](list)
    for counts, outcomes in ((passed, ["passed"]), (failed, ["failed", "error"])):
        for report in (report for outcome in outcomes for report in terminalreporter.getreports(outcome)):
            properties = [each for each in report.user_properties if re.fullmatch(r"T\d\d", each[0])]
            counts.update({test for test, _ in properties})
            for test, words in properties:
                seen[test] += [words] if words else []
    if seen:
        terminalreporter.section("promises")
        for test, words in sorted(seen.items()):
            count = f"{passed[test]} passed" + (f", {failed[test]} failed" if failed[test] else "")
            terminalreporter.write_line("\n    ".join((f"{test} {count}", *sorted(words))))


def pytest_configure(config: pytest.Config) -> None:
    """Give each process of tests, with its services, a share of the processor as a program of its own has it.

    Linux shares it out among sessions first. In one session the niceness of an engine's threads would count against the
    tests of the other processes, and a start of half a minute would take ten.
    """
    if hasattr(config, "workerinput") and hasattr(os, "setsid"):
        os.setsid()
    if config.getoption("--long"):
        settings.load_profile("long")  # before the modules are imported that take its numbers


def pytest_collection_finish() -> None:
    """Set aside the million objects of the imported modules, which each search for things left behind would visit."""
    gc.freeze()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process more than there are cores, since tests wait; where some are named, none but this one."""
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return 0
    return min((os.cpu_count() or 1) + 1, MOST_PROCESSES)


class Scheduling(LoadScopeScheduling):
    """Gives each process one file after the other; each line of `REAL_SERVICES` counts as one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((group[0] for group in REAL_SERVICES if file.startswith(group)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    return Scheduling(config, log)
