"""What can be wrong with a model, told to the user."""


class ModelError(Exception):
    """The model cannot be had or used; `str()` of it is one sentence for the user that says what to do."""
