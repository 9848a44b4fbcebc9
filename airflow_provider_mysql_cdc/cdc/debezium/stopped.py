"""Check that a connector is stopped: Kafka Connect says so, or nothing of it moves."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_dicts
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, RunInProgressError, StateError

_TIMEOUT_S = 15.0
_ENDED = "STOPPED"
WATCH_S = 12.0
"""Seconds for which offset and topics must not move; a worker stores offsets each 10 to 60 s, and records at once."""


DUMP_WAIT_S = 60.0
"""Seconds within which the server sends Debezium a heartbeat: 0.8 of connect.keep.alive.interval.ms, a minute."""


def get_json(url: str, path: str) -> Any:
    """Return the answer of Kafka Connect's REST interface; None where it does not know the connector.

    Args:
        url: Its address.
        path: The path of the request.

    Raises:
        ConfigError: It is no address of this kind, or Kafka Connect does not answer.
    """
    where = f"{url.rstrip('/')}/{path}"
    if not where.startswith(("http://", "https://")):
        raise ConfigError("this is not an address of Kafka Connect", where=url, remedy="write it as http://HOST:8083")
    try:
        with urllib.request.urlopen(where, timeout=_TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise _no_answer(where, f"HTTP {error.code}: {error.read(500).decode('utf-8', 'replace')}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _no_answer(where, str(error)) from None


def _no_answer(where: str, why: str) -> ConfigError:
    return ConfigError(
        "Kafka Connect does not answer as its REST interface does",
        where=where,
        why=why,
        remedy="check --connect-url; without it, give the offset by --offsets-topic or --offsets-file. GET "
        "/connectors/NAME/offsets needs Kafka Connect 3.6 or later",
    )


def require_stopped(url: str, connector: str) -> str:
    """Check that Kafka Connect has stopped a connector, or does not have it; return what it says.

    Args:
        url: Address of its REST interface.
        connector: The connector's name.

    Raises:
        RunInProgressError: The connector is running, or may run again at any time.
        ConfigError: Kafka Connect does not answer.
    """
    status = get_json(url, f"connectors/{urllib.parse.quote(connector, safe='')}/status")
    if status is None:
        return f"Kafka Connect at {url} has no connector {connector}"
    state = _member(_member(status, "connector"), "state")
    tasks = [_member(task, "state") for task in status.get("tasks") or ()]
    if state != _ENDED or tasks:
        raise RunInProgressError(
            "the connector is not stopped",
            where=f"connector {connector} at {url}",
            why=f"its state is {state}, of its tasks {', '.join(tasks) or 'none'}: it would write each event once more",
            remedy=f"stop it: curl -X PUT {url}/connectors/{connector}/stop (Kafka Connect 3.5 and later), and wait "
            "until its state is STOPPED; PAUSED is not enough",
        )
    return f"Kafka Connect says that connector {connector} is STOPPED"


def _member(value: object, name: str) -> str | Any:
    return value.get(name, "") if isinstance(value, Mapping) else ""


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
