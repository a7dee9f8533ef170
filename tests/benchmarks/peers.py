"""Other servers of the same weights, each as it is shipped, started and ended like ours."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from service.engine.cores import usable_cores
from service.engine.model.cache import cache_folder
from service.engine.model.fetch import GGUF_MEMBER
from service.engine.model.resolve import DEFAULT_MODEL, resolve
from service.launch.checks import free_port
from tests.benchmarks.measure import batchscope

SLOTS: Final = 32
START_TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.2
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True)
class Peer:
    """A server, and what its requests hold so that each generates all of its tokens."""

    name: str
    served: Callable[[], AbstractContextManager[str]]
    fields: dict[str, Any] = field(default_factory=dict)


def peers(environment: Path, formation: str, dtype: str) -> tuple[Peer, ...]:
    """Ours first, in that formation and dtype, and those that `environment`, a virtual one, has."""
    return (
        Peer("ours", lambda: _ours(formation, dtype), {"ignore_eos": True}),
        Peer("transformers", lambda: _transformers(environment)),
        Peer("llama.cpp", lambda: _llama_cpp(environment), {"ignore_eos": True}),
    )


@contextmanager
def _ours(formation: str, dtype: str) -> Iterator[str]:
    how = ("--formation", formation, "--dtype", dtype, "--max-batch-size", str(SLOTS))
    with batchscope("--port", "0", *how) as ready:
        yield ready.url


@contextmanager
def _transformers(environment: Path) -> Iterator[str]:
    """It refuses `ignore_eos`, so its model names no token that ends a text."""
    port = free_port(LOOPBACK)
    with tempfile.TemporaryDirectory() as name:
        folder = _endless(resolve(DEFAULT_MODEL).path, Path(name))
        place = ("--host", LOOPBACK, "--port", str(port))
        program = environment / "bin" / "transformers"
        with _running(program, "serve", str(folder), "--continuous-batching", "--device", "cpu", *place) as process:
            _wait_for(f"http://{LOOPBACK}:{port}/health", process)  # its /v1/models wants a hub
            yield f"http://{LOOPBACK}:{port}"


@contextmanager
def _llama_cpp(environment: Path) -> Iterator[str]:
    gguf = cache_folder() / "downloads" / Path(GGUF_MEMBER).name
    script = Path(__file__).with_name("llama_cpp_server.py")
    python = environment / "bin" / "python"
    with _running(python, str(script), str(gguf), str(SLOTS), str(usable_cores())) as process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        if not url:
            raise SystemExit("llama.cpp's server did not start.")
        yield url


@contextmanager
def _running(program: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """In a session of its own, as ours is: Linux shares the processor out among sessions."""
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    command = [str(program), *arguments]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(int(START_TIMEOUT_S / POLL_S)):
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url):
            return
        if process.poll() is not None:
            break
        time.sleep(POLL_S)
    raise SystemExit(f"{url} does not answer.")


def _endless(model: Path, folder: Path) -> Path:
    """The model in a folder of its own in which no token ends a text."""
    for file in model.iterdir():
        if file.name in ("config.json", "generation_config.json"):
            settings = json.loads(file.read_text())
            (folder / file.name).write_text(json.dumps({**settings, "eos_token_id": None}))
        else:
            (folder / file.name).symlink_to(file)
    return folder
