"""Fixtures of the unit tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # torch takes seconds to import, and most unit tests do without
    from service.engine.engine import TextEngine


@pytest.fixture(scope="session")
def single_thread() -> None:
    """One thread to compute with: several wait for each other on a busy machine, and nothing here is big."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", params=["llama", "gpt2"])
def tiny_engine(request: pytest.FixtureRequest, single_thread: None) -> TextEngine:
    """An engine with a tiny random model, once with rotary and once with absolute positions."""
    from service.engine.engine import TextEngine
    from tests.unit.tiny_models import loaded, tiny_gpt2, tiny_llama

    return TextEngine(loaded(tiny_llama() if request.param == "llama" else tiny_gpt2()))
