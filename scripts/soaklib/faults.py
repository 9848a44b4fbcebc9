"""The kinds of faults. Each returns whether it fired: a fault that came too late is none."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing, suppress

import pymysql

from soaklib.attempts import Attempt
from soaklib.world import World

Fault = Callable[[World], bool]
_POINTS = {
    "snapshot": ("plan.after_store", "snapshot.view_open", "snapshot.after_chunk", "driver.before_outcome"),
    "drain": (
        *("plan.after_store", "writer.after_init", "writer.done", "driver.before_outcome", "airflow.before_commit"),
        *("writer.mid_batch", "writer.before_commit", "writer.after_commit") * 3,
    ),
}
_SPARK_S = 180.0


def _let_work_gather(world: World) -> None:
    """Let the load fill a batch that is worth disturbing."""
    time.sleep(world.rng.uniform(0.2, 1.2))


def _started(world: World) -> Attempt:
    _let_work_gather(world)
    attempt = world.start()
    time.sleep(world.moment())
    return attempt


def _point(world: World, action: str, points: tuple[str, ...] | None = None) -> dict[str, object]:
    point = world.rng.choice(points or _POINTS[world.kind])
    nth = world.rng.choice((1, 1, 2, 3, 5)) if point.startswith(("writer.", "snapshot.after")) else 1
    return {"point": point, "action": action, "nth": nth}


def kill_driver(world: World) -> bool:
    """Kill -9 of the driver at any time."""
    attempt = _started(world)
    hit = attempt.kill()
    world.run(attempt, excused=True)
    return hit


def kill_at_point(world: World) -> bool:
    """Kill -9 of the driver at a step of the commit protocol."""
    _let_work_gather(world)
    attempt = world.start(fault=_point(world, "kill-self"))
    attempt.killed = True
    world.run(attempt, excused=True)
    return attempt.fired


def kill_often(world: World) -> bool:
    """Kill -9 of three attempts in a row, at steps of the commit protocol."""
    return sum(kill_at_point(world) for _ in range(3)) > 1


def _server(world: World, restart: Callable[[signal.Signals, float], bool], number: signal.Signals) -> bool:
    attempt = _started(world)
    hit = attempt.alive
    hit = restart(number, world.rng.uniform(0.0, 2.0)) and hit
    world.run(attempt, excused=True)
    return hit


def kill_kafka(world: World) -> bool:
    """Kill -9 of the broker, which comes back."""
    return _server(world, world.servers.restart_kafka, signal.SIGKILL)


def kill_mysqld(world: World) -> bool:
    """Kill -9 of mysqld, which comes back."""
    return _server(world, world.servers.restart_mysql, signal.SIGKILL)


def restart_mysqld(world: World) -> bool:
    """A planned restart of mysqld."""
    return _server(world, world.servers.restart_mysql, signal.SIGTERM)


def cut_connections(world: World) -> bool:
    """Connections to MySQL are reset, once or several times."""
    attempt, hits = _started(world), 0
    for _ in range(world.rng.randrange(1, 4)):
        hits += world.servers.proxy.cut() if attempt.alive else 0
        time.sleep(world.rng.uniform(0.0, 0.5))
    world.run(attempt, excused=True)
    return hits > 0


def half_open(world: World) -> bool:
    """Connections to MySQL stay open, but nothing passes any more."""
    attempt = _started(world)
    hits = world.servers.proxy.freeze() if attempt.alive else 0
    world.run(attempt, excused=True)
    world.servers.proxy.cut()
    return hits > 0


def freeze_driver(world: World) -> bool:
    """SIGSTOP of a driver, a second one of the same owner works meanwhile, SIGCONT."""
    if world.rng.random() < 0.5:
        attempt = _started(world)
        hit = attempt.signal(signal.SIGSTOP)
    else:
        _let_work_gather(world)
        attempt = world.start(fault=_point(world, "stop-self"))
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


def second_driver(world: World) -> bool:
    """A second driver of the same owner starts while the first one works; both go on."""
    first = _started(world)
    hit = first.alive
    second = world.start()
    third = world.start() if world.rng.random() < 0.3 else None
    for attempt in (first, second, third):
        if attempt is not None:
            world.run(attempt, excused=True)
    return hit


def rival(world: World) -> bool:
    """A driver of another owner starts while the first one works."""
    first = _started(world)
    hit = first.alive
    second = world.start(owner="soak/another/task/-1")
    world.run(second, excused=True)
    world.run(first, excused=True)
    return hit


def change_free_settings(world: World) -> bool:
    """Settings that decide nothing about records change between crash and retry."""
    hit = kill_at_point(world)
    world.properties |= world.free_settings()
    world.run(world.start())
    return hit


def change_pinned_setting(world: World) -> bool:
    """A setting that decides about records changes between crash and retry: refused by name, or without effect."""
    _let_work_gather(world)
    points = ("snapshot.after_chunk",) if world.kind == "snapshot" else ("writer.after_commit", "writer.before_commit")
    fault = _point(world, "kill-self", points)
    attempt = world.start(fault=fault)
    world.run(attempt, excused=True)
    if not attempt.fired:
        return False
    before, database = dict(world.properties), world.database
    name, value = world.rng.choice(
        (
            ("key.converter.schemas.enable", "false"),
            ("message.key.columns", f"{database}.b:k1"),
            ("table.exclude.list", f"{database}.s"),
            ("column.exclude.list", f"{database}.a.v"),
            ("tombstones.on.delete", "false"),
            ("skipped.operations", "u"),
            ("decimal.handling.mode", "string"),
            ("topic.creation.default.partitions", "5"),
        )
    )
    world.properties[name] = value
    changed = world.start()
    changed.wait(120)
    world.properties = before
    error = changed.result.get("error")
    if error and not error["retriable"]:
        if name not in " ".join(str(error[k]) for k in ("what", "where", "why", "remedy")):
            world.complain(f"{name} changed inside a batch is refused without its name: {error}", changed)
        world.fired[f"refused: {name}"] += 1
    else:
        world.fired[f"carried on with: {name}"] += 1
        world.run(changed, excused=True)
    return True


def lose_state(world: World) -> bool:
    """Airflow loses the stored offset, after a crash."""
    hit = kill_at_point(world)
    (world.folder / "state.db").unlink(missing_ok=True)
    return hit


def restart_before_xa_commit(world: World) -> bool:
    """XA COMMIT is the first transaction after mysqld came back; its prepare lies in this batch or an earlier one."""
    world.ddl.pause()
    world.load.pause()
    try:
        xid = None
        for _ in range(10):
            # It may meet a lock of another one, or be over in one phase.
            with suppress(pymysql.MySQLError):
                xid = xid or world.load.prepare_xa(world.rng)
        if world.rng.random() < 0.5:
            world.run(world.start())
        number = world.rng.choice((signal.SIGTERM, signal.SIGKILL))
        world.servers.restart_mysql(number, 0.0)
        if world.rng.random() < 0.5:
            world.run(world.start(), excused=True)
        with closing(world.servers.connect(database=world.database)) as conn:
            hit = world.load.decide_xa(conn, world.rng, least=1) > 0
    finally:
        world.load.go_on()
        world.ddl.go_on()
    world.run(world.start(), excused=True)
    return hit


def _on_spark(world: World, word: bytes, more: bytes = b"") -> bool:
    """Kill a part of a Spark job: the first living process whose command line holds a word."""
    _let_work_gather(world)
    attempt = world.start(spark=True)
    limit = time.monotonic() + _SPARK_S
    while attempt.alive and not attempt.parts(word) and time.monotonic() < limit:
        time.sleep(0.05)
    time.sleep(world.rng.uniform(0.0, 2.0 if more else 6.0))
    found = attempt.parts(word)
    for pid in found[-1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    world.run(attempt, excused=True)
    return bool(found)


def kill_jvm(world: World) -> bool:
    """Kill -9 of the JVM of a Spark driver, which in local mode is its executor too."""
    return _on_spark(world, b"org.apache.spark.deploy.SparkSubmit")


def kill_python_worker(world: World) -> bool:
    """Kill -9 of a Python worker of Spark."""
    return _on_spark(world, b"pyspark.daemon", b"worker")


def nothing(world: World) -> bool:
    """No fault: an attempt that nobody disturbs."""
    _let_work_gather(world)
    world.run(world.start())
    return True


FAULTS: dict[str, Fault] = {
    "kill driver": kill_driver,
    "kill driver at a step": kill_at_point,
    "kill three drivers": kill_often,
    "kill Kafka": kill_kafka,
    "kill mysqld": kill_mysqld,
    "restart mysqld": restart_mysqld,
    "cut connections": cut_connections,
    "half-open connections": half_open,
    "freeze driver": freeze_driver,
    "second driver": second_driver,
    "driver of another owner": rival,
    "change free settings": change_free_settings,
    "change a pinned setting": change_pinned_setting,
    "lose the stored offset": lose_state,
    "restart before XA COMMIT": restart_before_xa_commit,
    "kill JVM": kill_jvm,
    "kill Python worker": kill_python_worker,
}
