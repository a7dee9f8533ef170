"""The service's application with an engine that computes in as many threads as the environment says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, cast
from unittest.mock import patch

from service.messages.options import ServiceOptions

if TYPE_CHECKING:
    from ray.serve import Application

THREADS: Final = "BATCHSCOPE_BENCHMARK_THREADS"


def build(options: ServiceOptions) -> Application:
    """To be named with `--app`."""
    from service import app  # brings Ray, which the window that names this module does without

    generator = cast(Any, app).BatchTextGenerator
    actual: Any = generator.func_or_class

    class Threaded(actual):  # type: ignore[misc]  # what Serve made of the class
        async def __init__(self, *arguments: Any) -> None:  # type: ignore[misc]  # Serve awaits it
            threads, logical_cores = int(os.environ[THREADS]), os.cpu_count()
            with (
                patch("service.engine.loading.usable_cores", lambda: threads),
                patch("psutil.cpu_count", lambda logical=True: logical_cores if logical else threads),
            ):
                await actual.__init__(self, *arguments)

    with patch.object(app, "BatchTextGenerator", generator.options(func_or_class=Threaded)):
        return app.build(options)
