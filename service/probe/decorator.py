"""`batch`, in the place of `serve.batch`, and `watch`, which leaves Ray's own as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Protocol, TypeAlias, TypeVar, overload

from ray import serve

from service.messages.settings import FORMATIONS, Formation
from service.probe.connection import listen
from service.ray_serve.batch_queue import open_queue_of, watch_queues

Owner = TypeVar("Owner")
Item = TypeVar("Item")
Result = TypeVar("Result")

Answer: TypeAlias = Coroutine[Any, Any, Result]

_ray_batch: Any = serve.batch


class Decorator(Protocol):
    """What `batch` with options gives: of a function of a list, the function of one item."""

    @overload
    def __call__(
        self, function: Callable[[list[Item]], Answer[list[Result]]], /
    ) -> Callable[[Item], Answer[Result]]: ...
    @overload
    def __call__(
        self, function: Callable[[Owner, list[Item]], Answer[list[Result]]], /
    ) -> Callable[[Owner, Item], Answer[Result]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[Item]], AsyncIterator[list[Result]]], /
    ) -> Callable[[Item], AsyncIterator[Result]]: ...
    @overload
    def __call__(
        self, function: Callable[[Owner, list[Item]], AsyncIterator[list[Result]]], /
    ) -> Callable[[Owner, Item], AsyncIterator[Result]]: ...


@overload
def batch(function: Callable[[list[Item]], Answer[list[Result]]], /) -> Callable[[Item], Answer[Result]]: ...
@overload
def batch(
    function: Callable[[Owner, list[Item]], Answer[list[Result]]], /
) -> Callable[[Owner, Item], Answer[Result]]: ...
@overload
def batch(
    function: None = None,
    /,
    max_batch_size: int = 10,
    batch_wait_timeout_s: float = 0.01,
    max_concurrent_batches: int = 1,
    batch_size_fn: Callable[[list[Any]], int] | None = None,
    *,
    formation: Formation = "late",
) -> Decorator: ...
def batch(
    function: Callable[..., Any] | None = None,
    /,
    max_batch_size: int = 10,
    batch_wait_timeout_s: float = 0.01,
    max_concurrent_batches: int = 1,
    batch_size_fn: Callable[[list[Any]], int] | None = None,
    *,
    formation: Formation = "late",
) -> Any:
    """Decorate an async function of a list so that its callers pass one item each, as `ray.serve.batch` does.

    The function may be a method, and may stream: an async generator of lists. In a replica its batches, its queue and
    its settings can be seen and changed with `batchscope --url`; its log says the address at the first call.

    Args:
        max_batch_size: items in a batch; with `batch_size_fn`, what that says of a batch at most.
        batch_wait_timeout_s: how long a batch waits for further items: in `late` and `continuous` from when the
            function is free for it, in `early` from its first item on.
        max_concurrent_batches: batches that run at a time; in `continuous` there is one.
        batch_size_fn: measures the items of a batch.
        formation: `late` forms a batch when the function is free for it, so that it grows as long as it waits. `early`
            is Ray's own: a batch is sealed when it has waited, also while others run. Items of a function cannot join a
            batch that runs, so `continuous` is `late` with one batch at a time.

    Raises:
        TypeError, ValueError: as Ray's decorator does, and for another `formation`.
    """
    if formation not in FORMATIONS:
        raise ValueError(f"formation must be one of {', '.join(FORMATIONS)}, got {formation!r}")

    def opened(decorated: Any) -> Any:
        open_queue_of(decorated, formation, listen)
        return decorated

    made = _ray_batch(function, max_batch_size, batch_wait_timeout_s, max_concurrent_batches, batch_size_fn)
    return opened(made) if callable(function) else lambda each: opened(made(each))


def watch() -> None:
    """Show the functions that Ray's own `@serve.batch` decorates from now on, and change nothing about them.

    To be called before the module that decorates them is imported, or at its top. Functions that `batch` decorates are
    not concerned.
    """
    watch_queues(listen)
