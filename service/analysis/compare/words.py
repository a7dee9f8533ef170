"""Settings and times, as they are read and written."""

from __future__ import annotations

from typing import Final

from service.analysis.observed.marks import describe_pattern, spelled_length
from service.messages.load import RunLoad
from service.messages.settings import Settings
from service.messages.text import parse_number

SWITCH: Final = {"on": True, "off": False}


def setting_value(text: str) -> object:
    """A number or a switch where it is one.

    >>> setting_value("8"), setting_value("0.05"), setting_value("late"), setting_value("off")
    (8, 0.05, 'late', False)
    """
    if text in SWITCH:
        return SWITCH[text]
    try:
        number = parse_number(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def setting_text(settings: Settings, name: str) -> str:
    """
    >>> settings = Settings(batch_wait_timeout_s=0.05, allow_small_batch=False)
    >>> [setting_text(settings, name) for name in ("batch_wait_timeout_s", "max_batch_size", "allow_small_batch")]
    ['0.05', '16', 'off']
    """
    value = getattr(settings, name)
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_text(settings: Settings, names: tuple[str, ...] = Settings.__struct_fields__) -> str:
    """Names and values.

    >>> settings_text(Settings(), ("formation", "max_batch_size"))
    'formation late, max_batch_size 16'
    """
    return ", ".join(f"{name} {setting_text(settings, name)}" for name in names)


def load_text(load: RunLoad) -> str:
    """
    >>> from service.messages.load import Poisson
    >>> load_text(RunLoad(pattern=Poisson(rate_per_s=4), prompts=("Once",), max_tokens=24))
    '4.0 req/s, 24 tokens a request'
    """
    words = "" if load.prompt_words is None else f", prompts of {spelled_length(load.prompt_words)} words"
    tokens = "" if load.max_tokens == 1 else f", {spelled_length(load.max_tokens)} tokens a request"
    whole = "" if load.stream else ", not streamed"
    return f"{describe_pattern(load.pattern)}{words}{tokens}{whole}"
