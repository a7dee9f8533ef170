"""What can go wrong while the service starts, told to the user."""


class StartError(Exception):
    """The service cannot start; `str()` of it is a sentence for the user that says what to do."""


class PortTakenError(StartError):
    """Somebody else took the port between our looking and our listening."""
