"""What has to hold after every step of a simulation, and at its end."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client.parser import text_string_to_metric_families

from service.load.flight import Answer, Flight
from service.messages.settings import VersionedSettings
from service.messages.telemetry import FINAL_STATES, Ledger, RequestRecord
from service.replica.generation import Generation
from service.replica.settings_board import ADOPTION_TIMEOUT_S
from tests.simulation.clients import expected_text
from tests.simulation.replica import SimulatedReplica
from tests.simulation.world import BEGIN_S

if TYPE_CHECKING:
    from tests.simulation.scenario import Simulation

SLACK_S: Final = 0.02
"""Of a wait in which nothing else has to be done."""

MOST_WORK_S: Final = 0.5
"""That may be done meanwhile: a replica that works on and forms no batch keeps its requests waiting, too."""

SCRAPE_S: Final = 0.1

SCRAPED_SEEDS: Final = 10
"""One seed in this many also reads what Prometheus would, which takes long."""

ANSWERS: Final = "vllm:e2e_request_latency_seconds_count"
GENERATED: Final = "vllm:generation_tokens_total"
BATCHES: Final = "ray_serve_batches_processed_total"
COUNTED: Final = (ANSWERS, GENERATED, BATCHES)

TASKS_OF_A_REPLICA: Final = 6
"""Its three, the watch of the engine and two timeouts or calls to the hub."""


@dataclass
class Seen:
    """What was seen of a replica so far.

    Attributes:
        in_force: the settings that it holds.
        most_places, longest_wait_s: of any settings that it has held.
        idle: since its engine is idle and requests wait: how many had been cancelled, what was worked, and when.
    """

    in_force: VersionedSettings
    most_places: int = 0
    longest_wait_s: float = 0.0
    idle: tuple[int, float, float] | None = None

    def hold(self, in_force: VersionedSettings) -> None:
        self.in_force, settings = in_force, in_force.settings
        self.most_places = max(self.most_places, settings.places)
        self.longest_wait_s = max(self.longest_wait_s, settings.longest_wait_s + settings.stride_s)


class Checks:
    """Looks on; everything that is wrong goes to the world's `faults`, with the time."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._accepted = 0  # version of the settings that every replica held when they were in force
        self._seen: dict[SimulatedReplica, Seen] = {}
        self._names: dict[str, SimulatedReplica] = {}
        simulation.operator.on_accepted = self._on_accepted

    def fail(self, what: str) -> None:
        world = self._simulation.world
        world.faults.append(f"{world.now_s - BEGIN_S:.4f} s: {what}")

    # After every step ------------------------------------------------------------------------------------------------

    def after_a_step(self) -> None:
        """Look at the replica that ran, if it was one."""
        replica = self._simulation.controller.in_process.get(self._simulation.world.ran)
        if replica is None or replica.generation is None:
            return
        generation = replica.generation
        seen = self._seen.get(replica) or self._see(replica, generation)
        in_force = generation.batcher.in_force
        if in_force is not seen.in_force:
            if in_force.version < seen.in_force.version:
                self.fail(f"{generation.replica} went back from version {seen.in_force.version} to {in_force.version}")
            seen.hold(in_force)
        if replica.engine.at_once > seen.most_places:
            self.fail(f"{replica.engine.at_once} batches run in {seen.most_places} places of {generation.replica}")
        self._check_version(replica)
        self._check_ledger(generation)
        self._check_wait(replica, generation, seen)

    def _see(self, replica: SimulatedReplica, generation: Generation) -> Seen:
        if self._names.setdefault(generation.replica, replica) is not replica:
            self.fail(f"{generation.replica} is the name of two replicas")
        seen = self._seen[replica] = Seen(generation.batcher.in_force)
        seen.hold(seen.in_force)
        return seen

    def _check_version(self, replica: SimulatedReplica) -> None:
        held = self._seen[replica].in_force.version if replica in self._seen else self._accepted
        if held < self._accepted and replica.process.is_awake and not replica.has_ended:
            self.fail(f"version {self._accepted} is in force, and {replica.serve_id} holds {held}")

    def _check_ledger(self, generation: Generation) -> None:
        ledger, live = generation.recorder.ledger, generation.requests.live
        if ledger.received != ledger.refused + ledger.admitted:
            self.fail(f"{generation.replica} received {ledger}")
        if ledger.admitted != _ended(ledger) + live:
            self.fail(f"{generation.replica} holds {live}: {ledger}")

    def _check_wait(self, replica: SimulatedReplica, generation: Generation, seen: Seen) -> None:
        """No request waits before an idle engine for longer than the settings say, or those before a change."""
        world, batcher = self._simulation.world, generation.batcher
        is_at_work = generation.requests.running or not replica.process.is_awake or replica.has_failed
        waiting = 0 if is_at_work else batcher.waiting + batcher.formed
        if not waiting:
            seen.idle = None
            return
        now = generation.recorder.ledger.cancelled, world.worked_s, world.now_s
        cancelled, worked_s, since_s = seen.idle or now
        if cancelled != now[0] or since_s < replica.process.awake_since_s:  # others are the oldest, or it stood still
            _, worked_s, since_s = now
        seen.idle = now[0], worked_s, since_s
        if replica.process.is_catching_up:
            return
        if world.now_s - since_s - min(world.worked_s - worked_s, MOST_WORK_S) > seen.longest_wait_s + SLACK_S:
            self.fail(f"{waiting} wait before the idle engine of {generation.replica}")

    def _on_accepted(self, in_force: VersionedSettings, took_s: float) -> None:
        """A change is in force only when every replica that lives holds it, or one hangs and was waited for."""
        if took_s < ADOPTION_TIMEOUT_S:
            self._accepted = max(self._accepted, in_force.version)
            for replica in self._simulation.controller.replicas.values():
                self._check_version(replica)

    # At the end ------------------------------------------------------------------------------------------------------

    def what_is_open(self) -> str:
        simulation = self._simulation
        flights = [f"{each.id} ({each.prompt})" for each in simulation.load.sender.under_way]
        replicas = {each.serve_id: each.state for each in simulation.controller.replicas.values()}
        return f"{flights} of {simulation.load.generator.totals()}, {replicas}, operator {simulation.operator.is_busy}"

    def at_the_end(self) -> None:
        if self._simulation.world.faults:
            return
        self._check_answers()
        for replica in self._simulation.controller.replicas.values():
            self._check_rest(replica)
        self._check_settings()
        self._check_what_was_read()
        if self._simulation.plan.seed % SCRAPED_SEEDS == 0 and not self._simulation.world.faults:
            self._check_what_is_counted()
        self._check_order()

    def _check_answers(self) -> None:
        sender, totals = self._simulation.load.sender, self._simulation.load.generator.totals()
        if totals.differing:
            self.fail(f"{totals.differing} answers to one prompt differ")
        if totals.outstanding or totals.sent != totals.ok + totals.refused + totals.failed + totals.cancelled:
            self.fail(f"the load's ledger does not balance: {totals}")
        if len(sender.ended) != totals.sent:
            self.fail(f"{len(sender.ended)} requests of {totals.sent} have an end")
        for flight, answers in sender.ended.items():
            if len(answers) != 1:
                self.fail(f"{flight.prompt} got {len(answers)} answers")
            self._check_answer(flight, answers[0])

    def _check_answer(self, flight: Flight, answer: Answer) -> None:
        sender = self._simulation.load.sender
        text, expected = sender.texts.get(flight, ""), expected_text(flight.prompt, flight.max_tokens)
        replica = sender.replicas.get(flight)
        if not expected.startswith(text):
            self.fail(f"{flight.prompt} was answered with {text!r}")
        if answer.outcome == "ok" and text != expected:
            self.fail(f"{flight.prompt} was answered with only {text!r}")
        if answer.outcome == "cancelled" and flight.id not in sender.cancelled:
            self.fail(f"{flight.prompt} was cancelled, and not by its client")
        if answer.outcome == "failed" and "stub:" not in flight.prompt:
            assert replica is not None
            if replica.process.is_alive and not replica.has_failed:
                self.fail(f"{flight.prompt} failed at {replica.serve_id}, which lives: {answer.error}")
            if replica.has_ended and not replica.has_failed:
                self.fail(f"{flight.prompt} failed at {replica.serve_id}, which left: {answer.error}")

    def _check_rest(self, replica: SimulatedReplica) -> None:
        generation = replica.generation
        if generation is None or not replica.process.is_alive:
            return
        if generation.requests.counts or generation.requests.running or replica.open:
            self.fail(f"{generation.replica} still holds {generation.requests.counts}, {replica.open} open")
        if generation.batcher.waiting or generation.batcher.formed:
            self.fail(
                f"{generation.replica} has {generation.batcher.waiting} waiting, {generation.batcher.formed} formed"
            )
        tasks = replica.process.tasks
        if len(tasks) > TASKS_OF_A_REPLICA:
            self.fail(f"{generation.replica} still runs {len(tasks)} tasks: {[task.get_coro() for task in tasks]}")

    def _check_settings(self) -> None:
        simulation = self._simulation
        in_force = simulation.reader.in_force
        for replica in simulation.controller.replicas.values():
            generation = replica.generation
            if generation is None or not replica.process.is_alive:
                continue
            held = generation.batcher.in_force
            if in_force is None or held.version != in_force.version:
                self.fail(f"{generation.replica} holds version {held.version}, and {in_force} is in force")
            for name, values in simulation.operator.possible.items():
                if hasattr(held.settings, name) and getattr(held.settings, name) not in values:
                    self.fail(f"{name} is {getattr(held.settings, name)}, which was changed to {values}")

    def _check_what_was_read(self) -> None:
        """The reader knows the end of every request of a replica that lives, also where a hub died, or that left."""
        simulation = self._simulation
        reader = simulation.reader
        for replica in simulation.controller.ever:
            generation = replica.generation
            if generation is None:
                continue
            name = generation.replica
            if not replica.process.is_alive:
                if name not in reader.gone and name in reader.ledgers:
                    self.fail(f"{name} has ended, and the reader does not know")
                if name not in reader.left:  # what dies, or cannot say its last words, has not left
                    continue
                assert replica.ended_s is not None
                if simulation.controller.hub_died_s > replica.ended_s:  # and its last words with it
                    continue
            if reader.ledgers.get(name, Ledger()) != generation.recorder.ledger:
                self.fail(f"{name} counted {generation.recorder.ledger}, and {reader.ledgers.get(name)} was read")
            states = Counter(each.state for each in reader.requests.values() if each.replica == name)
            read = Ledger(completed=states["done"], failed=states["failed"], cancelled=states["cancelled"])
            ledger = generation.recorder.ledger
            known = Ledger(completed=ledger.completed, failed=ledger.failed, cancelled=ledger.cancelled)
            held = sum(states[state] for state in set(states) - FINAL_STATES)  # of a replica that left: given up by all
            if read != known or (held and replica.process.is_alive):
                self.fail(f"{name} counted {known}, and {states} was read")

    def _check_what_is_counted(self) -> None:
        """The hub tells Prometheus of every request and batch of a replica that lives, once, also where a hub died."""
        world, controller = self._simulation.world, self._simulation.controller
        if controller.hub is None or controller.hub_process is None:
            return
        asking = controller.hub_process.create_task(controller.hub.metrics())
        world.run(asking.done, world.now_s + SCRAPE_S)
        lines = [line for line in asking.result().decode().splitlines(keepends=True) if line.startswith(COUNTED)]
        families = text_string_to_metric_families("".join(lines))
        reported = {
            (each.name, each.labels.get("replica")): each.value for family in families for each in family.samples
        }
        for replica in self._simulation.controller.replicas.values():
            generation = replica.generation
            if generation is None or not replica.process.is_alive:
                continue
            answered = reported.get((ANSWERS, generation.replica))
            if answered != generation.recorder.ledger.completed:
                self.fail(
                    f"{generation.replica} counted {generation.recorder.ledger}, and {answered} answers are reported"
                )
            tokens = reported.get((GENERATED, generation.replica))
            batches = reported.get((BATCHES, generation.replica), 0.0)
            if answered and not (tokens and batches):
                self.fail(f"{generation.replica} gave {answered} answers, {tokens} tokens in {batches} batches")

    def _check_order(self) -> None:
        """No request is overtaken by more than one batch."""
        records: dict[str, list[RequestRecord]] = defaultdict(list)
        for record in self._simulation.reader.requests.values():
            if record.started_s is not None:
                records[record.replica].append(record)
        for own in records.values():
            for record in own:
                overtook = {
                    other.batch
                    for other in own
                    if other.batch != record.batch
                    and other.enqueued_s > record.enqueued_s
                    and other.started_s < record.started_s
                }
                if len(overtook) > 1:
                    self.fail(f"{record.id} was overtaken by {overtook}")


def _ended(ledger: Ledger) -> int:
    return ledger.completed + ledger.failed + ledger.cancelled
