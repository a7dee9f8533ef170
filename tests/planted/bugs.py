"""The planted bugs: each is one replacement in one file, and compiles."""

# ruff: noqa: E501 — a bug a line
# fmt: off

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bug:
    """`before`, which stands once in the file at `path`, becomes `after`."""

    name: str
    path: str
    before: str
    after: str

    def plant(self, tree: Path) -> None:
        """Change the file in a copy of the repository."""
        file = tree / self.path
        text = file.read_text()
        assert text.count(self.before) == 1, f"{self.name}: {self.path} has {text.count(self.before)} of {self.before!r}"
        file.write_text(text.replace(self.before, self.after))


def _in(path: str, *bugs: tuple[str, str, str]) -> Iterator[Bug]:
    return (Bug(name, path, before, after) for name, before, after in bugs)


BUGS = (
    *_in(
        "service/batching/rules.py",
        ("a batch holds one more than its cap", "self.max_batch_size - running, self", "self.max_batch_size - running + 1, self"),
        ("a full batch waits for the timeout", "min(due_s, max(filled_s, free_since_s))", "due_s"),
        ("waiting behind a batch counts", "max(next(iter(waiting)).enqueued_s, free_since_s)", "next(iter(waiting)).enqueued_s"),
        ("a batch ignores its token budget", "if count >= places or (budget and tokens > budget and running + count):", "if count >= places:"),
        ("a batch leaves a tick early", "math.ceil(ready_s", "math.floor(ready_s"),
        ("each place has all of the memory", "max(memory_tokens // settings.places, 1)", "max(memory_tokens, 1)"),
    ),
    *_in(
        "service/batching/queue.py",
        ("a cancelled request keeps its place", "lambda _: self._drop(entry)", "lambda _: None"),
        ("the newest request leaves first", "itertools.islice(self._entries, count)", "itertools.islice(reversed(self._entries), count)"),
        ("a request cancelled at the release runs", "return tuple(entry for entry in entries if not entry.future.done())", "return entries"),
        ("a batch is released before its time", "if more_may_come and now_s < release.at_s:", "if more_may_come and now_s + 0.05 < release.at_s:"),
        ("new rules wake no queue", "self._rules = rules\n        self._changed.set()", "self._rules = rules"),
        ("a new request wakes no queue", "self._entries[entry] = None\n        self._changed.set()", "self._entries[entry] = None"),
        ("a released request stays in the queue", "del self._entries[entry]", "pass"),
        ("a batch carries the rules' version of the start", "now_s, self._rules.version, self._rules.max_batch_size)", "now_s, 0, self._rules.max_batch_size)"),
    ),
    *_in(
        "service/batching/batcher.py",
        ("one batch more than places runs", "if self._running < self.in_force.settings.places:", "if self._running <= self.in_force.settings.places:"),
        ("a place is never free again", "self._running -= 1", "pass"),
        ("a free place wakes nobody", "self._running -= 1\n        self._changed.set()", "self._running -= 1"),
        ("the formation that was left is forgotten", "for each in (self._left, self._active)]", "for each in (self._active,)]"),
        ("what was left goes first, however young", "in sorted(waiting, key=itemgetter(0)):", "in waiting:"),
        ("requests join ahead of sealed batches", "if not self._is_continuous or self._early.has_sealed:", "if not self._is_continuous:"),
        ("the queue holds one more than it may", "if queued >= self.in_force.settings.max_queued_requests:", "if queued > self.in_force.settings.max_queued_requests:"),
        ("a sealed batch wakes no runner", "self._on_formed(batch)\n            self._changed.set()", "self._on_formed(batch)"),
        ("a batch that all have left holds others up", "if has_left:", "if False:"),
        ("cancelled requests are sealed", "if entry in self._waiting and not entry.future.done()]", "if self._waiting.setdefault(entry) is None]"),
        ("a sealed batch has the newest rules", "return self._history[0][1]", "return self._history[-1][1]"),
        ("the newest sealed batch runs first", "return self._sealed.popleft()[0]", "return self._sealed.pop()[0]"),
        ("what Ray has not sealed is overtaken", 'if in_force.settings.formation != "early" and self._waiting:', "if False:"),
        ("empty sealed batches wait for ticks", "if all(entry.future.done() for entry in oldest.entries):", "if False:"),
        ("a stride that comes later holds a sealed batch up", "for rules in (began_under, self._rules))", "for rules in (self._rules,))"),
    ),
    *_in(
        "service/replica/requests.py",
        ("a request is received twice", "self._recorder.count(received=1, admitted=1)", "self._recorder.count(received=2, admitted=1)"),
        ("a client does not hear of the end", "request.news.set()\n        if not request.answered.done():", "if not request.answered.done():"),
        ("requests run that were cancelled before", "present = [request for request in requests if not request.is_final]", "present = list(requests)"),
        ("the number of running requests is the last batch's", "self.running += len(present)", "self.running = len(present)"),
        ("only streams get text", "request.unread.append(progress.text)", "request.unread.append(progress.text if request.streamed else '')"),
        ("an error is a success", 'self.finish(request, "failed", progress.error)', 'self.finish(request, "done")'),
        ("cancelled requests count as failed", 'cancelled=state == "cancelled")', "cancelled=0)"),
    ),
    *_in(
        "service/replica/generation.py",
        ("a cancel does not reach the engine", "request.job.cancel()\n            request.answered.cancel()", "request.answered.cancel()"),
        ("a lost device is forgotten", "except DeviceLostError:\n            raise", "except DeviceLostError:\n            return None"),
        ("a stalled replica keeps its requests", 'self.requests.end_all("failed", self._why_ended)', "pass"),
        ("a dead engine takes requests", "if self._why_ended:", "if False:"),
        ("requests that joined need no memory", "self._running |= joining", "pass"),
        ("the last chunk of a stream is dropped", "is_last = chunk.finish_reason is not None  # not the request's: it may end before the reader comes back\n            yield chunk", "yield chunk\n            is_last = request.finish_reason is not None"),
        ("what the engine abandons never ends", 'self.requests.finish(request, "failed", "The engine stopped before this request was complete.")', "pass"),
    ),
    *_in(
        "service/replica/background.py",
        ("an event loop that is stuck stays so", "if turning_s > LOOP_LIMIT_S:", "if False:"),
        ("a process that stood still counts as stuck", "turning_s += min(looked_s - before_s, 2 * LOOK_S)", "turning_s += looked_s - before_s"),
    ),
    *_in(
        "service/replica/recorder.py",
        ("a lost report takes its news with it", "self._sent = news = news if self._sent is None else news.after(self._sent)", "self._sent = news"),
        ("an acknowledgement is that of whatever was sent last", "if self._sent is not None and number == self._sent_number:", "if self._sent is not None:"),
        ("what is repeated counts as heard already", "self._sent_number += 1  # a report that is under way", "pass  # a report that is under way"),
        ("a new hub hears nothing of before", "for _, news in reversed(self._acknowledged):", "for _, news in ():"),
        ("an answer is counted twice", "tuple(records.values()), news.gaps), status)", "tuple(records.values()) * 2, news.gaps), status)"),
        ("an old record takes the place of a new one", "older.batches | self.batches, older.requests | self.requests", "self.batches | older.batches, older.requests | self.requests"),
    ),
    *_in(
        "service/replica/frames.py",
        ("a report that was overtaken counts", "if report.number <= self._numbers.get(replica, 0):", "if False:"),
        ("missed frames are not said", "if number + 1 < oldest:", "if False:"),
        ("a new hub begins with frame 1", "life * FRAMES_OF_A_LIFE", "0"),
        ("a reader skips a frame", "[max(0, number + 1 - oldest) :]", "[max(0, number + 2 - oldest) :]"),
        ("that a replica left is not said", "(self._left if has_left else self._lost).append(replica)", "has_left or self._lost.append(replica)"),
    ),
    *_in(
        "service/replica/hub.py",
        ("a name is given twice", "given = self._state.given + 1", "given = len(self._state.names) + 1"),
        ("a change that comes twice is made twice", "if call in self._state.calls:", "if False:"),
        ("a late replica is called lost", "if replica not in known}", "}"),
        ("a new hub forgets a redeployment", "await self._save(redeployment=redeployment)", "pass"),
        ("a new hub does not know who ended", "for name, has_left in self._state.ended.items():", "for name, has_left in ():"),
        ("a new hub waits for no replica", "self._board.expect(name)", "pass"),
    ),
    *_in(
        "service/replica/settings_board.py",
        ("an acknowledgement is lost", "self._held[replica] = held.version", "pass"),
        ("a starting replica is not waited for", "self._held.setdefault(replica, self.in_force.version)", "pass"),
        ("a doubled call says what a replica holds", ".setdefault(replica, ", ".__setitem__(replica, "),
        ("a change is not kept", "await self._keep(in_force)", "pass"),
        ("a change is in force before replicas hold it", "await self._adopted(version)", "pass"),
        ("a replica that ended is waited for", "self._held.pop(replica, None)", "pass"),
    ),
    *_in(
        "service/replica/hub_link.py",
        ("a replica follows no hub after a failure", "await asyncio.sleep(RETRY_S)\n                continue", "return"),
        ("a replica does not adopt a change", "self._generation.apply(in_force)", "pass"),
        ("a replica says no last words", "for is_last in (False, not has_failed):", "for is_last in ():"),
    ),
    *_in(
        "service/replica/step_watch.py",
        ("an engine that hangs is healthy", "if silence.lasted_s > limit_s:", "if False:"),
    ),
    *_in(
        "service/ray_serve/doors.py",
        ("nobody says that a replica was lost", "if not response.has_begun:", "if False:"),
        ("a stream that broke off ends as if it were whole", '"body": event, "more_body": True}', '"body": event}'),
    ),
    *_in(
        "service/ray_serve/patches.py",
        ("a client that leaves early is not heard", "assigned.result().cancel()", "pass"),
    ),
    *_in(
        "service/load/generator.py",
        ("the load forgets a request", "self._outcomes[answer.outcome] += 1", "self._outcomes[answer.outcome] += answer.outcome != 'failed'"),
        ("a request is launched without a record", "self._under_way[flight.id] = flight", "pass"),
    ),
)

NAMED = {bug.name: bug for bug in BUGS}

PROMISES = {
    "T01": ("service/test_promises", NAMED["only streams get text"]),
    "T02": ("service/test_promises", Bug("the queue has no bound", "service/batching/batcher.py", "if queued >= self.in_force.settings.max_queued_requests:", "if False:")),
    "T03": ("service/test_promises", NAMED["a request is received twice"]),
    "T04": ("service/test_workloads_live", Bug("a batch that fails is not called in halves", "service/engine/function.py", "can_split = self._workload.retry_members and", "can_split = False and")),
    "T05": ("service/test_promises", NAMED["a client that leaves early is not heard"]),
    "T06": ("service/test_promises", NAMED["nobody says that a replica was lost"]),
    "T07": ("service/test_process", Bug("no vital process is watched", "service/launch/supervisor.py", "self._watch(self._end_with_vital(name, pid, driver))", "pass")),
    "T08": ("window/test_service_process", Bug("a death by a signal is not reported", "gui/session/processes/child.py", "if self.signal_number is not None:", "if False:")),
    "T09": ("service/test_process", Bug("the end of its parent does not end it", "service/launch/supervisor.py", "await parent_ended(self._options.parent_pid)", "await asyncio.Event().wait()")),
    "T10": ("unit/test_engine_faults", Bug("a lack of memory is a failure like others", "service/engine/job.py", 'torch = sys.modules.get("torch")\n    if isinstance(error, MemoryError)', "return False\n    if isinstance(error, MemoryError)")),
    "T11": ("service/test_promises", NAMED["a change is in force before replicas hold it"]),
    "T12": ("service/test_promises", Bug("a setting has no bounds", "service/messages/settings.py", "if value not in self:", "if False:")),
    "T13": ("service/test_stub", Bug("half a head may take its time", "service/ray_serve/patches.py", "self._late = self.loop.call_later(HEAD_TIMEOUT_S, self.timeout_keep_alive_handler)", "pass")),
    "T14": ("service/test_promises", Bug("a prompt may exceed the context", "service/engine/stub.py", "if len(text) + max_tokens > self.context_length:", "if False:")),
    "T15": ("unit/test_recording", Bug("behind a damaged second nothing is read", "service/analysis/recording/format.py", "position = following if following >= 0 else len(data)", "position = len(data)")),
    "T16": ("unit/test_model_load", Bug("a folder's own code is run", "service/engine/model/load.py", "local_files_only=True,\n        trust_remote_code=False,", "local_files_only=True,\n        trust_remote_code=True,")),
    "T17": ("unit/test_model_fetch", Bug("a download is not compared with its hash", "service/engine/model/fetch.py", "if sha256_of(part) != GGUF_SHA256:", "if False:")),
    "T18": ("unit/test_files", Bug("a file is written where the older one stands", "service/messages/files.py", "_replace(path.resolve(), pieces)  # a link", 'path.write_bytes(b"".join(pieces))  # a link')),
    "T19": ("service/test_process", Bug("an answer does not say whose it is", "service/ray_serve/doors.py", "self._stamps = [] if instance is None else [", "self._stamps = [] and [")),
    "T20": ("unit/test_model_fetch", Bug("that there is no network is not said", "service/engine/model/fetch.py", "if any(_UNREACHABLE.search(line) for line in outcome.tail):", "if False:")),
    "T21": ("service/test_silent_replica", NAMED["a late replica is called lost"]),
    "T22": ("window/test_leaks", Bug("a closed window leaves a thread", "gui/composition.py", "self.recorder.file.finish()", "pass")),
    "T23": ("window/test_monkey", Bug("a text that is no number breaks its field", "gui/widgets/number_field.py", "except ValueError:\n            return COMMA_RULE", "except KeyError:\n            return COMMA_RULE")),
    "T24": ("service/test_workloads_live", NAMED["a stalled replica keeps its requests"]),
    "T25": ("service/test_promises", NAMED["the newest request leaves first"]),
    "T26": ("service/test_promises", Bug("a batch has one request", "service/batching/queue.py", "itertools.islice(self._entries, count)", "itertools.islice(self._entries, 1)")),
    "T27": ("service/test_process", Bug("any name is ours", "service/ray_serve/doors.py", "if not _is_host_ours(", "if False and not _is_host_ours(")),
}
"""For each promise the file of its tests and a bug that they must find, most of them on real processes."""
