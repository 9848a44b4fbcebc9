"""Kafka Connect's REST interface, which is only read, and the check that a connector is stopped."""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_dicts
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, RunInProgressError, StateError
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection

_TIMEOUT_S = 15.0
_NO_ANSWER = "Kafka Connect does not answer as its REST interface does"
_OTHER_WAYS = (
    "check its address; without one, give the offset by --offsets-topic or --offsets-file. GET "
    "/connectors/NAME/offsets needs Kafka Connect 3.6 or later"
)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Answer a redirect as an error: the password would go along to whatever address it names."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ConnectRest:
    """Ask one Kafka Connect.

    Args:
        url: Its address, without user and password.
        authorization: Value of the header that has them; empty for none.
    """

    url: str
    authorization: str = field(default="", repr=False)

    @classmethod
    def at(cls, address: str, user: str = "", password: str = "") -> ConnectRest:
        """Return the interface at an address.

        Args:
            address: As ``http://HOST:8083`` or ``https://USER:PASSWORD@HOST:8083``.
            user: The user, where the address has none.
            password: Its password.

        Raises:
            ConfigError: It is no address of this kind.
        """
        if (parts := _address(address)) is None:
            raise ConfigError(
                "this is not an address of Kafka Connect",
                where="--connect-url" if "@" in address else address,
                remedy="write it as http://HOST:8083; a user and a password before HOST as USER:PASSWORD@, with "
                "@ : / % in them as %40 %3A %2F %25",
            )
        account, _, host = parts.netloc.rpartition("@")
        if account:
            user, password = (urllib.parse.unquote(part) for part in account.partition(":")[::2])
        basic = base64.b64encode(f"{user}:{password}".encode()).decode() if user or password else ""
        url = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        return cls(url, basic and f"Basic {basic}")

    def connector(self, name: str, part: str) -> str:
        """Return the address of a part of a connector.

        Args:
            name: The connector's name.
            part: As ``offsets``.
        """
        return f"{self.url}/connectors/{urllib.parse.quote(name, safe='')}/{part}"

    def get(self, address: str) -> Any:
        """Return an answer; None where Kafka Connect does not know the connector.

        Args:
            address: Of this interface.

        Raises:
            ConfigError: Kafka Connect does not answer.
        """
        headers = {"Authorization": self.authorization} if self.authorization else {}
        request = urllib.request.Request(address, headers=headers)
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise _refused(address, error.code, error.read(500).decode("utf-8", "replace")) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ConfigError(
                _NO_ANSWER, where=address, why=str(error), remedy=_OTHER_WAYS, retriable=isinstance(error, OSError)
            ) from None


def _address(text: str) -> urllib.parse.SplitResult | None:
    try:
        parts = urllib.parse.urlsplit(text.strip())
        is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if is_one and not parts.query and not parts.fragment else None


def _refused(where: str, code: int, why: str) -> ConfigError:
    remedies = {
        401: "check user and password",
        403: "allow the user to read connectors and their offsets",
        409: "Kafka Connect is distributing its tasks: run this again in a minute",
    }
    remedy = remedies.get(code, _OTHER_WAYS)
    return ConfigError(_NO_ANSWER, where=where, why=f"HTTP {code}: {why}", remedy=remedy, retriable=code == 409)


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


def require_no_dump(conn: MySqlConnection, account: str, wait_s: float) -> str:
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


def _dumps(conn: MySqlConnection, account: str) -> list[dict[str, Any]]:
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
