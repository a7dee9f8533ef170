"""Where the application runs: a Ray cluster of its own on this machine, or an external one.

`python -m service.ray_serve.clusters ADDRESS` removes the application after its driver was killed.
"""

from __future__ import annotations

import importlib
import ipaddress
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import grpc
import psutil
import ray
from ray import serve
from ray._private import services
from ray._private.node import Node
from ray._private.ray_constants import PROCESS_TYPE_RAYLET
from ray.exceptions import AuthenticationError
from ray.job_config import JobConfig

from service.messages.life import ClusterTokenError, NoClusterError, PortTakenError, StartError
from service.messages.options import RunOptions, is_loopback
from service.messages.pipes import SOURCE_ROOT
from service.messages.settings import SCALE_BOUNDS
from service.ray_serve import application
from service.ray_serve.environment import door_variables

OBJECT_STORE_BYTES: Final = 128 * 2**20  # prompts and texts are small; Ray would take a third of the memory
PORT_ATTEMPTS: Final = 5
END_LIMIT_S: Final = 5.0
MOST_REPLICAS: Final = int(SCALE_BOUNDS["replicas"].high)
VITAL_NAMES: Final = {"gcs_server": "control store (GCS)", "raylet": "node manager (raylet)"}
ANY_METHOD: Final = "/ray.rpc.NodeInfoGcsService/CheckAlive"  # it is refused before it is looked up
ASKING_LIMIT_S: Final = 5.0
NO_AGENT: Final = "import os, time; raylet = os.getppid()\nwhile os.getppid() == raylet: time.sleep(1.0)"
TOKEN_PATH: Final = Path("~/.ray/auth_token")


class OwnPackagesFirst(JobConfig):
    """Keeps Ray from searching the current folder first in its workers, where a package of the user's could hide ours.

    The user's workload is still found: `service.workloads.catalog` searches the current folder last.
    """

    def _runtime_env_has_working_dir(self) -> bool:
        # WORKAROUND ray 2.60: nothing public keeps the driver's current folder out of its workers' `sys.path`.
        return True


@contextmanager
def essential_processes(agent_port: int) -> Iterator[None]:
    """A Ray that is started here leaves out what nothing here needs, and does not wait for its one agent, at this port.

    WORKAROUND ray 2.60: no option leaves out the autoscaler's monitor, the dashboard's server and its agent, in whose
    place the raylet insists on having something. And it dies when an agent takes longer than 15 s to say its ports, as
    on a busy machine, and the start fails half a minute later (https://github.com/ray-project/ray/issues/65983). Ports
    that it knows from its command it does not wait for.
    """
    start = services.start_ray_process

    def start_process(command: list[str], process_type: str, *arguments: Any, **options: Any) -> Any:
        if process_type == PROCESS_TYPE_RAYLET:
            command = with_one_agent(command, agent_port)
        return start(command, process_type, *arguments, **options)

    def start_nothing(*_: object, **__: object) -> None: ...

    replaced = {
        (services, "start_ray_process"): start_process,
        (Node, "start_monitor"): start_nothing,
        (Node, "start_api_server"): start_nothing,
    }
    as_shipped = {place: getattr(*place) for place in replaced}
    try:
        for place, by in replaced.items():
            setattr(*place, by)
        yield
    finally:
        for place, was in as_shipped.items():
            setattr(*place, was)


def with_one_agent(raylet: Sequence[str], port: int) -> list[str]:
    r"""The command of a raylet whose one agent is that for environments, which listens on `port`.

    >>> agents = "--runtime_env_agent_command=a.py --runtime-env-agent-port=0", "--dashboard_agent_command=b.py"
    >>> with_one_agent(["raylet", "--metrics-agent-port=0", agents[0]], 20011)[1:3]
    ['--metrics-agent-port=-1', '--runtime_env_agent_command=a.py --runtime-env-agent-port=20011']
    >>> "b.py" in " ".join(with_one_agent(["raylet", *agents], 20011))
    False
    """
    said: dict[str, object] = {
        "--metrics-agent-port": -1,
        "--metrics_export_port": -1,
        "--runtime_env_agent_port": port,
        "--dashboard_agent_command": subprocess.list2cmdline([sys.executable, "-ISc", NO_AGENT]),
    }
    words = []
    for word in raylet:
        name, _, value = word.partition("=")
        if name in said:
            value = str(said[name])
        elif name == "--runtime_env_agent_command":
            value = re.sub(r"(--runtime-env-agent-port=)\w+", rf"\g<1>{port}", value)
        words.append(f"{name}={value}" if "=" in word else word)
    return [*words, "--dashboard_agent_listen_port=-1"]


class LocalCluster:
    """Starts Ray and Serve here, reachable from this machine alone.

    Ending them is the supervisor's work, which needs no word from Ray for it.
    """

    def __init__(
        self,
        options: RunOptions,
        directory: str,
        choose_port: Callable[[], int],
        choose_agent_port: Callable[[], int],
    ) -> None:
        """`choose_port` gives the port that Serve listens on, and the other one that of Ray's agent."""
        self._options = options
        self._directory = directory
        self._choose_port = choose_port
        self._choose_agent_port = choose_agent_port

    def start(self) -> dict[str, int]:
        """Start Ray; returns the numbers of the vital processes by their names for the user."""
        _make_token_private()
        strangers = _children()
        try:
            self._start_ray()
        except Exception as error:  # of no type of its own: one of its processes did not come up, or lost its port
            print(f"Ray did not start, and is started once more: {error}", file=sys.stderr)
            _end(_children() - strangers)
            self._start_ray()
        names = {child.pid: child.name().removesuffix(".exe") for child in _children() - strangers}
        return {VITAL_NAMES[name]: pid for pid, name in names.items() if name in VITAL_NAMES}

    def _start_ray(self) -> None:
        with essential_processes(self._choose_agent_port()):
            ray.init(
                address="local",
                job_config=OwnPackagesFirst(),
                num_cpus=max(cpu_count(), MOST_REPLICAS),  # each takes one, and this Ray serves nothing else
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                # Ray opens the mode of its folder to all, hence one inside of ours. Short: sockets lie deep within, and
                # their paths must not pass 103 characters.
                _temp_dir=os.path.join(self._directory, "r"),
            )

    def start_serve(self) -> tuple[str, int]:
        """Start Serve's proxy; returns where it listens."""
        for _ in range(PORT_ATTEMPTS):
            port = self._choose_port()
            try:
                application.start_serve(self._options.host, port)
            except PortTakenError:
                if self._options.port:
                    raise
            else:
                return self._options.host, port
        raise StartError("Other programs take every port just before the service does. Start it again.")

    def release(self) -> None:
        """Nothing: see the class."""


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children())


def _end(processes: set[psutil.Process]) -> None:
    """Kill them and what they started."""
    lineage = set(processes)
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            lineage.update(each.children(recursive=True))
    for each in lineage:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(lineage, timeout=END_LIMIT_S)


def cpu_count() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _make_token_private() -> None:
    # Ray 2.60 writes the token that guards it readable by all where the umask allows that.
    with suppress(FileNotFoundError):
        TOKEN_PATH.expanduser().chmod(0o600)


ANY_ADDRESS: Final = ("0.0.0.0", "::")


class ExternalCluster:
    """The cluster at the address that the user typed; nothing is removed from it but our application.

    The doors stand in that, not in the cluster's proxy.
    """

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
        self._check_place()
        where = self._listening_address()
        self._note.write_text(f"{self._options.address}\n{self._options.name}")
        return where

    def _check_place(self) -> None:
        """Raise `StartError` where another application has the name or the route."""
        name, prefix = self._options.name, self._options.route_prefix
        deployed = application.deployed()
        if name in deployed:
            raise StartError(
                f"The cluster already runs an application named {name}, and it stays untouched. Delete it there with: "
                f"serve delete {name}; or give this one another name with --name."
            )
        other = next((each for each, route in deployed.items() if route == prefix), None)
        if other is not None:
            raise StartError(
                f"The cluster serves the application {other} at {prefix}, and it stays untouched. Give this one "
                "another place with --route-prefix, such as /batchscope."
            )

    def release(self) -> None:
        if self._note.exists():
            application.delete(self._options.name)
            self._note.unlink()

    def _listening_address(self) -> tuple[str, int]:
        options = application.serve_client().http_config
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
    is_asked, is_given = asks_for_token(address), os.environ.get("RAY_AUTH_MODE") == "token"
    if is_asked and not is_given:
        raise ClusterTokenError(address, is_given=False)
    try:
        ray.init(address=address, job_config=OwnPackagesFirst(), runtime_env=runtime_env, **options)
    except AuthenticationError as error:  # there is none in any of its places
        raise ClusterTokenError(address, is_given=False) from error
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise (ClusterTokenError(address, is_given=True) if is_asked else NoClusterError(address)) from error


def asks_for_token(address: str) -> bool:
    """Whether Ray's control store at an address refuses a call without a token; `ray.init` does not report that."""
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(ANY_METHOD)(b"", timeout=ASKING_LIMIT_S)
        except grpc.RpcError as error:
            return bool(error.code() == grpc.StatusCode.UNAUTHENTICATED)
    return False


def modules_of(workload: str) -> list[ModuleType]:
    """The user's own module or package that the workload is in, if it is in one."""
    module, colon, _ = workload.partition(":")
    return [importlib.import_module(module.partition(".")[0])] if colon else []


def main() -> None:
    address, name = sys.argv[1:]
    ray.init(address=address, log_to_driver=False)
    application.delete(name)


if __name__ == "__main__":
    main()
