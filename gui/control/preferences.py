"""Preferences that outlive the window: one JSON file in the user's configuration folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import msgspec
import platformdirs

from gui.control.arguments import ThemePreference
from service.messages.files import NotWrittenError, write_whole
from service.messages.load import USUAL_PROMPTS, Count, Length, Pattern, Poisson
from service.messages.objectives import Objectives
from service.messages.options import ServiceOptions
from service.messages.settings import Scale, Settings

FOLDER_VARIABLE: Final = "BATCHSCOPE_CONFIG_DIR"
LARGEST_FILE_BYTES: Final = 1024 * 1024
FEWEST_S: Final = 10.0
MOST_S: Final = 600.0
MEASURES: Final = ("latency", "ttft", "tpot")


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file. Missing and unknown fields are accepted, invalid values are not.

    Attributes:
        layout: geometry and splitters of the main window.
        window_s: seconds that the plots show.
        stages_s: see `Choices`.
        measure: which time of the requests the plots of latency show, one of `MEASURES`.
        usual_numbers: see `LoadPanel`.
        prompts: that the window shows.
        workload: whose `prompts` they are; ``None`` for what `model` names.
        other_prompts: that were written for other workloads, by their names.
        token_files: of the running services that were looked at, the latest last, by their addresses; empty for none.
    """

    theme: ThemePreference = "system"
    layout: dict[str, Any] = {}
    window_s: float = 60.0
    stages_s: dict[str, dict[str, float]] = {}
    measure: str = MEASURES[0]
    model: str = ServiceOptions().model
    token_files: dict[str, str] = {}
    device: str = "auto"
    dtype: str = "auto"
    deterministic: bool = False
    settings: Settings = Settings()
    scale: Scale = Scale()
    pattern: Pattern = Poisson(rate_per_s=4.0)
    usual_numbers: tuple[str, ...] | None = None
    max_tokens: Length = 24
    prompt_words: Length | None = None
    objectives: Objectives = Objectives()
    prompts: tuple[str, ...] = USUAL_PROMPTS
    workload: str | None = None
    other_prompts: dict[str, tuple[str, ...]] = {}
    copies: Count = 32

    def __post_init__(self) -> None:
        if not FEWEST_S <= self.window_s <= MOST_S:
            raise ValueError(f"window_s must be from {FEWEST_S:g} to {MOST_S:g}")
        if self.measure not in MEASURES:
            raise ValueError(f"measure must be one of {', '.join(MEASURES)}")


def default_path() -> Path:
    """The path of the file; an environment variable may name another folder."""
    folder = os.environ.get(FOLDER_VARIABLE) or platformdirs.user_config_dir("batchscope", appauthor=False)
    return Path(folder) / "preferences.json"


class PreferencesFile:
    """Reads and writes one file.

    Attributes:
        complaint: a sentence that says why the file was not used and where it is kept; ``None`` if it was used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_saved: bytes | None = None
        self.complaint: str | None = None

    def load(self) -> Preferences:
        """Read the file; returns defaults if it is missing or unusable."""
        try:
            content = _read(self._path)
            self._last_saved = content
            return msgspec.json.decode(content, type=Preferences)
        except FileNotFoundError:
            return Preferences()
        except (OSError, UnicodeDecodeError, msgspec.MsgspecError, RecursionError, ValueError) as error:
            self.complaint = f"The saved preferences could not be used ({error}). {self._put_aside()}"
            return Preferences()

    def save(self, preferences: Preferences) -> None:
        """Write `preferences` if they differ from what the file holds; raises `NotWrittenError`."""
        content = msgspec.json.format(msgspec.json.encode(preferences), indent=2)
        if content == self._last_saved:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotWrittenError(f"The folder {self._path.parent} could not be made: {error.strerror}.") from error
        write_whole(self._path, content)
        self._last_saved = content

    def _put_aside(self) -> str:
        """Keep the damaged file under another name, so that saving does not overwrite it."""
        aside = self._path.with_suffix(".damaged.json")
        number = 1
        while aside.exists():
            number += 1
            aside = self._path.with_suffix(f".damaged-{number}.json")
        try:
            self._path.rename(aside)
        except OSError:
            return "Defaults are used."
        return f"Defaults are used; the file is kept as {aside}."


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise ValueError("it is not a file")
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE_BYTES + 1)
    if len(content) > LARGEST_FILE_BYTES:
        raise ValueError("it is larger than any preferences")
    return content
