"""A small request/response channel from the tasks of a job to its driver.

A small request/response channel from the tasks of a job to its driver.

The driver listens on its own address; each task keeps one connection open and sends JSON lines. A call may block on the
driver's side, which is how the tasks wait for each other (``task_barrier``).
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.query_deadline import enable_keepalive
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError, from_json
from airflow_provider_mysql_cdc.cdc.job.task_operation import ReplyT, RequestT, TaskHandler, TaskOperation, read_message

MAX_UNAUTHENTICATED = 64
"""Connections at the same time that have not sent the token yet."""
PATIENCE_S = 1.0
"""Seconds a connection keeps its place for certain; a task sends the token as soon as it is connected."""


class UnauthenticatedConnections:
    """Limit how many connections wait for their token, without letting silent ones keep a task out."""

    def __init__(self) -> None:
        self._cond = threading.Condition()
        self._since: dict[socket.socket, float] = {}

    def add(self, conn: socket.socket) -> None:
        """Wait for a place and take it; the connection that has waited longest loses its own after ``PATIENCE_S``.

        Args:
            conn: The new connection.
        """
        with self._cond:
            while len(self._since) >= MAX_UNAUTHENTICATED:
                oldest, since = next(iter(self._since.items()))
                left_s = since + PATIENCE_S - time.monotonic()
                if left_s > 0:
                    self._cond.wait(left_s)
                    continue
                del self._since[oldest]
                # Wakes the thread that reads from it, which closes it.
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._since[conn] = time.monotonic()

    def remove(self, conn: socket.socket) -> None:
        """Give up a connection's place: it has sent its token, or is closed.

        Args:
            conn: The connection.
        """
        with self._cond:
            self._since.pop(conn, None)
            self._cond.notify()


HELLO_S = 10.0
"""Seconds within which a connection has to send the token."""
MAX_HELLO_BYTES = 1024
"""Longest first line."""
MAX_LINE_BYTES = 16 << 20
"""Longest line after the token: an error with its texts, a view's position with its GTID set."""
KEEPALIVE_S = 60.0
"""Seconds without an answer after which the host of the other side counts as gone."""
MAX_PORT_TRIES = 16
"""Ports that are tried, beginning with the configured one, as Spark does (``spark.port.maxRetries``)."""
LostHandler = Callable[[int, CdcError | None], None]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Hold the address on which a driver listens.

    Args:
        host: The address that the tasks can reach.
        bind: The address to listen on; empty for ``host``. It differs with NAT or in a container.
        port: The first port to try; 0 takes any free one.
        tries: Ports that are tried.
    """

    host: str = "127.0.0.1"
    bind: str = ""
    port: int = 0
    tries: int = MAX_PORT_TRIES


class Coordinator:
    """Serve calls of tasks.

    A connection is untrusted until its first line has sent the token. So the length of that line, the time until it
    arrives, and the number of connections that have not sent it are all limited.

    Args:
        handlers: Answers the tasks' operations; a handler runs in the connection's own thread and may block.
        endpoint: Where to listen.
        on_lost: Called with the index of a task whose connection ends without a goodbye, and with the error that the
            task reported, if any.
        hello_s: Longest wait in seconds for a connection's first line.

    Raises:
        ConfigError: The driver cannot listen there.
    """

    def __init__(
        self,
        handlers: Iterable[TaskHandler],
        endpoint: Endpoint = Endpoint(),
        on_lost: LostHandler | None = None,
        hello_s: float = HELLO_S,
    ) -> None:
        self._handlers = {handler.operation: handler for handler in handlers}
        self._on_lost = on_lost
        self._hello_s = hello_s
        self._unauthenticated = UnauthenticatedConnections()
        self._server = _listen(endpoint)
        self.address: tuple[str, int] = (endpoint.host, self._server.getsockname()[1])
        self.token = secrets.token_hex(16)
        self._closed = False
        threading.Thread(target=self._accept, name="cdc-coordinator", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self._server.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.05)  # a connection that was reset while it waited, or no file descriptor left
                continue
            self._unauthenticated.add(conn)  # further ones wait in the backlog
            try:
                threading.Thread(target=self._serve, args=(conn,), daemon=True).start()
            except RuntimeError:  # no thread can be started
                self._unauthenticated.remove(conn)
                conn.close()

    def _serve(self, conn: socket.socket) -> None:
        with conn:
            try:
                task = self._authenticate(conn)
            except (OSError, ValueError, RecursionError):
                task = None
            finally:
                self._unauthenticated.remove(conn)
            if task is not None:
                self._serve_task(conn, task)

    def _authenticate(self, conn: socket.socket) -> int | None:
        """Return the task that a connection belongs to, or None when it does not send the token in time."""
        deadline, line = time.monotonic() + self._hello_s, b""
        while not line.endswith(b"\n"):
            # Byte by byte, because a task sends its first request without waiting for a reply to this line.
            conn.settimeout(max(deadline - time.monotonic(), 0.001))
            byte = conn.recv(1)
            if not byte or len(line) == MAX_HELLO_BYTES:
                return None
            line += byte
        hello = json.loads(line)
        if not isinstance(hello, dict):
            return None
        token, task = hello.get("token"), hello.get("task")
        # As bytes: compare_digest raises a TypeError for text that is not ASCII.
        if not isinstance(token, str) or not hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode()):
            return None
        if not isinstance(task, int) or isinstance(task, bool) or task < 0:
            return None
        conn.settimeout(None)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A task may work for hours between two calls; only TCP keepalive finds out that its host is gone.
        enable_keepalive(conn, KEEPALIVE_S)
        return task

    def _serve_task(self, conn: socket.socket, task: int) -> None:
        done, cause = False, None
        try:
            with conn.makefile("rwb") as stream:
                while line := stream.readline(MAX_LINE_BYTES + 1):
                    request = _parse_request(line, task)
                    if request["op"] == "bye":
                        done = True
                        return
                    if request["op"] == "failed":
                        cause = from_json(request["error"])
                        return
                    stream.write(json.dumps(self._reply(task, request)).encode() + b"\n")
                    stream.flush()
        except CdcError as error:
            cause = error
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            pass  # the connection is lost, so the task counts as lost
        finally:
            if not done and not self._closed and self._on_lost:
                self._on_lost(task, cause)

    def _reply(self, task: int, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._handlers[request["op"]].reply(task, request)
        except CdcError as error:
            return {"error": error.to_json()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return {"error": _protocol_error(task, f"{request['op']!r}: {type(error).__name__}: {error}").to_json()}

    def close(self) -> None:
        """Stop accepting calls."""
        self._closed = True
        # On Linux, closing alone does not wake a thread that is blocked in accept.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


class CoordinatorClient:
    """Call the driver from a task.

    Args:
        address: Host and port of the coordinator.
        token: Its secret.
        task: This task's index.

    Raises:
        StateError: The driver cannot be reached.
    """

    def __init__(self, address: tuple[str, int], token: str, task: int) -> None:
        try:
            self._sock = socket.create_connection((address[0].strip("[]"), address[1]), timeout=30)
            self._sock.settimeout(None)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            enable_keepalive(self._sock, KEEPALIVE_S)
            self._stream = self._sock.makefile("rwb")
            self._stream.write(json.dumps({"token": token, "task": task}).encode() + b"\n")
            self._stream.flush()
        except OSError as error:
            raise _driver_gone_error(f"{address[0]}:{address[1]}: {error}") from error

    def call(self, operation: TaskOperation[RequestT, ReplyT], request: RequestT) -> ReplyT:
        """Send one request and return its reply.

        Args:
            operation: The operation.
            request: Its request.

        Raises:
            CdcError: The error that the driver replied with.
            StateError: The driver is gone.
        """
        try:
            self._stream.write(json.dumps({"op": operation.name, **request.to_json()}).encode() + b"\n")
            self._stream.flush()
            line = self._stream.readline(MAX_LINE_BYTES + 1)
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            raise _driver_gone_error(str(error)) from error
        if not line.endswith(b"\n"):
            raise _driver_gone_error("its reply was cut off" if line else "it closed the connection")
        try:
            reply = json.loads(line)
            failed = from_json(reply["error"]) if "error" in reply else None
            if failed is None:
                return read_message(operation.reply, reply)
        except (ValueError, LookupError, TypeError) as error:
            raise _driver_gone_error(f"its reply cannot be read: {error}") from error
        raise failed

    def __enter__(self) -> CoordinatorClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if isinstance(error, CdcError):
            # The other tasks wait for this one; they end with its error, and not with the loss of a task.
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(json.dumps({"op": "failed", "error": error.to_json()}).encode() + b"\n")
        self.close(goodbye=kind is None)

    def close(self, *, goodbye: bool = True) -> None:
        """End the connection.

        Args:
            goodbye: Whether the task has succeeded; otherwise the driver counts it as lost.
        """
        with contextlib.suppress(OSError):
            if goodbye:
                self._stream.write(b'{"op": "bye"}\n')
            self._stream.close()
        self._sock.close()


def _listen(endpoint: Endpoint) -> socket.socket:
    """Return a listening socket.

    Raises:
        ConfigError: No port could be bound.
    """
    address = (endpoint.bind or endpoint.host).strip("[]")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    ports = range(endpoint.port, min(endpoint.port + endpoint.tries, 65_536)) if endpoint.port else (0,)
    for port in ports:
        try:
            return socket.create_server((address, port), family=family)
        except OSError as error:
            last_error = error
            if error.errno != errno.EADDRINUSE:
                break
    raise ConfigError(
        "the driver cannot listen for its tasks",
        where=f"{address}, port {ports[0] or 'any'}" + (f" to {ports[-1]}" if len(ports) > 1 else ""),
        why=str(last_error),
        remedy="set an address of the driver's own host and a free port: spark.mysqlcdc.coordinator.bindAddress and"
        " .port, or spark.driver.bindAddress (docs/spark.md)",
    ) from last_error


def _parse_request(line: bytes, task: int) -> dict[str, Any]:
    """Read one line of a task.

    Raises:
        StateError: It is too long, or not a request.
    """
    if len(line) > MAX_LINE_BYTES:
        raise _protocol_error(task, f"a line has more than {MAX_LINE_BYTES} bytes")
    if not line.endswith(b"\n"):
        raise ConnectionError("the connection ended within a line")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _protocol_error(task, str(error)) from error
    if not isinstance(request, dict) or not isinstance(request.get("op"), str):
        raise _protocol_error(task, "it is not a JSON object with an operation")
    return request


def _protocol_error(task: int, why: str) -> StateError:
    return StateError(
        "the driver cannot read a message of a task",
        where=f"task {task}",
        why=why[:500],
        remedy="check that driver and executors have the same version of this package, then run the Airflow task again",
        retriable=True,
    )


def _driver_gone_error(why: str) -> StateError:
    return StateError("the driver of this job is gone", why=why, remedy="run the Airflow task again", retriable=True)
