"""What a run of frames says of each request, in one word each: feeding that costs less than frame by frame."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from service.messages.load import ClientRequest, LoadFrame
from service.messages.telemetry import RequestRecord, TelemetryFrame


def last_records(frames: Iterable[TelemetryFrame]) -> tuple[RequestRecord, ...]:
    """The last record of each request, in order of the first."""
    return tuple({record.id: record for frame in frames for record in frame.requests}.values())


def joined_requests(frames: Iterable[LoadFrame]) -> tuple[ClientRequest, ...]:
    """The last report of each request with all new text, those that ended first and in order of their ends."""
    requests: dict[str, ClientRequest] = {}
    texts: dict[str, list[str]] = {}
    for frame in frames:
        for request in frame.requests:
            requests[request.id] = request
            texts.setdefault(request.id, []).append(request.new_text)
    joined = (
        request
        if len(texts[request.id]) == 1
        else msgspec.structs.replace(request, new_text="".join(texts[request.id]))
        for request in requests.values()
    )
    return tuple(sorted(joined, key=_end_s))


def _end_s(request: ClientRequest) -> float:
    return float("inf") if request.finished_s is None else request.finished_s
