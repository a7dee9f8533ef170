"""The process that imports Ray: it starts everything, reports how far it is, and then only has to exist.

`python -m service.launch.driver PLAN`, started by the supervisor, which alone ends it: when the pipe that is its
standard input ends, the driver does so too, in whatever stage it is. It cleans up nothing that runs on this machine. It
may be killed at any time, so the supervisor, or its reaper, must be able to do all of that anyway.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import NoReturn, Protocol

import msgspec

from service.engine.model.report import ModelError
from service.engine.model.resolve import pending_stages, resolve
from service.launch import checks
from service.launch.driver_protocol import DriverMessage, DriverPlan, VitalProcesses
from service.launch.reaper import deployed_file
from service.launch.stages import StageReporter, stages_to
from service.messages.life import Failed, Ready, Stage, StartError, Starting
from service.messages.options import read_token
from service.messages.workload import TEXT
from service.workloads.catalog import WorkloadError, about, computes_on_device

DEVICES_EVERYWHERE = ("auto", "cpu")
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Cluster(Protocol):
    """Where the application runs: `LocalCluster` or `ExternalCluster`."""

    def start(self) -> dict[str, int]: ...
    def start_serve(self) -> tuple[str, int]: ...
    def release(self) -> None: ...


class Driver:
    """One start, stage by stage."""

    def __init__(self, plan: DriverPlan, emit: Callable[[DriverMessage], None]) -> None:
        self._plan = plan
        self._options = plan.options
        self._service = plan.options.service
        self._emit = emit
        self._stages = StageReporter(emit)
        self._cluster: Cluster | None = None
        self._releasing = threading.Lock()

    def start(self) -> None:
        """Go through all stages to `Ready`; raises `StartError`, `ModelError` or `WorkloadError`."""
        self._emit(Starting(instance=self._plan.instance, stages=self._stages_ahead()))
        with self._stages.running("check"):
            self._check()
        if self._options.address is None and self._has_model:
            folder = resolve(self._service.model, self._stages.model_progress)
            checks.check_memory_for_model(folder.path, self._service.replicas)
        with self._stages.running("ray"):
            cluster = self._start_ray()
        with self._stages.running("serve"):
            host, port = cluster.start_serve()
        with self._stages.running("load"):
            self._load()
        with self._stages.running("answer"):
            ready = self._have_answered(WILDCARDS.get(host, host), port)
        self._emit(ready)

    def release(self) -> None:
        """Leave nothing on a cluster that goes on without us."""
        with self._releasing:
            if self._cluster is not None:
                self._cluster.release()
                self._cluster = None

    def _stages_ahead(self) -> tuple[Stage, ...]:
        # On an external cluster each replica gets the model where it runs, as part of loading it.
        model, is_local = self._service.model, self._options.address is None
        pending = pending_stages(model) if is_local and self._has_model else ()
        workload = self._service.workload
        return stages_to(os.path.basename(model), pending, is_local=is_local, workload=workload)

    @property
    def _has_model(self) -> bool:
        return self._service.workload == TEXT.name

    def _check(self) -> None:
        about(self._service.workload)
        if self._options.address is not None:
            checks.check_address(self._options.address)
        else:
            checks.check_memory_for_ray()
            checks.check_port(self._options)
            self._check_device()

    def _check_device(self) -> None:
        device = self._service.device
        if device not in DEVICES_EVERYWHERE and computes_on_device(self._service.workload):
            checks.check_device(device)

    def _start_ray(self) -> Cluster:
        # Ray is imported here, within the stage that is called after it, and not before a download.
        from service.ray_serve import gpus

        if self._options.address is None:
            self._service = gpus.pin_gpu(self._service)
        gpus.check_index(self._service)
        self._cluster = cluster = self._choose_cluster()
        self._emit(VitalProcesses(cluster.start()))
        gpus.check_count(self._service)
        return cluster

    def _choose_cluster(self) -> Cluster:
        if self._options.address is None:
            from service.ray_serve.local_cluster import LocalCluster

            return LocalCluster(self._options, self._plan.directory, partial(checks.choose_port, self._options))
        from service.ray_serve.external import ExternalCluster

        return ExternalCluster(self._options, self._plan.instance, deployed_file(self._plan.directory))

    def _load(self) -> None:
        from service.ray_serve import application

        application.deploy(self._options.app, self._service)
        application.wait_until_running(self._service.replicas, self._stages.progress)

    def _have_answered(self, host: str, port: int) -> Ready:
        from service.launch.first_answer import Caller

        token = read_token(self._options.token_file) if self._options.token_file is not None else None
        answers = Caller(host, port, self._plan.instance, token).first_answer()
        return Ready(
            url=f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}",
            instance=self._plan.instance,
            model=answers.model,
            device=answers.device,
            dtype=answers.dtype,
            context_length=answers.context_length,
            workload=answers.workload,
            replicas=self._service.replicas,
            started_in_s=round(time.monotonic() - self._plan.started_s, 3),
        )


def main() -> NoReturn:
    os.umask(0o077)
    emit = claim_stdout()
    plan = msgspec.json.decode(sys.argv[1], type=DriverPlan)
    driver = Driver(plan, emit)
    threading.Thread(target=end_with_lifeline, args=(driver,), daemon=True, name="lifeline").start()
    try:
        driver.start()
    except (StartError, ModelError, WorkloadError) as error:
        fail(driver, emit, str(error))
    except BaseException as error:
        traceback.print_exc()
        line = str(error).strip().splitlines()[-1:] or [""]
        fail(driver, emit, f"The service could not start: {type(error).__name__}: {line[0]} The log says more.")
    while True:
        time.sleep(3600)


def claim_stdout() -> Callable[[DriverMessage], None]:
    """Returns a function that writes messages to standard output, to which nothing else can write from now on."""
    sys.stdout.flush()
    descriptor = os.dup(1)
    os.dup2(2, 1)

    def emit(message: DriverMessage) -> None:
        os.write(descriptor, msgspec.json.encode(message) + b"\n")

    return emit


def end_with_lifeline(driver: Driver) -> NoReturn:
    """Wait for the end of standard input, then end."""
    while os.read(0, 4096):
        pass
    leave(driver, 0)


def fail(driver: Driver, emit: Callable[[DriverMessage], None], reason: str) -> NoReturn:
    emit(Failed(reason=reason, exit_code=1))
    leave(driver, 1)


def leave(driver: Driver, exit_code: int) -> NoReturn:
    """End at once, past Ray's own leave-taking, which takes seconds and would be done for us by the supervisor."""
    try:
        driver.release()
    except Exception:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    main()
