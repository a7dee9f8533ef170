"""An external Ray cluster: the service connects, runs its application there, and removes nothing but that.

`python -m service.ray_serve.external ADDRESS` removes the application after its driver was killed.
"""

from __future__ import annotations

import importlib
import ipaddress
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import ray
from ray import serve
from ray.serve import context

from service.messages.life import NoClusterError, StartError
from service.messages.options import APP_NAME, RunOptions, is_loopback
from service.messages.pipes import SOURCE_ROOT
from service.ray_serve import application
from service.ray_serve.environment import door_variables
from service.ray_serve.local_cluster import OwnPackagesFirst

ANY_ADDRESS: Final = ("0.0.0.0", "::")


class ExternalCluster:
    """The cluster at the address that the user typed. The doors stand in our application, not in its proxy."""

    def __init__(self, options: RunOptions, instance: str, note: Path) -> None:
        self._options = options
        self._instance = instance
        self._note = note

    def start(self) -> dict[str, int]:
        variables = door_variables(self._options, self._instance, place="app")
        join(self._options.address or "", self._options.service.workload, variables)
        return {}

    def start_serve(self) -> tuple[str, int]:
        """Start Serve unless it runs there already; returns where its proxy listens."""
        serve.start(http_options={"host": self._options.host, "port": self._options.port or 8000})
        if application.is_deployed():
            raise StartError(
                f"The cluster already runs an application named {APP_NAME}, and it stays untouched. Delete "
                f"it there with: serve delete {APP_NAME}"
            )
        where = self._listening_address()
        self._note.write_text(self._options.address or "")
        return where

    def release(self) -> None:
        if self._note.exists():
            application.delete()
            self._note.unlink()

    def _listening_address(self) -> tuple[str, int]:
        # WORKAROUND ray 2.60: no public name gives the options that Serve was started with.
        client = context._get_global_client()
        assert client is not None
        options = client.http_config
        host = str(options.host)
        if host in ANY_ADDRESS:
            host = self._head_address()
        if not is_loopback(host) and is_loopback(self._options.host):
            raise StartError(
                f"The cluster's proxy listens on {host}, where other machines reach it: give --host {host} and a "
                "bearer token with --token-file FILE."
            )
        return host, int(options.port)

    def _head_address(self) -> str:
        host = (self._options.address or "").removeprefix("ray://").rpartition(":")[0]
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        return host


def join(address: str, workload: str, variables: Mapping[str, str], **options: Any) -> None:
    """Connect, with environment variables for what we run there and options for `ray.init`; raises `StartError`."""
    runtime_env = {"env_vars": dict(variables), "py_modules": [str(SOURCE_ROOT / "service"), *modules_of(workload)]}
    try:
        ray.init(address=address, job_config=OwnPackagesFirst(), runtime_env=runtime_env, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise NoClusterError(address) from error


def modules_of(workload: str) -> list[ModuleType]:
    """The user's own module or package that the workload is in, if it is in one."""
    module, colon, _ = workload.partition(":")
    return [importlib.import_module(module.partition(".")[0])] if colon else []


def main() -> None:
    ray.init(address=sys.argv[1], log_to_driver=False)
    application.delete()


if __name__ == "__main__":
    main()
