"""The kinds of faults. Each returns whether it fired: a fault that came too late is none."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from soaklib import promotion_faults, spark_faults, xa_fault
from soaklib.steps import WINDOW_POINTS, Fault, fill_batch, kill_begun, kill_unfinished, point, start_attempt
from soaklib.world import SoakStream

_TRIES = 4


def kill_driver(world: SoakStream) -> bool:
    """Kill -9 of the driver at any time."""
    attempt = start_attempt(world)
    hit = attempt.kill()
    world.run(attempt, excused=True)
    return hit


def kill_at_point(world: SoakStream) -> bool:
    """Kill -9 of the driver at a step of the commit protocol."""
    fill_batch(world)
    attempt = world.start(fault=point(world, "kill-self"))
    attempt.killed = True
    world.run(attempt, excused=True)
    return attempt.fired


def kill_often(world: SoakStream) -> bool:
    """Kill -9 of three attempts in a row, at steps of the commit protocol."""
    return sum(kill_at_point(world) for _ in range(3)) > 1


def _restart_server(
    world: SoakStream, restart: Callable[[signal.Signals, float], bool], number: signal.Signals
) -> bool:
    attempt = start_attempt(world)
    hit = attempt.alive
    hit = restart(number, world.rng.uniform(0.0, 2.0)) and hit
    world.run(attempt, excused=True)
    return hit


def kill_kafka(world: SoakStream) -> bool:
    """Kill -9 of the broker, which comes back."""
    return _restart_server(world, world.servers.restart_kafka, signal.SIGKILL)


def kill_mysqld(world: SoakStream) -> bool:
    """Kill -9 of mysqld, which comes back."""
    return _restart_server(world, world.servers.restart_mysql, signal.SIGKILL)


def restart_mysqld(world: SoakStream) -> bool:
    """A planned restart of mysqld."""
    return _restart_server(world, world.servers.restart_mysql, signal.SIGTERM)


def cut_connections(world: SoakStream) -> bool:
    """Connections to MySQL are reset, once or several times."""
    attempt, hits = start_attempt(world), 0
    for _ in range(world.rng.randrange(1, 4)):
        hits += world.servers.proxy.cut() if attempt.alive else 0
        time.sleep(world.rng.uniform(0.0, 0.5))
    world.run(attempt, excused=True)
    return hits > 0


def freeze_connections(world: SoakStream) -> bool:
    """Connections to MySQL stay open, but nothing passes any more."""
    attempt = start_attempt(world)
    hits = world.servers.proxy.freeze() if attempt.alive else 0
    world.run(attempt, excused=True)
    world.servers.proxy.cut()
    return hits > 0


def freeze_driver(world: SoakStream) -> bool:
    """SIGSTOP of a driver, a second one of the same owner works meanwhile, SIGCONT."""
    if world.rng.random() < 0.5:
        attempt = start_attempt(world)
        hit = attempt.signal(signal.SIGSTOP)
    else:
        fill_batch(world)
        attempt = world.start(fault=point(world, "stop-self"))
        limit = time.monotonic() + 60
        while attempt.alive and not attempt.fired and time.monotonic() < limit:
            time.sleep(0.05)
        hit = attempt.alive and attempt.fired
    if hit:
        for _ in range(world.rng.randrange(1, 3)):
            world.run(world.start(), excused=True)
        attempt.signal(signal.SIGCONT)
    world.run(attempt, excused=True)
    return hit


def second_driver(world: SoakStream) -> bool:
    """A second driver of the same owner starts while the first one works; both go on."""
    first = start_attempt(world)
    hit = first.alive
    second = world.start()
    third = world.start() if world.rng.random() < 0.3 else None
    for attempt in (first, second, third):
        if attempt is not None:
            world.run(attempt, excused=True)
    return hit


def competing_owner(world: SoakStream) -> bool:
    """A driver of another owner starts while the first one works."""
    first = start_attempt(world)
    hit = first.alive
    second = world.start(owner="soak/another/task/-1")
    world.run(second, excused=True)
    world.run(first, excused=True)
    return hit


def change_free_settings(world: SoakStream) -> bool:
    """Settings that decide nothing about records change between crash and retry."""
    hit, before = kill_unfinished(world), dict(world.properties)
    while world.properties == before:
        world.properties |= world.free_settings()
    world.run(world.start())
    return hit


def change_pinned_setting(world: SoakStream) -> bool:
    """A setting that decides about records changes between crash and retry: refused by name, or without effect."""
    for _ in range(_TRIES):
        if (refused := _change_inside_batch(world)) is not None:
            world.fired[refused] += 1
            return True
    return False


def _pinned_settings(world: SoakStream) -> list[tuple[str, str]]:
    """Return settings that decide about records, with other values than the stream has."""
    database = world.database
    settings = [
        ("key.converter.schemas.enable", "false"),
        ("message.key.columns", f"{database}.b:k1"),
        ("table.exclude.list", f"{database}.s"),
        ("column.exclude.list", f"{database}.a.v"),
        ("tombstones.on.delete", "false"),
        ("skipped.operations", "u"),
        ("decimal.handling.mode", "string"),
        ("topic.creation.default.partitions", "5"),
    ]
    if world.format == "ticdc":
        settings += [("enable-tidb-extension", "false"), ("avro-decimal-handling-mode", "string")]
    return settings


def _change_inside_batch(world: SoakStream) -> str | None:
    """Change a setting inside a batch of which a part is committed; return what came of it, None when it was over."""
    epoch = kill_begun(world)
    if epoch is None:
        return None
    before = dict(world.properties)
    name, value = world.rng.choice(_pinned_settings(world))
    world.properties[name] = value
    # Of a batch of which nothing is committed, and of the next one, it would decide rightly.
    changed = world.start(only=epoch)
    changed.wait(120)
    world.properties = before
    if changed.result.get("other"):
        return None
    error = changed.result.get("error")
    if error and not error["retriable"]:
        if name not in " ".join(str(error[k]) for k in ("what", "where", "why", "remedy")):
            world.report_problem(f"{name} changed inside a batch is refused without its name: {error}", changed)
        return f"refused: {name}"
    world.run(changed, excused=True)
    return f"carried on with: {name}"


def lose_state(world: SoakStream) -> bool:
    """Airflow loses the stored offset, after a crash."""
    hit = kill_unfinished(world)
    (world.folder / "state.db").unlink(missing_ok=True)
    return hit


def ask_incremental(world: SoakStream) -> bool:
    """An incremental snapshot of some tables, whose windows a killed driver meets; sometimes it is stopped."""
    if world.kind != "drain":
        return False
    names = [f"{world.database}.{name}" for name in world.rng.sample(("a", "b", "s", "c", "e", "big"), 3)]
    world.request_snapshot(names)
    world.properties["incremental.snapshot.chunk.size"] = world.rng.choice(("30", "200", "1024"))
    attempt = world.start(fault=point(world, "kill-self", WINDOW_POINTS))
    world.run(attempt, excused=True)
    if world.rng.random() < 0.25:
        world.stop_snapshot(names[:1])
    return attempt.fired


def no_fault(world: SoakStream) -> bool:
    """No fault: an attempt without a fault."""
    fill_batch(world)
    world.run(world.start())
    return True


FAULTS: dict[str, Fault] = {
    "kill driver": kill_driver,
    "kill driver at a step": kill_at_point,
    "kill three drivers": kill_often,
    "kill Kafka": kill_kafka,
    "kill mysqld": kill_mysqld,
    "restart mysqld": restart_mysqld,
    **promotion_faults.PROMOTIONS,
    "cut connections": cut_connections,
    "half-open connections": freeze_connections,
    "freeze driver": freeze_driver,
    "second driver": second_driver,
    "driver of another owner": competing_owner,
    "change free settings": change_free_settings,
    "change a pinned setting": change_pinned_setting,
    "lose the stored offset": lose_state,
    "incremental snapshot": ask_incremental,
    "restart before XA COMMIT": xa_fault.restart_before_xa_commit,
    "kill Spark driver JVM": spark_faults.kill_driver_jvm,
    "kill executor JVM": spark_faults.kill_executor_jvm,
    "kill Python worker": spark_faults.kill_python_worker,
}
