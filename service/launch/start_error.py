"""What can go wrong while the service starts, told to the user."""

import re

_MODEL_ERROR = re.compile(r"^(?:[\w.]+\.)?ModelError: (.+)$", re.MULTILINE)


class StartError(Exception):
    """The service cannot start; `str()` of it is a sentence for the user that says what to do."""


class PortTakenError(StartError):
    """Somebody else took the port between our looking and our listening."""


def reason_of(message: str) -> str:
    """The sentence for the user in what Serve says of a replica that failed: the model's own, or the last line."""
    sentences: list[str] = _MODEL_ERROR.findall(message)
    if sentences:
        return sentences[-1]
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["no reason was given"]
    return f"The model could not be loaded: {lines[-1].rstrip('.')}. The log says more."
