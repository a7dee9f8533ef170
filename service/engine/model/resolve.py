"""From what the user calls a model to a local folder that can be loaded.

| the user says                        | it is                    | what it may need        |
|--------------------------------------|--------------------------|-------------------------|
| `auto`, `SmolLM2-135M-Instruct`      | the small default model  | `fetch`, `convert`      |
| a folder                             | safetensors, used as is  | nothing                 |
| a GGUF file                          | a model to be unpacked   | `convert`               |
| `gpt2`, `owner/name`                 | a model on the hub       | `fetch`                 |

Nothing here imports torch: what needs it runs in a child process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service.engine.model import fetch, hub
from service.engine.model.cache import Source, is_intact, locked, read_manifest, sha256_of
from service.engine.model.convert import convert
from service.engine.model.fetch import DEFAULT_MODEL
from service.engine.model.folder import ModelFolder, check_folder
from service.engine.model.gguf_file import GgufError, read_header
from service.engine.model.report import ModelError, Report, ignore
from service.messages.installation import cache_folder
from service.messages.life import StageName
from service.messages.options import AUTO_MODEL

__all__ = ["DEFAULT_MODEL", "ModelFolder", "Report", "ignore", "pending_stages", "resolve"]

GGUF_FOLDERS: Final = "gguf-"
MAX_SPEC: Final = 4096


def pending_stages(spec: str) -> tuple[StageName, ...]:
    """Which of `fetch` and `convert` the model still needs; asks no network; raises `ModelError` for a bad `spec`."""
    with _files_told():
        return _origin_of(spec).pending()


def resolve(spec: str, report: Report = ignore) -> ModelFolder:
    """Bring the model here if it is not yet, and return where it is; raises `ModelError`.

    Any number of processes may do this at once: one works and the others wait, calling `report` meanwhile.
    """
    with _files_told():
        return _origin_of(spec).bring(report)


class _DefaultModel:
    def pending(self) -> tuple[StageName, ...]:
        if is_intact(self._folder):
            return ()
        return ("convert",) if fetch.is_fetched(self._gguf) else ("fetch", "convert")

    def bring(self, report: Report) -> ModelFolder:
        with locked(DEFAULT_MODEL, lambda: report((*self.pending(), "convert")[0], 0.0, None)):
            if not is_intact(self._folder):
                if not fetch.is_fetched(self._gguf) or sha256_of(self._gguf) != fetch.GGUF_SHA256:
                    fetch.fetch_default(self._gguf, report)
                convert(self._gguf, Source.of(self._gguf, fetch.GGUF_SHA256), self._folder, report)
        return ModelFolder(DEFAULT_MODEL, self._folder)

    @property
    def _folder(self) -> Path:
        return _models() / DEFAULT_MODEL

    @property
    def _gguf(self) -> Path:
        return cache_folder() / "downloads" / Path(fetch.GGUF_MEMBER).name


@dataclass(frozen=True)
class _LocalFolder:
    path: Path

    def pending(self) -> tuple[StageName, ...]:
        check_folder(self.path)
        return ()

    def bring(self, report: Report) -> ModelFolder:
        check_folder(self.path)
        return ModelFolder(self.path.name, self.path)


@dataclass(frozen=True)
class _GgufFile:
    """Unpacked into the cache under the digest of its content; while it looks unchanged it is not read again."""

    path: Path

    def pending(self) -> tuple[StageName, ...]:
        if self._known_folder() is not None:
            return ()
        self._check()
        return ("convert",)

    def bring(self, report: Report) -> ModelFolder:
        folder = self._known_folder()
        if folder is None:
            self._check()
            folder = self._unpack(report)
        return ModelFolder(self.path.stem, folder)

    def _unpack(self, report: Report) -> Path:
        report("convert", 0.0, None)
        source = Source.of(self.path, sha256_of(self.path))
        name = GGUF_FOLDERS + source.sha256[:16]
        folder = _models() / name
        with locked(name, lambda: report("convert", 0.0, None)):
            if not is_intact(folder):
                convert(self.path, source, folder, report)
        return folder

    def _known_folder(self) -> Path | None:
        for folder in _models().glob(f"{GGUF_FOLDERS}*[0-9a-f]"):
            manifest = read_manifest(folder)
            if manifest is not None and manifest.source.is_still(self.path) and is_intact(folder):
                return folder
        return None

    def _check(self) -> None:
        try:
            read_header(self.path)
        except GgufError as error:
            raise ModelError(f"The GGUF file {self.path} can't be used: {error}; get the file anew.") from None


@dataclass(frozen=True)
class _HubModel:
    repo_id: str

    def pending(self) -> tuple[StageName, ...]:
        return () if hub.cached(self.repo_id) else ("fetch",)

    def bring(self, report: Report) -> ModelFolder:
        folder = hub.cached(self.repo_id)
        if folder is None:
            with locked(f"hub-{self.repo_id.replace('/', '--')}", lambda: report("fetch", 0.0, None)):
                folder = hub.cached(self.repo_id) or hub.download(self.repo_id, report)
        return ModelFolder(self.repo_id, folder)


def _origin_of(spec: str) -> _DefaultModel | _LocalFolder | _GgufFile | _HubModel:
    if spec in (AUTO_MODEL, DEFAULT_MODEL):
        return _DefaultModel()
    path = _existing(spec)
    if path is None:
        if _looks_like_path(spec) or not hub.is_repo_id(spec):
            shown = spec if len(spec) <= 100 else spec[:100] + "…"
            raise ModelError(f"There is no model {shown!r}; {_CHOICES}.")
        return _HubModel(spec)
    if path.is_dir():
        return _LocalFolder(path)
    if not path.is_file():
        raise ModelError(f"{path} is neither a file nor a folder; {_CHOICES}.")
    if path.suffix != ".gguf" and not _begins_as_gguf(path):
        raise ModelError(f"{path} is not a GGUF file; {_CHOICES}.")
    return _GgufFile(path)


_CHOICES: Final = f"give the folder of a model in safetensors, a GGUF file, a name on the hub, or {DEFAULT_MODEL}"


def _existing(spec: str) -> Path | None:
    if not spec.strip() or len(spec) > MAX_SPEC or "\0" in spec:
        return None
    try:
        return Path(spec).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, UnicodeError):  # RuntimeError: a link to itself, or a home of no user
        return None


def _looks_like_path(spec: str) -> bool:
    return spec.startswith((".", "/", "~")) or spec.lower().endswith((".gguf", ".safetensors", ".bin", ".pt"))


def _begins_as_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def _models() -> Path:
    return cache_folder() / "models"


@contextmanager
def _files_told() -> Iterator[None]:
    """Turn what the file system refuses into a sentence."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise ModelError(
            f"The model's files can't be read or written{where}: {error.strerror or error}; see to the disk's space "
            "and permissions, or name another folder in BATCHSCOPE_CACHE."
        ) from error
