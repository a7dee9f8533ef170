"""Ray's own tests of batching, as they stand, against `batchscope.batch`.

python -m tests.ray_batching RAY [--formation early] [options of pytest]

RAY is a checkout of https://github.com/ray-project/ray at the tag of the installed release, or a folder with the files
of `FILES` in it, by the same paths. They need `httpx`, and port 8000. `--formation ray` runs them against Ray's own
decorator: what fails then as well is no matter of ours.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

FILES = ("python/ray/serve/tests/unit/test_batching.py", "python/ray/serve/tests/test_batching.py")
FORMATION = "BATCHSCOPE_TESTED_FORMATION"
RAYS_OWN = "ray"
CONFIG = "[pytest]\nasyncio_default_test_loop_scope = session\n"  # one loop, as the first of the files asks for
PROCESSORS = 36  # as Ray counts them, and as its own fixture says

# As pytest's plugin --------------------------------------------------------------------------------------------------


def pytest_configure() -> None:
    """Before the tests are imported, `serve.batch` is ours."""
    formation = os.environ[FORMATION]
    if formation != RAYS_OWN:
        from ray import serve
        from ray.serve import batching

        from service.probe.decorator import batch

        ours: Any = partial(batch, formation=formation)
        serve.batch = batching.batch = ours


@pytest.fixture(scope="session")
def _started_serve() -> Iterator[None]:
    import ray
    from ray import serve

    ray.init("local", num_cpus=PROCESSORS, namespace="default_test_namespace", include_dashboard=False)
    serve.start(http_options={"host": "127.0.0.1", "port": 8000})
    yield
    serve.shutdown()
    ray.shutdown()


@pytest.fixture
def serve_instance(_started_serve: None) -> Iterator[None]:
    """Serve, without an application."""
    from ray import serve

    yield
    for application in serve.status().applications:
        serve.delete(application)


# As a command --------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ray", type=Path, metavar="RAY")
    parser.add_argument("--formation", choices=("early", "late", "continuous", RAYS_OWN), default="early")
    options, pytest_options = parser.parse_known_args()
    return max([_run(options.ray / file, options.formation, pytest_options) for file in FILES])


def _run(file: Path, formation: str, pytest_options: list[str]) -> int:
    """The exit code of pytest, which runs a copy: beside the file lie packages of the same names as the installed."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(file, folder)
        (Path(folder) / "pytest.ini").write_text(CONFIG)
        plugin = ("-p", __spec__.name, "-p", "no:cacheprovider")
        return subprocess.run(
            [sys.executable, "-m", "pytest", *plugin, "--rootdir", folder, *pytest_options, folder],
            env=os.environ | {FORMATION: formation},
            check=False,
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
