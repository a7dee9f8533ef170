"""What all tests share."""

from __future__ import annotations

import pytest

from service.engine.model.resolve import DEFAULT_MODEL, ModelFolder, resolve

# A program, which the search for examples in docstrings would import.
collect_ignore = ["benchmarks/llama_cpp_server.py"]


@pytest.fixture(scope="session")
def model_folder() -> ModelFolder:
    """The default model, fetched and converted if this is the first run here."""
    return resolve(DEFAULT_MODEL)
