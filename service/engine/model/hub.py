"""A model from the Hugging Face hub: safetensors, configuration and tokenizer only, fetched in a child process.

What the hub's own cache holds whole is used as it is, without asking the network.
"""

from __future__ import annotations

import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from service.engine.model.child import Outcome, run_module
from service.engine.model.folder import CONFIG, TOKENIZERS, WEIGHTS, WEIGHTS_INDEX, check_folder
from service.engine.model.report import ModelError, Report

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

REQUEST_S: Final = 4.0
ANSWER_S: Final = 8.0  # also covers a name look-up that hangs, which no request's timeout does
SMALL_FILES: Final = (
    *(CONFIG, "generation_config.json", "chat_template.jinja", "merges.txt", "added_tokens.json"),
    *("tokenizer_config.json", "special_tokens_map.json", *TOKENIZERS),
)
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")


class HubReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The child's line: how much it is going to fetch, or a sentence for the user that says why it cannot."""

    total_bytes: int | None
    refusal: str | None


def is_repo_id(spec: str) -> bool:
    return _REPO_ID.fullmatch(spec) is not None and ".." not in spec and "--" not in spec


def cached(repo_id: str) -> Path | None:
    """The model's folder in the hub's cache, if it is there and whole."""
    repository = _repository(repo_id)
    try:
        commit = (repository / "refs" / "main").read_text("ascii").strip()
        folder = repository / "snapshots" / commit
        check_folder(folder)
    except (OSError, ValueError, ModelError):
        return None
    return folder


def download(repo_id: str, report: Report) -> Path:
    """Fetch what the model needs into the hub's cache; raises `ModelError` within seconds without an answer."""
    repository = _repository(repo_id)
    before = _size(repository)
    asked_s = time.monotonic()
    reported = HubReport(None, None)

    def on_line(line: str) -> None:
        nonlocal reported
        with suppress(msgspec.MsgspecError):  # of a library's
            reported = msgspec.json.decode(line, type=HubReport)

    def on_tick() -> None:
        total = reported.total_bytes
        if total is None and time.monotonic() - asked_s > ANSWER_S:
            raise ModelError(_unreachable(repo_id))
        report("fetch", max(0, _size(repository) - before) if total else 0, total)

    outcome = run_module(
        "service.engine.model.hub",
        repo_id,
        on_line=on_line,
        on_tick=on_tick,
        environment={"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
    )
    if not outcome.is_success:
        raise ModelError(reported.refusal or _interrupted(repo_id, outcome))
    folder = cached(repo_id)
    if folder is None:
        for fetched in (repository / "snapshots").glob("*"):
            check_folder(fetched)  # raises what is wrong with it
        raise ModelError(_interrupted(repo_id, outcome))
    return folder


def _repository(repo_id: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{repo_id.replace('/', '--')}"


def _size(repository: Path) -> int:
    return sum(file.stat().st_size for file in (repository / "blobs").glob("*") if file.is_file())


def _unreachable(repo_id: str) -> str:
    return (
        f"The model {repo_id} is not on this machine yet and the Hugging Face hub can't be reached; "
        "connect to the network and start again, or pass --model a folder or a GGUF file."
    )


def _interrupted(repo_id: str, outcome: Outcome) -> str:
    return f"The model {repo_id} could not be fetched ({outcome.last_line.rstrip('.')}); start again to go on with it."


# ---------------------------------------------------------------------------------------------------------------------
# In the child
# ---------------------------------------------------------------------------------------------------------------------


def main(repo_id: str) -> int:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        info = HfApi().model_info(repo_id, files_metadata=True, timeout=REQUEST_S)
    except GatedRepoError:
        return _refuse(f"The model {repo_id} asks for an agreement first; accept it on the hub and log in with `hf`.")
    except RepositoryNotFoundError:
        return _refuse(f"There is no model {repo_id} on the hub that you may read; check its name.")
    except Exception:
        return _refuse(_unreachable(repo_id))
    files = _wanted_files(info)
    if not any(name.endswith(".safetensors") for name in files):
        return _refuse(
            f"The model {repo_id} has no weights in safetensors on the hub; choose one that has, or pass a GGUF file."
        )
    print(msgspec.json.encode(HubReport(sum(files.values()), None)).decode(), flush=True)
    snapshot_download(repo_id, allow_patterns=sorted(files), etag_timeout=REQUEST_S)
    return 0


def _refuse(reason: str) -> int:
    print(msgspec.json.encode(HubReport(None, reason)).decode(), flush=True)
    return 1


def _wanted_files(info: ModelInfo) -> dict[str, int]:
    """Name → bytes of the files that a text-generation model is loaded from."""
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    is_sharded = WEIGHTS not in sizes and WEIGHTS_INDEX in sizes
    return {
        name: size
        for name, size in sizes.items()
        if name in SMALL_FILES or (_SHARD.fullmatch(name) or name == WEIGHTS_INDEX if is_sharded else name == WEIGHTS)
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
