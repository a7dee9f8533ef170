"""A side of a comparison as the command line spells it: settings, and what is particular about its load."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence

from service.analysis.compare.plan import PlanError, Side
from service.analysis.observed.descriptions import setting_value
from service.load.options import CHOICES, SentenceParser, add_load_options, load_of
from service.messages.load import RunLoad
from service.messages.settings import Settings

ASSIGNMENT = re.compile(r"(?:^|,)\s*([a-z_-]+)\s*=")


def assignments(text: str) -> dict[str, str]:
    """
    >>> assignments("formation=early, tokens=uniform(8,64)")
    {'formation': 'early', 'tokens': 'uniform(8,64)'}
    """
    before, *rest = ASSIGNMENT.split(text)
    if before.strip() or not rest:
        raise PlanError(f"{text!r} says nothing. Write settings such as formation=early,max_batch_size=8.")
    return {name: value.strip() for name, value in zip(rest[::2], rest[1::2], strict=True)}


def side(text: str, base: Settings, options: argparse.Namespace) -> Side:
    """What `text` changes of the settings `base` and of the load that `options` declare; an empty one nothing."""
    changes = assignments(text) if text else {}
    settings = {name: setting_value(value) for name, value in changes.items() if name in Settings.__struct_fields__}
    load = {name: value for name, value in changes.items() if name not in settings}
    return Side(settings=base.revised(settings), load=_load(load, options))


def _load(changes: Mapping[str, str], options: argparse.Namespace) -> RunLoad:
    parser = SentenceParser(prog="python -m service compare", allow_abbrev=False)
    add_load_options(parser)
    common = argparse.Namespace(**vars(options))
    if "pattern" in changes:
        for field in CHOICES:  # what belongs to the other pattern
            setattr(common, field, None)
    return load_of(parser, parser.parse_args(_arguments(changes), namespace=common))


def _arguments(changes: Mapping[str, str]) -> Sequence[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in changes.items()]
