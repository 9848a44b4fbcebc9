"""Check that a connector is stopped: Kafka Connect says so, or nothing of it moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_dicts
from airflow_provider_mysql_cdc.cdc.debezium.connect_rest import ConnectRest
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, RunInProgressError, StateError

_ENDED = "STOPPED"
WATCH_S = 12.0
"""Seconds for which offset and topics must not move; a worker stores offsets each 10 to 60 s, and records at once."""


DUMP_WAIT_S = 60.0
"""Seconds within which the server sends Debezium a heartbeat: 0.8 of connect.keep.alive.interval.ms, a minute."""


@dataclass(frozen=True, slots=True)
class StoppedConnector:
    """Say which connector is stopped.

    Args:
        name: Its name; empty where Kafka Connect does not have it, and nobody gave one.
        text: What says that it is stopped; empty where Kafka Connect does not have it.
    """

    name: str
    text: str = ""


def require_stopped(connect: ConnectRest, name: str, prefix: str) -> StoppedConnector:
    """Check that all connectors are stopped that write a stream's topics, whatever they are called.

    Args:
        connect: Kafka Connect.
        name: The connector's name; empty for the only one.
        prefix: ``topic.prefix``.

    Raises:
        RunInProgressError: One is running, or may run again at any time.
        ConfigError: Kafka Connect does not answer, or has the connector under another name.
    """
    answer = connect.get(f"{connect.url}/connectors?expand=status&expand=info")
    if not isinstance(answer, Mapping):
        raise ConfigError(
            "this is not the REST interface of Kafka Connect", where=connect.url, remedy="check --connect-url"
        )
    found = sorted(of for of, entry in answer.items() if of == name or _prefix(entry) == prefix)
    for connector in found:
        _require_stopped(connect, connector, _member(answer[connector], "status"))
    if not found:
        return StoppedConnector(name)
    if name not in found and (name or len(found) > 1):
        raise ConfigError(
            "Kafka Connect has the connector under another name",
            where=f"{connect.url}, topic.prefix {prefix}",
            why=f"it has {', '.join(found)}" + (f", and no {name}" if name else ""),
            remedy=f"give --connector-name {found[0]}" if len(found) == 1 else "give --connector-name",
        )
    return StoppedConnector(name or found[0], f"Kafka Connect says that connector {', '.join(found)} is STOPPED")


def _prefix(entry: object) -> object:
    config = _member(_member(entry, "info"), "config")
    return _member(config, "topic.prefix") or _member(config, "database.server.name")


def _require_stopped(connect: ConnectRest, connector: str, status: object) -> None:
    state, tasks = _member(_member(status, "connector"), "state"), _member(status, "tasks")
    states = [str(_member(task, "state")) for task in tasks or ()]
    if state != _ENDED or states:
        raise RunInProgressError(
            "the connector is not stopped",
            where=f"connector {connector} at {connect.url}",
            why=f"its state is {state}, of its tasks {', '.join(states) or 'none'}: it would write each event once "
            "more",
            remedy=f"stop it: curl -X PUT {connect.connector(connector, 'stop')}, and wait until its state is "
            "STOPPED; PAUSED is not enough. Kafka Connect before 3.5 cannot stop one: delete it, and give "
            "--offsets-topic",
        )


def _member(value: object, name: str) -> Any:
    return value.get(name) or "" if isinstance(value, Mapping) else ""


def require_no_dump(conn: Any, account: str, wait_s: float) -> str:
    """Check that nobody reads the binlog under the connector's account; return what the server says.

    The server notices that a client has gone when it sends the next event or heartbeat.

    Args:
        conn: An open connection.
        account: The account's user name.
        wait_s: How long to wait for that, in seconds.

    Raises:
        RunInProgressError: Somebody does.
    """
    deadline = time.monotonic() + wait_s
    while dumps := _dumps(conn, account):
        if time.monotonic() < deadline:
            time.sleep(1.0)
            continue
        raise RunInProgressError(
            "somebody reads the binlog under the connector's account",
            where=", ".join(f"{p['User']} from {p['Host']} for {p['Time']} s" for p in dumps[:5]),
            why="a connector that is running writes each event once more",
            remedy="stop the connector, and give --connect-url so that Kafka Connect is asked; if it is another "
            "program, or the connector is known to be stopped, add --ignore-dumps",
        )
    return f"nobody reads the binlog as {account}"


def _dumps(conn: Any, account: str) -> list[dict[str, Any]]:
    processes = fetch_dicts(conn, "SHOW PROCESSLIST")
    return [p for p in processes if str(p["Command"]).startswith("Binlog Dump") and p["User"] == account]


def require_still(look: Callable[[], object], seconds: float) -> str:
    """Check that what a connector writes does not move for a while.

    Args:
        look: Returns its newest offset, and where the topics end.
        seconds: How long.

    Raises:
        RunInProgressError: It moves.
    """
    before = look()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(min(2.0, seconds))
        if (now := look()) != before:
            raise RunInProgressError(
                "the connector is running: its offset or its topics move",
                where=f"before {before}, now {now}"[:500],
                remedy="stop it (PUT /connectors/NAME/stop), and give --connect-url so that Kafka Connect is asked",
            )
    return f"offset and topics have not moved for {seconds:.0f} s"


def require_finished_batch(state: object) -> None:
    """Check that this stream has no unfinished batch.

    Args:
        state: The batch, or None.

    Raises:
        StateError: It has.
    """
    if state is not None:
        raise StateError(
            "a batch of this stream is not finished",
            where=str(state),
            remedy="run mysql_cdc_drain until it is; or give it up with mysql_cdc_reset_offset, offset=stored",
        )
