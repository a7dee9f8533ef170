"""A file of inputs through engines on the machines of a Ray cluster, by Ray Data.

file ──▶ bundles of lines ──▶ an engine a GPU, or a machine ──▶ outcomes, in the order of the lines ──▶ files
here                          elsewhere                                                                 here
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import ray
import ray.data
from ray.exceptions import RayError

from service.commands.offline_batch.local_run import FileRun, Line, LineEngine, LinePlan, lines_of
from service.commands.offline_batch.results import BadLine, Outcome, OutcomeList, Result, ResultFiles
from service.engine.loading import load_engine
from service.launch.checks import check_address
from service.messages.text import UserError
from service.ray_serve.clusters import join
from service.ray_serve.gpus import check_index, gpu_count, require_gpu, takes_gpu

BUNDLE_BATCHES: Final = 4
"""Batches an engine gets at a time; within them a line that is done makes room for the next one."""

READ_LINES: Final = 1000
READ_BYTES: Final = 2**20  # Ray Data would gather 128 MiB before it hands anything on
RETRIES: Final = 2  # of a bundle whose process or machine was lost; Ray Data itself would retry without end
SOME: Final = 0.001  # of a resource that is there to say where something runs


@dataclass
class ClusterRun:
    """What `FileRun` is in one process. Outcomes come as Ray Data has them, a bundle at a time and in order.

    Attributes:
        after: the run is of the lines behind this one.
        on_done: is called for each line that has an outcome.
    """

    address: str
    plan: LinePlan
    path: Path
    after: int
    files: ResultFiles
    on_done: Callable[[], None]
    _is_stopped: bool = field(init=False, default=False)

    def stop(self) -> None:
        """`run` returns when the next bundle is done."""
        self._is_stopped = True

    def run(self) -> bool:
        """Whether it came to the end of the lines; all that came back is written. Raises `UserError`."""
        check_address(self.address)
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it warns of what Ray Data does with its own actors
        join(self.address, self.plan.service.workload, {}, logging_level=logging.WARNING, log_to_driver=False)
        try:
            return self._put_all()
        except RayError as error:
            *_, reason = str(error).strip().splitlines()
            raise UserError(f"The engines on the cluster cannot go on: {reason}") from error
        finally:
            ray.shutdown()  # ends all that we had there

    def _put_all(self) -> bool:
        dataset = _dataset(self.plan, self.path, self.after)
        for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
            for outcome in _outcomes_in(table):
                self.files.begin(outcome.line)
                self.files.put(outcome)
                self.on_done()
            self.files.write()
            if self._is_stopped:
                return False
        return True


def _dataset(plan: LinePlan, path: Path, after: int) -> ray.data.Dataset:
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    context.target_max_block_size = READ_BYTES
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    # WORKAROUND ray 2.60: `max_task_retries` has no named parameter that would replace it.
    warnings.filterwarnings("ignore", "`ray_remote_args` is deprecated")
    engines, machines = _engines_and_machines(plan)
    sharing = msgspec.structs.replace(plan.service, replicas=-(-engines // machines))
    return (
        ray.data.from_items([str(path.absolute())])
        .map_batches(partial(_read, after=after), batch_format="pyarrow", num_cpus=0, resources=_this_machine())
        .repartition(target_num_rows_per_block=plan.batch_size * BUNDLE_BATCHES)
        .map_batches(
            BundleEngine,
            fn_constructor_args=(msgspec.structs.replace(plan, service=sharing),),
            compute=ray.data.ActorPoolStrategy(size=engines),
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=1,
            num_gpus=int(takes_gpu(plan.service)),
            max_task_retries=RETRIES,
        )
    )


def _engines_and_machines(plan: LinePlan) -> tuple[int, int]:
    machines = sum(node["Alive"] for node in ray.nodes())  # type: ignore[no-untyped-call]
    if not takes_gpu(plan.service):
        return machines, machines
    check_index(plan.service)
    require_gpu(plan.service.device)
    return int(gpu_count()), machines


def _this_machine() -> dict[str, float]:
    """What a task asks for that is to run where the file lies."""
    here = ray.get_runtime_context().get_node_id()
    (address,) = (node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == here)  # type: ignore[no-untyped-call]
    return {f"node:{address}": SOME}


def _read(paths: pa.Table, after: int) -> Iterator[pa.Table]:
    (path,) = paths["item"].to_pylist()
    lines = lines_of(Path(path), after)
    while some := list(islice(lines, READ_LINES)):
        numbers, contents = zip(*some, strict=True)
        yield pa.table({"number": pa.array(numbers, pa.int64()), "content": pa.array(contents, pa.binary())})


class BundleEngine:
    """What each of Ray Data's actors has."""

    def __init__(self, plan: LinePlan) -> None:
        self._engine = LineEngine(plan, load_engine(plan.service).engine)

    def __call__(self, bundle: pa.Table) -> pa.Table:
        lines = map(Line, bundle["number"].to_pylist(), bundle["content"].to_pylist())
        outcomes = OutcomeList()
        FileRun(self._engine, lines, outcomes, on_done=lambda: None).run()
        return _table_of(outcomes.done)


def _table_of(outcomes: list[Outcome]) -> pa.Table:
    kinds = [isinstance(each, Result) for each in outcomes]
    return pa.table({"is_result": kinds, "outcome": pa.array(map(msgspec.json.encode, outcomes), pa.binary())})


def _outcomes_in(table: pa.Table) -> Iterator[Outcome]:
    for is_result, outcome in zip(table["is_result"].to_pylist(), table["outcome"].to_pylist(), strict=True):
        kind: type[Outcome] = Result if is_result else BadLine
        yield msgspec.json.decode(outcome, type=kind)
