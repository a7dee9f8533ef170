"""What runs here and on what: versions, processor and folders. Nothing that it names is imported for it."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Final

import platformdirs

VERSION: Final = "0.1.0"
"""The release; pyproject.toml reads it here."""


def version_of(package: str) -> str:
    """The installed release of `package`, or "not installed"."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def processor_name() -> str:
    """As Linux lists it, or else what the system calls its architecture."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cache_folder() -> Path:
    """Where models are kept between starts; `BATCHSCOPE_CACHE` names another place."""
    return Path(os.environ.get("BATCHSCOPE_CACHE") or platformdirs.user_cache_path("batchscope"))
