"""A note that our application runs on somebody else's cluster, for whoever has to take it away again.

The driver writes it before it deploys and removes it with the application. Where the driver was killed between the two,
the supervisor or the sweeper finds it. Imports no Ray.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

RELEASE_LIMIT_S: Final = 20.0


def deployed_file(directory: str) -> Path:
    """Where the note lies; it holds the cluster's address."""
    return Path(directory) / "deployed"


def release_forgotten(directory: str) -> None:
    """If the note is still there, delete the application on that cluster."""
    note = deployed_file(directory)
    if not note.exists():
        return
    command = [sys.executable, "-m", "service.ray_serve.release", note.read_text()]
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, timeout=RELEASE_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        print(f"The application on {command[-1]} could not be deleted in time.", file=sys.stderr)
