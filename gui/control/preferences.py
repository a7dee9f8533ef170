"""What the window remembers from one time to the next: one JSON file in the user's configuration folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec
import platformdirs

from service.messages.files import NotWrittenError, write_whole
from service.messages.load import USUAL_PROMPTS, Count, Length, Pattern, Poisson
from service.messages.options import ServiceOptions
from service.messages.settings import Scale, Settings

FOLDER_VARIABLE: Final = "BATCHSCOPE_CONFIG_DIR"
LARGEST_FILE_BYTES: Final = 1024 * 1024
FEWEST_S: Final = 10.0
MOST_S: Final = 600.0

ThemePreference: TypeAlias = Literal["system", "dark", "light"]


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """All that is remembered. A field that is missing or unknown in the file does not matter; a wrong one does.

    Attributes:
        layout: what the main window says of its geometry and splitters.
        window_s: stretch of time that the plots show.
    """

    theme: ThemePreference = "system"
    layout: dict[str, Any] = {}
    window_s: float = 60.0
    model: str = ServiceOptions().model
    device: str = "auto"
    dtype: str = "auto"
    settings: Settings = Settings()
    scale: Scale = Scale()
    pattern: Pattern = Poisson(rate_per_s=4.0)
    max_tokens: Length = 24
    prompt_words: Length | None = None
    prompts: tuple[str, ...] = USUAL_PROMPTS
    copies: Count = 32

    def __post_init__(self) -> None:
        if not FEWEST_S <= self.window_s <= MOST_S:
            raise ValueError(f"window_s must be from {FEWEST_S:g} to {MOST_S:g}")


def default_path() -> Path:
    """Where the file is; the environment may name another folder."""
    folder = os.environ.get(FOLDER_VARIABLE) or platformdirs.user_config_dir("batchscope", appauthor=False)
    return Path(folder) / "preferences.json"


class PreferencesFile:
    """Reads and writes one file.

    Attributes:
        complaint: why the file could not be used and where it was put, for the user; ``None`` if all is well.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_saved: bytes | None = None
        self.complaint: str | None = None

    def load(self) -> Preferences:
        """What is remembered; the defaults where there is no file, or none that can be used."""
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
        raise ValueError("it is larger than any such file")
    return content
