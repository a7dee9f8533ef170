"""The user's choices, from the command line, the preferences or the window: restored once, saved at the end."""

from __future__ import annotations

from functools import partial
from pathlib import PurePath
from typing import Final

import msgspec
from PySide6.QtCore import QObject

from gui.control.arguments import Arguments
from gui.control.preferences import Preferences
from gui.look.theme import Theme
from gui.main_window import MainWindow
from service.messages.load import RunLoad
from service.messages.options import (
    AUTO_MODEL,
    LARGE_MODEL,
    SMALL_MODEL,
    STUB_MODEL,
    Attachment,
    ServiceOptions,
    address_of,
)
from service.messages.workload import TEXT, WorkloadAbout
from service.workloads.catalog import BUILT_IN, is_function

MOST_STARTS: Final = 20
MOST_ADDRESSES: Final = 5
MOST_WORKLOADS: Final = 20
ATTACHES: Final = "Shows what it does: batches, queue and latency of all its clients."
MODELS: Final = (AUTO_MODEL, SMALL_MODEL, LARGE_MODEL, STUB_MODEL)
LARGE_MODEL_NAME: Final = PurePath(LARGE_MODEL).name
SIZES: Final = {
    AUTO_MODEL: f"93 MB; on a GPU of 8 GB or more {LARGE_MODEL_NAME}, 3.4 GB",
    SMALL_MODEL: "93 MB",
    LARGE_MODEL: "3.4 GB",
}
ABOUT: Final = {each.name: each for each in BUILT_IN}
FUNCTIONS: Final = tuple(name for name in ABOUT if name != TEXT.name)


def workload_of(model: str) -> str:
    """The workload that an entry in the model's place names.

    >>> workload_of("gpt2"), workload_of("adder"), workload_of("mine:Squares")
    ('text', 'adder', 'mine:Squares')
    """
    return model if is_function(model) else TEXT.name


class Choices(QObject):
    """Restores the window's controls, and keeps the choices that no panel holds.

    Attributes:
        model: a text generator, or in its place another workload's name, or the address of a running service.
        window_s: seconds that the plots show.
        stages_s: how long the stages of the last starts took, by what was started and by the stages' names.
        measure: which time of the requests the plots of latency show.
    """

    def __init__(self, window: MainWindow, theme: Theme, arguments: Arguments, preferences: Preferences) -> None:
        super().__init__(window)
        self._window = window
        self._theme = theme
        self.model = arguments.model or preferences.model
        self._token_files = dict(preferences.token_files)
        if arguments.attachment is not None:
            self.model = arguments.attachment.url
            self._token_files[self.model] = arguments.attachment.token_file
        self.device = arguments.device or preferences.device
        self.dtype = arguments.dtype or preferences.dtype
        self.deterministic = preferences.deterministic
        self.window_s = preferences.window_s
        self.measure: str = preferences.measure
        self.stages_s = dict(preferences.stages_s)
        self._workload = preferences.workload or workload_of(preferences.model)  # whose lines the panel shows
        self._lines = {**preferences.other_prompts, self._workload: preferences.prompts}
        toolbar = self._window.toolbar
        toolbar.set_models(MODELS, FUNCTIONS, self.model)
        self._offer_addresses()
        window.set_attaching(self.attachment is not None)
        toolbar.set_device(self.device, self.dtype)
        toolbar.deterministic_action.setChecked(self.deterministic)
        toolbar.set_window_s(self.window_s)
        toolbar.model_chosen.connect(self._on_model_chosen)
        toolbar.token_file_chosen.connect(self._on_token_file_chosen)
        toolbar.device_chosen.connect(partial(setattr, self, "device"))
        toolbar.dtype_chosen.connect(partial(setattr, self, "dtype"))
        toolbar.deterministic_action.toggled.connect(partial(setattr, self, "deterministic"))
        self._restore_panels(preferences)

    def _restore_panels(self, preferences: Preferences) -> None:
        window = self._window
        window.batching.show_settings(preferences.settings)
        window.batching.redeployment.show_scale(preferences.scale)
        window.load.set_load(preferences.pattern, preferences.max_tokens, preferences.prompt_words)
        window.load.set_usual_numbers(preferences.usual_numbers)
        window.load.objectives.set_objectives(preferences.objectives)
        if self.attachment is None:
            self._workload = workload_of(self.model)
        self._show_workload()
        window.prompts.set_copies(preferences.copies)
        window.restore_layout(preferences.layout)

    @property
    def attachment(self) -> Attachment | None:
        """The running service to look at; ``None`` where one is to be started."""
        url = address_of(self.model)
        return None if url is None else Attachment(url, self._token_files.get(url, ""))

    @property
    def service_options(self) -> ServiceOptions:
        batching = self._window.batching
        options = ServiceOptions(
            device=self.device, settings=batching.settings, **msgspec.structs.asdict(batching.redeployment.scale)
        )
        if is_function(self.model):
            return msgspec.structs.replace(options, workload=self.model)
        return msgspec.structs.replace(options, model=self.model, dtype=self.dtype, deterministic=self.deterministic)

    @property
    def load(self) -> RunLoad:
        """What "Run load" sends."""
        panel = self._window.load
        return RunLoad(
            pattern=panel.pattern,
            prompts=self._window.prompts.prompts,
            max_tokens=panel.max_tokens,
            prompt_words=panel.prompt_words,
        )

    @property
    def unit(self) -> str | None:
        """The unit that the chosen workload counts, in the plural; ``None`` where only the service knows it."""
        about = ABOUT.get(workload_of(self.model)) if self.attachment is None else None
        return about.unit if about is not None else None

    @property
    def invitation(self) -> tuple[str, str]:
        """Two sentences for the empty window: where everything runs, and what Start does."""
        if self.attachment is not None:
            return f"It runs at {self.attachment.url}, and goes on when the window closes.", ATTACHES
        size = SIZES.get(self.model)
        once = f" The first start fetches the model ({size})." if size else ""
        name = "a model" if self.model == AUTO_MODEL else PurePath(self.model).name or self.model
        about = ABOUT.get(workload_of(self.model))
        if about is not None and about != TEXT:
            once = f" {about.description}."
        return f"Everything runs on this machine, on 127.0.0.1.{once}", f"Loads {name} into a Ray Serve replica."

    def preferences(self) -> Preferences:
        """All choices that the next window restores."""
        window = self._window
        others = [(name, lines) for name, lines in self._lines.items() if name != self._workload]
        max_tokens, prompt_words = window.load.lengths
        return Preferences(
            theme=self._theme.preference,
            layout=window.layout_state(),
            window_s=self.window_s,
            measure=self.measure,
            stages_s=self.stages_s,
            model=self.model,
            token_files=dict(list(self._token_files.items())[-MOST_ADDRESSES:]),
            device=self.device,
            dtype=self.dtype,
            deterministic=self.deterministic,
            settings=window.batching.settings,
            scale=window.batching.redeployment.scale,
            pattern=window.load.pattern,
            usual_numbers=window.load.usual_numbers,
            max_tokens=max_tokens,
            prompt_words=prompt_words,
            objectives=window.load.objectives.objectives,
            prompts=window.prompts.prompts,
            workload=self._workload,
            other_prompts=dict(others[-MOST_WORKLOADS:]),
            copies=window.prompts.copies,
        )

    @property
    def usual_stages_s(self) -> dict[str, float]:
        """How long the stages took when what is chosen was started last."""
        return self.stages_s.get(self._started, {})

    def note_start(self, stages_s: dict[str, float]) -> None:
        """Remember how long the stages of a start took, or which service was attached to."""
        at = self.attachment
        if at is not None:
            self._token_files.pop(at.url, None)
            self._token_files[at.url] = at.token_file
            self._offer_addresses()
            return
        self.stages_s.pop(self._started, None)
        self.stages_s[self._started] = stages_s
        while len(self.stages_s) > MOST_STARTS:
            del self.stages_s[next(iter(self.stages_s))]

    @property
    def _started(self) -> str:
        return f"{self.model} on {self.device}"

    def note_workload(self, about: WorkloadAbout) -> None:
        """Take over the description of a workload; one of the user's own is first described by the running service."""
        if self.attachment is not None and about.name != self._workload:
            self._leave_for(about.name)
            self._window.prompts.set_prompts(self._lines.get(about.name, ()))
        self._window.set_generates(about.generates)
        if not self._window.prompts.prompts:
            self._window.prompts.set_prompts(about.examples)

    def _show_workload(self) -> None:
        """Show the lines that were written for the workload, or its examples."""
        about = ABOUT.get(self._workload)
        examples = about.examples if about is not None else ()
        self._window.set_generates(self._workload == TEXT.name)
        self._window.prompts.set_prompts(self._lines.get(self._workload) or examples)

    def _leave_for(self, workload: str) -> None:
        """Keep the lines of the workload that the panel shows, until it is chosen again."""
        self._lines.pop(self._workload, None)
        self._lines[self._workload] = self._window.prompts.prompts
        self._workload = workload

    def _on_model_chosen(self, model: str) -> None:
        self.model = model
        self._window.set_attaching(self.attachment is not None)
        if self.attachment is None and workload_of(model) != self._workload:  # a running service says which it has
            self._leave_for(workload_of(model))
            self._show_workload()
        if self._window.notice.empty.isVisible():
            self._window.notice.show_empty(*self.invitation)

    def _offer_addresses(self) -> None:
        """Offer the services that were looked at last, the latest first."""
        self._window.toolbar.offer_addresses(tuple(reversed(self._token_files))[:MOST_ADDRESSES])

    def _on_token_file_chosen(self, path: str) -> None:
        at = self.attachment
        if at is not None:
            self._token_files[at.url] = path
