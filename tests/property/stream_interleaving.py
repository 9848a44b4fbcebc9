"""Walks through the world of the whole stream: what may happen, and how a person brings the stream on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from stream_stage import ModelRangeWriter, ModelWriter
from stream_world import FIRST_PARTITIONS, TOPICS, Process, Runner, World, config

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, CdcError, TopicChangedError
from airflow_provider_mysql_cdc.cdc.incremental import drain_job
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import active_initial_request
from airflow_provider_mysql_cdc.cdc.operate import reset_offset
from airflow_provider_mysql_cdc.cdc.operate import settle as settling
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_driver

MOST_STEPS = 10_000
"""Steps of an undisturbed run that certainly never comes to its end."""


def quiet(_: str) -> None:
    """Take a line of text."""


class Simulation:
    """The world, the processes in it, what may happen, and how a person brings the stream on.

    Processes are chosen by a number, modulo how many there are.
    """

    def __init__(self, rng: random.Random) -> None:
        self.world = ModelRangeWriter.world = ModelWriter.world = World()
        self.serial, self.last_error = 0, ""
        self.runs: list[Process] = []
        self.tasks: list[Process] = []
        for _ in range(rng.randrange(3, 9)):
            self.world.source.write()

    # -- processes ------------------------------------------------------------------------------------------------

    def _drain(self, runner: Runner, salt: int, name: str, run_for_s: float = 0) -> None:
        world = self.world
        job = prepare_drain(config(salt, runner.wanted), world.store, name, quiet)
        if job is not None:
            drain_job.run_drain(replace(job.spec, run_for_s=run_for_s), runner, quiet)  # type: ignore[arg-type]
        settling.settle_offset(config(salt, runner.wanted), world.store, quiet)

    def _snapshot(self, runner: Runner, salt: int, name: str, again: bool) -> None:
        world = self.world
        job = prepare_snapshot(config(salt, runner.wanted), world.store, name, quiet, again=again)
        if job is not None:  # windows of a drain read what an interrupted snapshot has left
            rest = BatchPlan.from_json(job.spec.plan).kind == "drain"
            (drain_job.run_drain if rest else snapshot_driver.run_snapshot)(job.spec, runner, quiet)  # type: ignore[arg-type]
        settling.settle_offset(config(salt, runner.wanted), world.store, quiet)

    def _first_snapshot(self, runner: Runner, salt: int, name: str) -> None:
        self._snapshot(runner, salt, name, again=False)

    def _reset(self, to: str, salt: int, name: str) -> None:
        reset_offset.reset_offset(config(salt, 1), self.world.store, name, quiet, to=to)

    def _start(self, n: int, body: Callable[[Runner, int, str], None]) -> None:
        if len(self.runs) < 3:
            self.serial += n % 2  # a retry has the owner of the attempt before it
            runner, salt, name = Runner(self.world, n % 3 + 1), self.world.salt, f"run-{self.serial}"
            self.runs.append(Process(self.world, lambda: body(runner, salt, name), runner))

    def start_drain(self, n: int) -> None:
        """Start a drain; half of them go on with the batches after the first one."""
        run_for_s = (0, 0, 3, 8)[n // 6 % 4]
        self._start(n, lambda runner, salt, name: self._drain(runner, salt, name, run_for_s))

    def start_snapshot(self, n: int) -> None:
        again = n % 5 == 0
        self._start(n, lambda runner, salt, name: self._snapshot(runner, salt, name, again))

    def _place(self, n: int) -> str:
        binlog = self.world.source.address.binlog
        place = f"binlog.000001:{binlog.place(n % (len(binlog.changes) + 1))}"
        return ("stored", "current", "earliest", place)[n // 3 % 4]

    def start_reset(self, n: int) -> None:
        to = self._place(n)
        self._start(n, lambda _, salt, name: self._reset(to, salt, name))

    def step_run(self, n: int, steps: int) -> None:
        self._step(self.runs, n, steps)

    def start_task(self, n: int) -> None:
        """Start a task of a run; Spark may start it again, or twice at once."""
        waiting = [w for run in self.runs if run.runner for w in run.runner.work if w.waits]
        if waiting and len(self.tasks) < 8:
            self.tasks.append(Process(self.world, waiting[n % len(waiting)].run))

    def step_task(self, n: int, steps: int) -> None:
        self._step(self.tasks, n, steps)

    def finish_tasks(self, _: int) -> None:
        """Let the tasks that wait, and those of windows, come to their end, beside their drivers."""
        for work in [w for run in self.runs if run.runner for w in run.runner.work if w.waits]:
            self.tasks.append(Process(self.world, work.run))
            self._step(self.tasks, -1, 20 if work.once else 400)
        for _ in range(20):
            self.step_all(20)

    def step_all(self, steps: int) -> None:
        """Let every process go on."""
        for actors in (self.runs, self.tasks):
            for actor in list(actors):
                if not actor.step(steps):
                    actors.remove(actor)

    @staticmethod
    def _step(actors: list[Process], n: int, steps: int) -> None:
        if actors:
            actor = actors[n % len(actors)]
            if not actor.step(steps):
                actors.remove(actor)

    # -- what goes wrong ------------------------------------------------------------------------------------------

    def kill_run(self, n: int) -> None:
        """End a run; its tasks live on."""
        if self.runs:
            self.runs.pop(n % len(self.runs)).kill()

    def kill_task(self, n: int) -> None:
        if self.tasks:
            self.tasks.pop(n % len(self.tasks)).kill()

    def expire_transaction(self, n: int) -> None:
        self.world.kafka.expire(("p.0", "p.1", "p.2", "p.plan")[n % 4])

    def lose_stored_offset(self, _: int) -> None:
        self.world.store.clear()
        self.world.oracle.offset_lost()

    def change_configuration(self, n: int) -> None:
        self.world.salt = n % 2

    def source_goes_on(self, n: int) -> None:
        for _ in range(n % 4 + 1):
            self.world.source.write(lag=n % 7 == 0)

    def failover(self, n: int) -> None:
        if n % 2:
            self.world.source.catch_up()
            self.world.source.readdress()
        else:
            self.world.source.promote()

    def reset_binary_logs(self, _: int) -> None:
        self.world.source.reset()

    def change_topic(self, n: int) -> None:
        """Delete a topic, make it again, or give it more partitions."""
        world, topic = self.world, list(TOPICS)[n // 3 % len(TOPICS)]
        if topic in world.partitions and n % 3 == 0:
            world.partitions[topic] += 1
        elif topic in world.partitions:
            world.delete_topic(topic)
            if n % 3 == 1:
                world.create_topic(topic, FIRST_PARTITIONS + n % 2)

    # -- the end --------------------------------------------------------------------------------------------------

    def undisturbed(self, body: Callable[[Runner, int, str], None], wanted: int = 2) -> None:
        """Let a run and its tasks come to their end, here and now."""
        self.serial += 1
        runner, salt, name = Runner(self.world, wanted, patient=False), self.world.salt, f"last-{self.serial}"
        process, tasks = Process(self.world, lambda: body(runner, salt, name), runner), list[Process]()
        for _ in range(MOST_STEPS // 50):
            if not process.step(50):
                break
            tasks += [Process(self.world, work.run) for work in runner.work if work.waits and not work.begun]
            tasks = [task for task in tasks if task.step(50)]
        else:
            raise AssertionError("a run never comes to its end")
        for task in tasks:
            task.kill()
        self.expire_transactions()
        if process.error is not None:
            raise process.error

    def expire_transactions(self) -> None:
        """Let every transaction time out."""
        for producer in list(self.world.kafka.producers):
            self.world.kafka.expire(producer)

    def finish(self) -> None:
        """Bring the stream to the end of the binlog, as a person would who does what the errors say."""
        self.stop_all()
        self.expire_transactions()
        self.world.source.catch_up()
        for _ in range(12):
            self._set_back()
            for body in (self._first_snapshot, self._drain):
                try:
                    self.undisturbed(body)
                except TopicChangedError as error:
                    self._give_up("stored" if "offset=stored" in error.remedy else "current")
                except BinlogPurgedError:
                    self._give_up("current")
                except CdcError as error:  # the other job's turn, or a matter of trying again
                    self.last_error = error.message()
            stored, here = self.world.store.load(), self.world.source.address.binlog
            at = stored.committed if stored is not None and stored.pending is None else None
            if at is not None and self.world.source.life(at) is here and at.pos >= here.end():
                self.read_rest()
                return
        raise AssertionError(f"the stream never came to its end: {self.last_error}")

    def read_rest(self) -> None:
        """Let windows read what is left of interrupted snapshots."""
        self.undisturbed(self._drain)
        state = read_incremental_state(self.world.ledger.read() or LedgerState()).with_advanced_cursors()
        assert active_initial_request(state) is None, f"never read: {state.active_scans}"

    def _set_back(self) -> None:
        """Set the configuration back to that of a batch that is not finished."""
        plan = (self.world.ledger.read() or LedgerState()).plan
        if plan is not None and plan.pins:
            self.world.salt = int("tombstones.on.delete" in plan.pins)

    def _give_up(self, to: str) -> None:
        plan = (self.world.ledger.read() or LedgerState()).plan
        unfinished = plan is not None and plan.kind == "snapshot" and self.world.store.load().pending is not None
        self.undisturbed(lambda _, salt, name: self._reset(to, salt, name))
        if unfinished:
            self.undisturbed(lambda *args: self._snapshot(*args, again=True))

    # -- how a walk begins ----------------------------------------------------------------------------------------

    def quietly(self, body: Callable[[Runner, int, str], None], wanted: int = 2) -> bool:
        """Let a run come to its end, or to a named error; return whether it came through."""
        try:
            self.undisturbed(body, wanted)
        except CdcError:
            return False
        return True

    def stop_all(self) -> None:
        """End every process."""
        for process in [*self.runs, *self.tasks]:
            process.kill()
        self.runs, self.tasks = [], []

    def interrupted(self, rng: random.Random) -> None:
        """A snapshot that is interrupted and handed over, then another binlog, and a person who goes on in it."""
        self.start_snapshot(3 * rng.randrange(4) + 1)
        self.step_run(-1, 60)
        self.start_task(0)
        self.step_task(-1, rng.randrange(8, 24))
        self.stop_all()
        self.source_goes_on(rng.randrange(100))
        self.quietly(self._first_snapshot)
        for _ in range(rng.randrange(1, 3)):
            rng.choice([self.reset_binary_logs, self.failover])(rng.randrange(100))
        to = self._place(rng.randrange(100))
        self.quietly(lambda _, salt, name: self._reset(to, salt, name))
        self.source_goes_on(rng.randrange(100))

    def dying_reset(self, rng: random.Random) -> None:
        """Writers running, and a reset that dies somewhere."""
        self.quietly(self._first_snapshot)
        self.source_goes_on(3)
        self.start_drain(3 * rng.randrange(99) + 2)
        self.step_run(-1, 60)
        for task in range(3):
            self.start_task(task)
            self.step_task(-1, rng.randrange(3, 10))
        self.start_reset(rng.randrange(10**6))
        self.step_run(-1, rng.randrange(6, 14))
        self.kill_run(-1)
        self.start_drain(3 * rng.randrange(99))
        self.step_run(-1, 60)
        for task in range(3):
            self.step_task(task, rng.randrange(12))

    def changed_topics(self, rng: random.Random) -> None:
        """Topics changed between two attempts of a task, half of the time such that no plan knows."""
        born = rng.random() < 0.5
        self.quietly((lambda _, salt, name: self._reset("current", salt, name)) if born else self._first_snapshot)
        for _ in range(3):
            self.source_goes_on(3)
        self.start_drain(rng.randrange(3))
        self.step_run(-1, 60)
        self.start_task(0)
        self.step_task(-1, rng.randrange(8, 24))
        self.change_topic(rng.randrange(100))
        self.start_task(0)
        self.step_task(-1, rng.randrange(8, 24))

    def lost_beside_a_snapshot(self, rng: random.Random) -> None:
        """A snapshot that is taken again, and has to wait for the drain when Airflow's value is lost."""
        self.quietly(self._first_snapshot)
        self.start_snapshot(5 * rng.randrange(9))
        self.step_run(-1, rng.randrange(10, 50))
        self.stop_all()
        self.source_goes_on(rng.randrange(100))
        self.lose_stored_offset(0)

    def new_binlog(self, rng: random.Random) -> None:
        """A binlog that is reset while writers begin to read."""
        self.quietly(self._first_snapshot)
        self.source_goes_on(rng.randrange(100))
        self.start_drain(rng.randrange(99))
        self.step_run(-1, 60)
        self.start_task(0)
        self.step_task(-1, rng.randrange(3, 7))
        self.reset_binary_logs(0)
        for _ in range(rng.randrange(2, 7)):
            self.source_goes_on(rng.randrange(100))

    def living_writers(self, rng: random.Random) -> None:
        """A drain that goes on batch after batch with the same writers, and what goes wrong between two or inside."""
        self.quietly(self._first_snapshot)
        self.source_goes_on(3)
        self.start_drain(6 * rng.randrange(2, 4) + rng.randrange(6))
        for _ in range(rng.randrange(2, 6)):
            self.step_run(-1, 60)
            for task in range(3):
                self.start_task(task)
            for _ in range(rng.randrange(2, 6)):
                self.step_all(rng.randrange(4, 16))
            self.source_goes_on(rng.randrange(100))
        for task in range(3):
            self.step_task(task, rng.randrange(6))
        wrong: list[Callable[[int], object]] = [
            self.kill_run,
            self.kill_task,
            self.expire_transaction,
            self.failover,
            self.reset_binary_logs,
            self.change_topic,
            lambda n: (self.start_reset(n), self.step_run(-1, n % 20)),
            lambda n: (self.start_drain(n), self.step_run(-1, n % 40)),
        ]
        rng.choice(wrong)(rng.randrange(10**6))


def random_walk(seed: int, steps: int = 40) -> None:
    """Let chance choose what happens next; each walk has a misfortune that comes more often than others."""
    rng = random.Random(seed)
    sim = Simulation(rng)
    _begin(sim, rng, seed)
    _go_on(sim, rng, seed, steps)


def living_walk(seed: int, steps: int = 20) -> None:
    """Let chance choose what happens to writers that live from batch to batch, and what happens then."""
    rng = random.Random(seed)
    sim = Simulation(rng)
    sim.living_writers(rng)
    _go_on(sim, rng, seed, steps)


def _begin(sim: Simulation, rng: random.Random, seed: int) -> None:
    beginnings = (
        sim.interrupted,
        sim.dying_reset,
        sim.changed_topics,
        sim.new_binlog,
        sim.lost_beside_a_snapshot,
        lambda _: None,
    )
    beginnings[seed % len(beginnings)](rng)


def _go_on(sim: Simulation, rng: random.Random, seed: int, steps: int) -> None:
    ordinary: list[Callable[[int], object]] = [
        lambda n: (sim.start_drain(n), sim.step_run(-1, n % 40)),
        lambda n: (sim.start_snapshot(n), sim.step_run(-1, n % 60)),
        lambda n: sim.step_run(n, n % 9 + 1),
        lambda n: sim.step_run(-1, 60),
        lambda n: (sim.start_task(n), sim.step_task(-1, n % 14)),
        lambda n: sim.step_task(n, n % 9 + 1),
        lambda n: sim.step_task(n, n % 3 + 1),
        lambda n: (sim.finish_tasks(n), sim.step_run(-1, 60)),
        sim.source_goes_on,
    ]
    common: list[Callable[[int], object]] = [
        sim.kill_run,
        sim.kill_task,
        sim.expire_transaction,
        sim.lose_stored_offset,
        sim.change_configuration,
    ]
    rare: list[Callable[[int], object]] = [
        lambda n: (sim.start_reset(n), sim.step_run(-1, n % 50)),
        sim.failover,
        sim.reset_binary_logs,
        sim.change_topic,
    ]
    faults = [*common, rare[0], *[rare[seed // 7 % len(rare)]] * 2]
    for _ in range(steps):
        rng.choice(ordinary if rng.random() < 0.8 else faults)(rng.randrange(10**6))
    sim.finish()
