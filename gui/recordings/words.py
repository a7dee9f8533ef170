"""What the window says of a recording. No Qt."""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePath

from service.analysis.observed.descriptions import UNITS
from service.analysis.recording.reader import Recording
from service.messages.settings import Settings
from service.messages.text import format_duration


def facts(recording: Recording) -> str:
    """Of which model on what, from when, how long, and how much."""
    header = recording.header
    where = " ".join(part for part in (header.device, header.dtype) if part)
    requests = len(recording.history.requests.columns)
    parts = [
        PurePath(recording.model).name if recording.model else "model unknown",
        where,
        f"{datetime.fromtimestamp(header.recorded_at):%d %b %Y, %H:%M:%S}",
        format_duration(round(recording.duration_s)),
        f"{requests:,} request{'s' if requests != 1 else ''}",
    ]
    return " · ".join(part for part in parts if part)


def in_force(settings: Settings | None) -> str:
    """The settings that batches obeyed, in one line.

    >>> in_force(Settings())
    'late, max_batch_size 16, batch_wait_timeout_s 0.050'
    """
    if settings is None:
        return ""
    wait = UNITS["batch_wait_timeout_s"].format(settings.batch_wait_timeout_s)
    return f"{settings.formation}, max_batch_size {settings.max_batch_size}, batch_wait_timeout_s {wait}"
