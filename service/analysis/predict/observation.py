"""All that a prediction rests on, as one value that can travel to another process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np

from service.analysis.observed.history import History
from service.analysis.predict.cost import LEAST_BATCHES
from service.analysis.predict.executed import Executed
from service.analysis.predict.present_load import OBSERVED_S, PresentLoad, present_load
from service.analysis.predict.present_state import Standing, Surroundings, standing, surroundings


@dataclass(frozen=True)
class Observation:
    """The load, the batches and the state of a service at one moment."""

    load: PresentLoad
    executed: Executed
    surroundings: Surroundings
    standing: Standing

    @classmethod
    def of_history(cls, history: History, at_s: float | None = None, over_s: float = OBSERVED_S) -> Observation | None:
        """What was seen in the last `over_s` before `at_s` (now); ``None`` where that is too little to go by."""
        latest_s = min(history.now_s() if at_s is None else at_s, history.last_s or 0.0)
        load, executed = present_load(history, latest_s, over_s), Executed.of_history(history, latest_s)
        if load is None or len(executed) < LEAST_BATCHES:
            return None
        if executed.told_each > 1.0:
            load = replace(load, requests=load.requests.of_calls())
        return cls(load, executed, surroundings(history, latest_s), standing(history, latest_s))


def as_list(array: object) -> list[Any]:
    """For `msgspec`, which knows no arrays; NaN becomes null."""
    if isinstance(array, np.ndarray):
        return list(array.tolist())
    raise NotImplementedError(f"objects of type {type(array).__name__} are not sent")


def as_array(kind: type, values: list[Any]) -> Any:
    """The inverse of `as_list`."""
    return np.array([np.nan if value is None else value for value in values])


ENCODER: Final = msgspec.json.Encoder(enc_hook=as_list)
