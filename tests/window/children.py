"""How tests start the scripted service."""

from __future__ import annotations

import sys
from pathlib import Path

from gui.session.processes.service import ServiceStart
from service.messages.options import ServiceOptions
from service.messages.settings import Settings
from service.messages.workload import TEXT

SCRIPT = Path(__file__).with_name("scripted_service.py")


def scripted(*options: str, settings: Settings | None = None, workload: str = TEXT.name) -> ServiceStart:
    """A start of the scripted service with these options of its script."""
    return ServiceStart(
        ServiceOptions(model="scripted", workload=workload, settings=settings or Settings()),
        program=(sys.executable, "-c", f"import runpy; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')", *options),
    )
