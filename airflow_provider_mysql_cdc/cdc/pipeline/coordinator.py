"""A small request/response channel from the tasks of a job to its driver.

Spark's own barrier and allGather cost about a second each (measured), too long to hold a global read lock. The driver
listens on its own address; each task keeps one connection and sends JSON lines. Calls may block on the driver's side,
which is how the tasks wait for each other.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError, from_json

Handler = Callable[[int, dict[str, Any]], dict[str, Any]]
Lost = Callable[[int, CdcError | None], None]


class Coordinator:
    """Serve calls of tasks.

    Args:
        handlers: Operation name -> function of (task index, arguments) that returns the reply; it runs in the
            connection's own thread and may block.
        host: The address that the tasks can reach.
        on_lost: Called with the task's index when its connection ends before it said goodbye, and with the error it
            ended with, if it could tell.
    """

    def __init__(self, handlers: dict[str, Handler], host: str = "127.0.0.1", on_lost: Lost | None = None) -> None:
        self._handlers = handlers
        self._on_lost = on_lost
        self._server = socket.create_server((host, 0))
        self.address: tuple[str, int] = self._server.getsockname()[:2]
        self.token = secrets.token_hex(16)
        self._closed = False
        threading.Thread(target=self._accept, name="cdc-coordinator", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn: socket.socket) -> None:
        task, done, cause = -1, False, None
        try:
            with conn, conn.makefile("rwb") as stream:
                conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                hello = json.loads(stream.readline() or b"{}")
                if not hmac.compare_digest(str(hello.get("token", "")), self.token):
                    return
                task = int(hello["task"])
                for line in stream:
                    request = json.loads(line)
                    if request["op"] == "bye":
                        done = True
                        return
                    if request["op"] == "failed":
                        cause = from_json(request["error"])
                        return
                    stream.write(json.dumps(self._reply(task, request)).encode() + b"\n")
                    stream.flush()
        except (OSError, ValueError):
            pass
        finally:
            if task >= 0 and not done and not self._closed and self._on_lost:
                self._on_lost(task, cause)

    def _reply(self, task: int, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._handlers[request["op"]](task, request)
        except CdcError as error:
            return {"error": error.to_json()}

    def close(self) -> None:
        """Stop accepting calls."""
        self._closed = True
        # Closing alone does not wake a thread that waits in accept (Linux).
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


class CoordinatorClient:
    """Call the driver from a task.

    Args:
        address: Host and port of the coordinator.
        token: Its secret.
        task: This task's index.
    """

    def __init__(self, address: tuple[str, int], token: str, task: int) -> None:
        self._sock = socket.create_connection(address, timeout=30)
        self._sock.settimeout(None)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._sock.makefile("rwb")
        self._stream.write(json.dumps({"token": token, "task": task}).encode() + b"\n")
        self._stream.flush()

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Send one request and return its reply.

        Raises:
            CdcError: The error the driver answered with.
            StateError: The driver is gone.
        """
        try:
            self._stream.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            self._stream.flush()
            line = self._stream.readline()
        except OSError as error:
            raise _gone(str(error)) from error
        if not line:
            raise _gone("it closed the connection")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise from_json(reply["error"])
        return reply

    def __enter__(self) -> CoordinatorClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if isinstance(error, CdcError):
            # The other tasks wait for this one; they shall end with its error, not with its loss.
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(json.dumps({"op": "failed", "error": error.to_json()}).encode() + b"\n")
        self.close(goodbye=kind is None)

    def close(self, *, goodbye: bool = True) -> None:
        """End the connection.

        Args:
            goodbye: Whether the task ended well; without it the driver counts the task as lost.
        """
        with contextlib.suppress(OSError):
            if goodbye:
                self._stream.write(b'{"op": "bye"}\n')
            self._stream.close()
        self._sock.close()


def _gone(why: str) -> StateError:
    return StateError("the driver of this job is gone", why=why, remedy="run the task again", retriable=True)
