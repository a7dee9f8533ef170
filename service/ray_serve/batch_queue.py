"""The queue of a function that `@serve.batch` decorates, opened: batches are formed late too, and a listener hears all.

WORKAROUND ray 2.60: by no public name can a batch be formed when the function is free for it, nor be seen which
requests are in one. So the queue that Ray makes for a decorated function is one of a subclass. What the subclass does
not override is Ray's: how calls become a batch's arguments, request contexts, streams, errors, metrics, and in `early`
when a batch is sealed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from msgspec.structs import replace as replace_settings
from ray import serve
from ray.serve import batching
from ray.serve.batching import _BatchQueue, _GeneratorResult, _LazyBatchQueueWrapper, _SingleRequest

from service.batching.queue import Batch, BatchQueue
from service.batching.rules import Rules, Waiting
from service.messages.settings import BOUNDS, Formation, ReleaseReason, Settings, VersionedSettings

logger = logging.getLogger(__name__)

TUNED: Final = ("max_batch_size", "batch_wait_timeout_s", "max_concurrent_batches")
"""Settings that Ray's queue has as attributes of the same names."""

Future: TypeAlias = "asyncio.Future[Any]"


class Listener(Protocol):
    """Hears what becomes of a function's requests. A request is known by the future that its caller waits for first.

    Only requests that `on_enqueued` was called with come later, apart from other members of a batch.
    """

    def on_enqueued(self, request: Future, size: int) -> None:
        """`size`: of the request in a batch; 1 unless the function has a `batch_size_fn`."""

    def on_formed(self, requests: Sequence[Future], batch: Batch[Any]) -> None:
        """These are in a batch; `batch` holds all of it but its members."""

    def on_started(self, requests: Sequence[Future]) -> None:
        """The function is called with the batch of these."""

    def on_ended(self, requests: Sequence[Future]) -> None:
        """That call has ended; the results of its requests have come before."""

    def on_result(self, request: Future, *, is_last: bool) -> None:
        """A result, or the next of a stream; the end of a stream comes as a last one without a result."""

    def on_failed(self, request: Future, error: BaseException) -> None: ...
    def on_cancelled(self, request: Future) -> None: ...

    def on_tuned(self, settings: Settings) -> None:
        """The application has called a setter, so that these are in force here."""


class OpenQueue(_BatchQueue):
    """Ray's queue of one function in one replica, under `Settings`.

    What the decorator or a setter says holds also where it lies beyond the bounds of `Settings`, as a wait of an hour
    does; `settings` has the nearest value instead.

    Attributes:
        listener: ``None`` as long as nobody listens. What goes wrong in it harms no request.
        is_watched: all is left as it is.
    """

    def __init__(
        self,
        max_batch_size: int,
        batch_wait_timeout_s: float,
        max_concurrent_batches: int,
        handle_batch_func: Callable[..., Any] | None = None,
        batch_size_fn: Callable[[list[Any]], int] | None = None,
        *,
        formation: Formation = "early",
        is_watched: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.listener: Listener | None = None
        self.is_watched = is_watched
        self._clock = clock
        self._function = handle_batch_func
        super().__init__(max_batch_size, batch_wait_timeout_s, max_concurrent_batches, handle_batch_func, batch_size_fn)
        self.queue = _NotifyingQueue(self._on_first)
        self._in_force = VersionedSettings(
            version=0,
            # Ray's queue holds as many as come, so the bound of ours is out of the way.
            settings=self._tuned(Settings(max_queued_requests=int(BOUNDS["max_queued_requests"].high))),
        )
        self._sealing: Batch[Any] = Batch((), "full", 0.0, 0, self.max_batch_size, "early")  # what Ray gathers
        self._sealed = self._sealing
        self._changed = asyncio.Event()
        self._late: BatchQueue[_SingleRequest] = BatchQueue(self._rules, clock=clock, changed=self._changed)
        self._late_task: asyncio.Task[None] | None = None
        self._form(formation)

    @property
    def function(self) -> Callable[..., Any] | None:
        return self._function

    @property
    def settings(self) -> Settings:
        """Those in force, a setter of the application's included."""
        return self._tuned(self._in_force.settings)

    def apply(self, in_force: VersionedSettings) -> None:
        """Put settings in force for all batches formed from now on; of a queue that is watched, their number alone.

        Requests that wait for Ray to seal their batch are sealed as Ray would.
        """
        before, self._in_force = self.settings, in_force
        if self.is_watched:
            self._in_force = VersionedSettings(version=in_force.version, settings=before)
            return
        for name in TUNED:
            wanted = getattr(in_force.settings, name)
            if wanted != getattr(before, name):  # else what was said beyond the bounds stays
                setattr(self, name, wanted)
                if name == "max_concurrent_batches":
                    self.semaphore = asyncio.Semaphore(wanted)  # a batch that runs keeps the place it has
        self._form(in_force.settings.formation)

    # Ray calls these -------------------------------------------------------------------------------------------------

    def put(self, request: Any) -> None:
        self._notice_setters()
        future: Future = request.future
        try:
            size = 1 if self._is_early else self._size_of([request])
        except Exception as error:
            future.set_exception(error)
            return
        if self.listener is not None:
            self._notify(lambda listener: listener.on_enqueued(future, size))
            future.add_done_callback(partial(self._on_result, future))
        if self._is_early:
            super().put(request)
        elif self.batch_size_fn is not None and size > self.max_batch_size:
            future.set_exception(
                RuntimeError(
                    f"The item's size, {size} by batch_size_fn, is greater than max_batch_size, {self.max_batch_size}: "
                    "raise max_batch_size, or split the item."
                )
            )
        else:
            self._late.submit(request, future=future)

    async def wait_for_batch(self) -> tuple[list[_SingleRequest], int]:
        batch, size = await super().wait_for_batch()
        is_full = size >= self._sealing.cap
        reason: ReleaseReason = "full" if is_full else "timeout" if self.batch_wait_timeout_s else "drained"
        self._sealed = replace(self._sealing, release_reason=reason, formed_s=self._clock())
        return batch, size

    def _split_batch_by_model_id(self, batch: list[_SingleRequest]) -> list[list[_SingleRequest]]:
        return self._split(batch, self._sealed)

    async def _process_batch_inner(self, func: Callable[..., Any], batch: list[_SingleRequest]) -> None:
        futures = [request.future for request in batch]
        self._notify(lambda listener: listener.on_started(futures))
        try:
            await super()._process_batch_inner(func, batch)
        finally:
            # The callbacks of the futures that were resolved come first.
            self._loop.call_soon(self._notify, lambda listener: listener.on_ended(futures))

    def _handle_completed_task(self, task: asyncio.Task[Any]) -> None:
        super()._handle_completed_task(task)
        self._changed.set()

    # Forming ---------------------------------------------------------------------------------------------------------

    @property
    def _is_early(self) -> bool:
        return self._formation == "early"

    def _form(self, formation: Formation) -> None:
        self._formation = formation
        self._in_force = VersionedSettings(
            version=self._in_force.version, settings=replace_settings(self._in_force.settings, formation=formation)
        )
        self._late.configure(self._rules)
        if not self._is_early and self._late_task is None and self._function is not None:
            self._late_task = self._loop.create_task(self._form_late(self._function))

    @property
    def _rules(self) -> Rules:
        """As `Settings` gives them, with what was said beyond its bounds."""
        rules = Rules.of(self._in_force.settings, self._in_force.version)
        wait_s = self.batch_wait_timeout_s if self._in_force.settings.allow_small_batch else rules.batch_wait_timeout_s
        said = replace(rules, max_batch_size=self.max_batch_size, batch_wait_timeout_s=wait_s)
        return said if self.batch_size_fn is None else _SizedRules.of_sizes(said, self._size_of)

    async def _form_late(self, function: Callable[..., Any]) -> None:
        """Batch after batch, each when a place for it is free, for ever."""
        serve.context._unset_request_context()  # type: ignore[no-untyped-call]  # some request has created the task
        while True:
            batch = await self._late.next_batch(self._has_place)
            requests = [entry.item for entry in batch.entries]
            tags = {"function_name": self._function_name}
            self._batch_queue_length_gauge.set(len(self._late), tags=tags)
            waited_s = batch.formed_s - batch.entries[0].enqueued_s
            self._batch_wait_time_histogram.observe(waited_s * 1e3, tags=tags)
            parts = self._split(requests, replace(batch, entries=(), formation=self._formation))
            task = self._loop.create_task(self._process_sub_batches(function, parts))
            self.tasks.add(task)
            self.curr_iteration_start_times[task] = time.time()
            task.add_done_callback(self._handle_completed_task)

    def _has_place(self) -> bool:
        places = 1 if self._formation == "continuous" else self.max_concurrent_batches
        return len(self.tasks) < places

    def _split(self, requests: list[_SingleRequest], batch: Batch[Any]) -> list[list[_SingleRequest]]:
        """The function is called once for each model that requests are for, so each call is a batch of its own."""
        parts = super()._split_batch_by_model_id(requests)
        for part in parts:
            self._notify_formed([request.future for request in part], batch)
        return parts

    def _on_first(self) -> None:
        """Ray has taken the first request of a batch, and now reads the settings that it seals the batch under."""
        self._sealing = replace(self._sealing, rules_version=self._in_force.version, cap=self.max_batch_size)

    def _size_of(self, requests: Sequence[_SingleRequest]) -> int:
        return self._compute_batch_size(list(requests))

    # Settings and the listener ---------------------------------------------------------------------------------------

    def _tuned(self, settings: Settings) -> Settings:
        """`settings` with what the queue's attributes say."""
        return replace_settings(settings, **{name: _within(name, getattr(self, name)) for name in TUNED})

    def _notice_setters(self) -> None:
        settings = self.settings
        if settings != self._in_force.settings:
            self._in_force = VersionedSettings(version=self._in_force.version, settings=settings)
            self._late.configure(self._rules)
            self._notify(lambda listener: listener.on_tuned(settings))

    def _on_result(self, request: Future, result: Future) -> None:
        """A result of `request` is there. In a stream it brings the future of the next, which may be there as well."""
        while not result.cancelled() and not result.exception() and isinstance(result.result(), _GeneratorResult):
            self._notify(lambda listener: listener.on_result(request, is_last=False))
            result = result.result().next_future
            if not result.done():
                result.add_done_callback(partial(self._on_result, request))
                return
        if result.cancelled():
            self._notify(lambda listener: listener.on_cancelled(request))
        elif (error := result.exception()) is None or isinstance(error, StopAsyncIteration):
            self._notify(lambda listener: listener.on_result(request, is_last=True))
        else:
            failure: BaseException = error
            self._notify(lambda listener: listener.on_failed(request, failure))

    def _notify_formed(self, requests: Sequence[Future], batch: Batch[Any]) -> None:
        self._notify(lambda listener: listener.on_formed(requests, batch))

    def _notify(self, news: Callable[[Listener], None]) -> None:
        if self.listener is None:
            return
        try:
            news(self.listener)
        except Exception:
            self.listener = None
            logger.exception("The telemetry of %s has ended; requests are served as before", self._function_name)


@dataclass(frozen=True, slots=True)
class _SizedRules(Rules):
    """Where the function has a `batch_size_fn`, `max_batch_size` bounds what that says of a batch."""

    size_of: Callable[[Sequence[Any]], int] = len

    @classmethod
    def of_sizes(cls, rules: Rules, size_of: Callable[[Sequence[Any]], int]) -> _SizedRules:
        return cls(**{name: getattr(rules, name) for name in Rules.__slots__}, size_of=size_of)

    def fitting(self, waiting: Collection[Waiting], running: int = 0, tokens: int = 0) -> tuple[int, float | None]:
        taken: list[Any] = []
        for count, entry in enumerate(waiting):
            taken.append(entry.item)  # type: ignore[attr-defined]  # entries are all that waits in a queue
            size = max(self._size(taken), len(taken))
            if size >= self.max_batch_size:
                return (count if count and size > self.max_batch_size else count + 1), entry.enqueued_s
        return len(waiting), None

    def _size(self, requests: Sequence[Any]) -> int:
        try:
            return self.size_of(requests)
        except Exception:
            logger.exception("batch_size_fn fails on %d items that it takes alone; they run apart", len(requests))
            return self.max_batch_size + 1


class _NotifyingQueue(asyncio.Queue[_SingleRequest]):
    """Ray waits with `get` for the first request of a batch, and takes the others with `get_nowait`."""

    def __init__(self, on_first: Callable[[], None]) -> None:
        super().__init__()
        self._on_first = on_first

    async def get(self) -> _SingleRequest:
        first = await super().get()
        self._on_first()
        return first


Listen: TypeAlias = Callable[[OpenQueue], None]


class OpenWrapper(_LazyBatchQueueWrapper):
    """What Ray keeps for a decorated function until its first call, when the queue is made.

    It travels to the replica with the function, which Ray pickles.

    Attributes:
        listen: is called with the queue once that is made, in the replica's event loop.
    """

    formation: Formation = "early"
    is_watched = False
    listen: Listen

    @property
    def queue(self) -> _BatchQueue:
        if self._queue is None:
            self._queue = opened = OpenQueue(
                self.max_batch_size,
                self.batch_wait_timeout_s,
                self.max_concurrent_batches,
                self.handle_batch_func,
                self.batch_size_fn,
                formation=self.formation,
                is_watched=self.is_watched,
            )
            self.listen(opened)
        return self._queue


def open_queue_of(decorated: Any, formation: Formation, listen: Listen) -> None:
    """Give a function that `serve.batch` has decorated an `OpenQueue`."""
    wrapper: Any = decorated.set_max_batch_size.__self__
    assert issubclass(type(wrapper), _LazyBatchQueueWrapper)
    wrapper.__class__ = OpenWrapper
    wrapper.formation, wrapper.is_watched, wrapper.listen = formation, False, listen


def watch_queues(listen: Listen) -> None:
    """Have every function that `serve.batch` decorates in this process from now on be listened to, and be as Ray's."""

    def watched(*options: Any) -> OpenWrapper:
        wrapper = OpenWrapper(*options)
        wrapper.is_watched, wrapper.listen = True, listen
        return wrapper

    batching._LazyBatchQueueWrapper = watched  # type: ignore[assignment, misc]


def _within(name: str, value: Any) -> Any:
    """The nearest value that a setting may have; what is no number, which Ray takes too, is left for it to refuse."""
    nearest = BOUNDS[name].nearest(value)
    return int(nearest) if BOUNDS[name].integral else float(nearest)
