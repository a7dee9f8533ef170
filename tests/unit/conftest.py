"""Fixtures of the unit tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # torch takes seconds to import, and most unit tests do without; so it is with Ray
    from service.engine.engine import TextEngine


os.environ["TRITON_INTERPRET"] = "1"  # read where a kernel is defined: those for a GPU run on the processor


@pytest.fixture(scope="session")
def _batch_queue_that_ends_silently() -> Iterator[None]:
    """Ray's queue asks for an event loop when it is collected, and makes one where there is none."""
    from ray.serve import batching

    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(batching._BatchQueue, "__del__")
        yield


@pytest.fixture
def replica_context(_batch_queue_that_ends_silently: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's `@serve.batch` as in a replica, which it asks how many requests that may hold."""
    from ray import serve

    context = SimpleNamespace(_deployment_config=SimpleNamespace(max_ongoing_requests=100_000))
    monkeypatch.setattr(serve, "get_replica_context", lambda: context)


@pytest.fixture(scope="session")
def single_thread() -> None:
    """One thread to compute with: several wait for each other on a busy machine, and nothing here is big."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", params=["llama", "lean llama", "graphed llama", "gpt2"])
def tiny_engine(request: pytest.FixtureRequest, single_thread: None) -> TextEngine:
    """An engine with a tiny random model: with rotary positions, optimized or not, and with absolute ones."""
    import torch

    from service.engine.engine import TextEngine
    from service.engine.model.optimize import optimized
    from tests.unit.tiny_models import graphed, loaded, tiny_gpt2, tiny_llama

    model = tiny_gpt2() if request.param == "gpt2" else tiny_llama()
    if request.param not in ("lean llama", "graphed llama"):
        return TextEngine(loaded(model))
    lean = optimized(model, torch.device("cpu"))
    if request.param == "lean llama":
        return TextEngine(loaded(model, forward=lean))
    engine = TextEngine(loaded(model, forward=graphed(lean)))
    engine.forward.is_ahead = True  # as on a GPU
    return engine
