"""Joining somebody else's Ray cluster, whose machines are given the code that is to run there."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import ray

from service.messages.life import NoClusterError
from service.ray_serve.environment import SOURCE_ROOT


def join(address: str, workload: str, variables: Mapping[str, str], **options: Any) -> None:
    """Connect, with environment variables for what we run there and options for `ray.init`; raises `StartError`."""
    runtime_env = {"env_vars": dict(variables), "py_modules": [str(SOURCE_ROOT / "service"), *modules_of(workload)]}
    try:
        ray.init(address=address, runtime_env=runtime_env, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise NoClusterError(address) from error


def modules_of(workload: str) -> list[ModuleType]:
    """The user's own module or package that the workload is in, if it is in one."""
    module, colon, _ = workload.partition(":")
    return [importlib.import_module(module.partition(".")[0])] if colon else []
