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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NoReturn, Protocol

import msgspec

from service.engine.model.report import ModelError
from service.engine.model.resolve import pending_stages
from service.engine.stub import StubTimes
from service.launch import checks
from service.launch.model_choice import ModelChoice
from service.launch.reaper import deployed_file
from service.launch.supervisor import DriverMessage, DriverPlan, VitalProcesses
from service.messages.life import (
    Failed,
    Ready,
    ServiceState,
    Stage,
    StageName,
    StageProgress,
    StartError,
    Starting,
    Unit,
)
from service.messages.options import is_stub, read_token
from service.messages.workload import TEXT
from service.workloads.catalog import WorkloadError, about, computes_on_device

DEVICES_EVERYWHERE = ("auto", "cpu")
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
REPORT_INTERVAL_S: Final = 0.1
UNCHANGED_INTERVAL_S: Final = 1.0

NO_PROGRESS: Final[tuple[float | None, float | None, Unit | None]] = (None, None, None)

ABOUT_S: Final[dict[StageName, float]] = {"check": 0.1, "convert": 25, "ray": 2, "serve": 4, "load": 10, "answer": 1}
ABOUT_FUNCTIONS_S: Final[dict[StageName, float]] = ABOUT_S | {"load": 4}


def stages_to(
    model: str, pending: tuple[StageName, ...], *, is_local: bool, workload: str = TEXT.name
) -> tuple[Stage, ...]:
    """What lies ahead of a start with `model`, of which `pending` is still to be had, or with another workload."""
    is_text = workload == TEXT.name
    titles: dict[StageName, str] = {
        "check": "Check ports and memory",
        "fetch": f"Fetch {model}",
        "convert": "Convert the model",
        "ray": "Start Ray" if is_local else "Connect to Ray",
        "serve": "Start Ray Serve",
        "load": "Load the model" if is_text else f"Load {workload}",
        "answer": "Answer a first request",
    }
    return tuple(
        Stage(name=name, title=title, about_s=(ABOUT_S if is_text else ABOUT_FUNCTIONS_S).get(name))
        for name, title in titles.items()
        if name in pending or name not in ("fetch", "convert")
    )


class StageReporter:
    """Reports where a start is; a stage ends when the next begins."""

    def __init__(self, emit: Callable[[ServiceState], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._name: StageName | None = None
        self._began_s = 0.0
        self._told_s = 0.0
        self._progress = self._told = NO_PROGRESS

    def begin(self, name: StageName) -> None:
        self.finish()
        self._name, self._began_s = name, self._clock()
        self._progress = NO_PROGRESS
        self._tell()

    def progress(self, done: float, total: float | None, unit: Unit | None) -> None:
        """Report how far the stage is, at most every `REPORT_INTERVAL_S`, and less often while nothing changes."""
        self._progress = done, total, unit
        is_news = self._progress != self._told
        if self._clock() - self._told_s >= (REPORT_INTERVAL_S if is_news else UNCHANGED_INTERVAL_S):
            self._tell()

    def model_progress(self, name: StageName, done: float, total: float | None) -> None:
        """A `service.engine.model.report.Report`: one call goes through several stages."""
        if name != self._name:
            self.begin(name)
        self.progress(done, total, "bytes" if name == "fetch" else None)

    def finish(self) -> None:
        if self._name is not None:
            self._tell(finished=True)
            self._name = None

    def drop(self) -> None:
        """Leave the stage as a failure does, without reporting it finished."""
        self._name = None

    @contextmanager
    def running(self, name: StageName) -> Iterator[None]:
        """Covers the stage's duration; a stage that raises is never reported finished."""
        self.begin(name)
        yield
        self.finish()

    def _tell(self, *, finished: bool = False) -> None:
        assert self._name is not None
        self._told_s, self._told = self._clock(), self._progress
        elapsed_s = round(self._told_s - self._began_s, 3)
        done, total, unit = self._progress
        self._emit(
            StageProgress(name=self._name, elapsed_s=elapsed_s, done=done, total=total, unit=unit, finished=finished)
        )


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
        self._model = ModelChoice(self._service)
        self._emit = emit
        self._stages = StageReporter(emit)
        self._cluster: Cluster | None = None
        self._releasing = threading.Lock()

    def start(self) -> None:
        """Go through all stages to `Ready`; raises `StartError`, `ModelError` or `WorkloadError`."""
        self._announce()
        with self._stages.running("check"):
            self._check()
        if self._options.address is None and self._has_model:
            self._model.bring(self._stages.model_progress, self._take_other_model)
        self._service = msgspec.structs.replace(self._service, model=self._model.name)
        with self._stages.running("ray"):
            cluster = self._start_ray()
        with self._stages.running("serve"):
            host, port = cluster.start_serve()
        with self._stages.running("load"):
            self._load()
        with self._stages.running("answer"):
            ready = self._have_answered(WILDCARDS.get(host, host), port)
        self._emit(msgspec.structs.replace(ready, why_model=self._model.why))

    def release(self) -> None:
        """Leave nothing on a cluster that goes on without us."""
        with self._releasing:
            if self._cluster is not None:
                self._cluster.release()
                self._cluster = None

    def _announce(self) -> None:
        stages, why = self._stages_ahead(), self._model.why
        self._emit(Starting(instance=self._plan.instance, stages=stages, why_model=why))

    def _take_other_model(self) -> None:
        self._stages.drop()
        print(self._model.why, file=sys.stderr)
        self._announce()

    def _stages_ahead(self) -> tuple[Stage, ...]:
        # On an external cluster each replica gets the model where it runs, as part of loading it.
        model, is_local = self._model.name, self._options.address is None
        pending = pending_stages(model) if is_local and self._has_model else ()
        workload = self._service.workload
        return stages_to(os.path.basename(model), pending, is_local=is_local, workload=workload)

    @property
    def _has_model(self) -> bool:
        return self._service.workload == TEXT.name and not is_stub(self._model.name)

    def _check(self) -> None:
        about(self._service.workload)
        if is_stub(self._model.name):
            StubTimes.of(self._model.name)
        if self._options.address is not None:
            checks.check_address(self._options.address)
        else:
            checks.check_memory_for_ray()
            checks.choose_port(self._options)
            gpu_bytes = self._gpu_bytes()
            if self._has_model and self._model.suit(gpu_bytes):
                self._announce()

    def _gpu_bytes(self) -> int:
        """The memory of the GPU that the start is on; 0 where there is none, or where that is of no consequence."""
        device = self._service.device
        if not computes_on_device(self._service.workload):
            return 0
        if device not in DEVICES_EVERYWHERE:
            return checks.check_device(device)
        return checks.any_gpu_bytes() if device == "auto" and self._has_model and self._model.is_open else 0

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
            from service.ray_serve.clusters import LocalCluster

            choose_port = partial(checks.choose_port, self._options)
            return LocalCluster(self._options, self._plan.directory, choose_port, checks.quiet_port)
        from service.ray_serve.clusters import ExternalCluster

        return ExternalCluster(self._options, self._plan.instance, deployed_file(self._plan.directory))

    def _load(self) -> None:
        from service.ray_serve import application

        name = self._options.name
        application.deploy(self._options.app, self._service, name, self._options.route_prefix)
        application.wait_until_running(name, self._service.replicas, self._stages.progress)

    def _have_answered(self, host: str, port: int) -> Ready:
        token = read_token(self._options.token_file) if self._options.token_file is not None else None
        prefix = self._options.route_prefix.rstrip("/")
        caller = checks.Caller(host, port, self._plan.instance, token, prefix)
        return caller.ready(self._service.replicas, self._plan.started_s)


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
