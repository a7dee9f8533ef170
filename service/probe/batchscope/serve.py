"""`ray.serve` with the `batch` of this package: `from batchscope import serve` is then the one line that changes."""

from typing import Any

from ray import serve as _ray_serve
from ray.serve import *  # noqa: F403

from service.probe.decorator import batch as batch  # type: ignore[no-redef]


def __getattr__(name: str) -> Any:
    return getattr(_ray_serve, name)
