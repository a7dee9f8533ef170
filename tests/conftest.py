"""What all tests share: the model, and how the tests are spread over processes."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from service.engine.model.resolve import DEFAULT_MODEL, ModelFolder, resolve

MOST_PROCESSES = 4
"""The tests of the real service are one after the other in one process, and the others take no longer in three."""

settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")  # how fast an example is depends on what else the machine does

REAL_SERVICE = ("tests/service/", "tests/window/test_real_service.py")


@pytest.fixture(scope="session")
def model_folder() -> ModelFolder:
    """The default model, fetched and converted if this is the first run here."""
    return resolve(DEFAULT_MODEL)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A process for each core where all tests run; no other than this one where some were named."""
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return 0
    return min(max(os.cpu_count() or 1, 2), MOST_PROCESSES)


class Scheduling(LoadScopeScheduling):
    """Gives each process one file after the other, and all tests of the real service to the same."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return REAL_SERVICE[0] if file.startswith(REAL_SERVICE) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    return Scheduling(config, log)
