"""What is remembered of a batch that did not fit into memory."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from service.engine.engine import PromptError, TextEngine
from service.engine.memory import free_memory_bytes
from service.engine.out_of_memory import KEYS_SHARE, REMEMBERED_S, MemoryLimit, tokens_that_fit
from service.launch import checks
from service.messages.life import StartError
from tests.unit.tiny_models import LAYERS, loaded, tiny_llama

pytestmark = pytest.mark.promise("T10")


def test_that_without_a_failure_all_rows_are_one_part() -> None:
    assert MemoryLimit().rows is None
    assert MemoryLimit().parts("abcde") == [list("abcde")]
    assert MemoryLimit().parts("") == [[]]


def test_that_rows_are_parted_evenly_into_as_few_as_fit() -> None:
    memory = MemoryLimit()
    memory.lower(4)

    assert [len(part) for part in memory.parts("abcdefghi")] == [3, 3, 3]
    assert [row for part in memory.parts("abcdefghi") for row in part] == list("abcdefghi")
    assert memory.parts("abcd") == [list("abcd")]


def test_that_a_limit_that_ends_meanwhile_still_parts() -> None:
    times_s = iter([0.0, 1.0, REMEMBERED_S + 1])
    memory = MemoryLimit(lambda: next(times_s))
    memory.lower(2)

    assert memory.parts("abcd") == [list("ab"), list("cd")]


def test_that_one_row_is_always_tried() -> None:
    memory = MemoryLimit()
    memory.lower(0)

    assert memory.rows == 1


def test_that_more_are_tried_again_after_a_while() -> None:
    now_s = [0.0]
    memory = MemoryLimit(lambda: now_s[0])
    memory.lower(2)
    now_s[0] = REMEMBERED_S - 1
    assert memory.rows == 2

    now_s[0] = REMEMBERED_S

    assert memory.rows is None


# What fits -----------------------------------------------------------------------------------------------------------

FREE_BYTES = 1 << 20
TOTAL_BYTES = 20 * FREE_BYTES  # of which Ray wants as much to be left


@pytest.fixture
def little_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2 * FREE_BYTES, total=TOTAL_BYTES))


@pytest.mark.usefixtures("little_is_free")
def test_that_as_many_tokens_fit_as_a_share_of_the_free_memory_has_keys_and_values_for() -> None:
    model = tiny_llama()
    config = model.config
    size = config.hidden_size // config.num_attention_heads
    token_bytes = 4 * LAYERS * 2 * config.num_key_value_heads * size  # keys and values in float32
    assert tokens_that_fit(loaded(model), 1) == KEYS_SHARE * FREE_BYTES // token_bytes
    assert tokens_that_fit(loaded(model), 2) == KEYS_SHARE * FREE_BYTES // token_bytes // 2


GROUPS = {
    "version 2": ("0::/app", "app", "memory.max", "memory.current", ("inactive_file", "active_file")),
    "version 2 within a container": (
        "0::/outside",
        "",
        "memory.max",
        "memory.current",
        ("inactive_file", "active_file"),
    ),
    "version 1": (
        "4:memory:/app",
        "memory/app",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
}


@pytest.mark.usefixtures("little_is_free")
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    ("most", "used", "free"),
    [(1000, 400, 560), (1000, 2000, 0), (2 * FREE_BYTES, 10, FREE_BYTES)],
    ids=["less than the machine's", "none", "more than the machine's"],
)
def test_that_the_limit_of_a_control_group_counts_too(
    tmp_path: Path, group: str, most: int, used: int, free: int
) -> None:
    line, folder, most_name, used_name, (cached, active) = GROUPS[group]
    (own := tmp_path / "own").write_text(f"1:cpu:/\n{line}\n")
    (files := tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for name, text in ((most_name, most), (used_name, used), ("memory.stat", f"anon 5\n{cached} 7\n{active} 3")):
        (files / name).write_text(f"{text}\n")
    assert free_memory_bytes(own, tmp_path) == free


@pytest.mark.parametrize(
    ("free_bytes", "is_enough"), [(3_000_000_000, True), (1_000_000_000, False)], ids=["enough", "too little"]
)
def test_that_a_model_that_does_not_fit_beside_ray_is_refused_by_what_is_free_to_the_service(
    free_bytes: int, is_enough: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may have less than its machine, and what exceeds it is killed without a word."""
    monkeypatch.setattr(checks, "free_memory_bytes", lambda: free_bytes)
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.truncate(200_000_000)
    refused = pytest.raises(StartError, match=r"1\.0 GB are free. Close other programs, or choose a smaller model")
    with nullcontext() if is_enough else refused:
        checks.check_memory_for_model(tmp_path, replicas=1)


@pytest.mark.usefixtures("little_is_free")
def test_that_without_a_limit_the_machine_s_counts(tmp_path: Path) -> None:
    (own := tmp_path / "own").write_text("0::/\n")
    assert free_memory_bytes(own, tmp_path) == FREE_BYTES
    assert free_memory_bytes(tmp_path / "none", tmp_path) == FREE_BYTES


def test_that_a_request_that_memory_never_holds_is_refused_in_words() -> None:
    engine = TextEngine(loaded(tiny_llama()), memory_tokens=50)
    assert engine.encode("x" * 20, 30)
    with pytest.raises(PromptError, match=r"together 51, but memory holds 50\. Ask for fewer"):
        engine.encode("x" * 20, 31)
