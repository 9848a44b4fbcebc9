"""Waiting for a server's answer: as long as the server is at work, and no longer when it is gone.

A slow statement and a connection whose other end vanished without a word (a host without power, a network path that
forgot the connection) look the same to the one who waits. So after a time of silence the server is asked on another
connection whether it still works at the statement.
"""

from __future__ import annotations

import contextlib
import io
import math
import socket
from collections.abc import Callable
from typing import Any

import pymysql
from pymysql.constants import CR

from airflow_provider_mysql_cdc.cdc.errors import SourceError

FINAL_READ_S = 1.0
"""Seconds given to an answer that was sent while the server was being asked."""
_UNREACHABLE = frozenset({CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST})
_LINUX_OPTIONS = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")


def enable_keepalive(sock: socket.socket, seconds: float) -> None:
    """Let the operating system end a connection whose other host is gone, also while nobody writes.

    Args:
        sock: A connected TCP socket.
        seconds: After how many seconds without a sign of life.
    """
    with contextlib.suppress(OSError):  # a Unix socket
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if all(hasattr(socket, name) for name in _LINUX_OPTIONS):
            interval = max(1, math.ceil(seconds / 3))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, interval)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, math.ceil(seconds * 1000))


class DeadlineReader(io.RawIOBase):
    """Read from a connection to a server; look after the server when it is silent.

    Args:
        sock: The connection's socket.
        silence_s: Seconds of silence after which ``lost_reason`` is asked, again and again.
        limit_s: Longest silence in seconds, whatever ``lost_reason`` says; 0 for no limit.
        lost_reason: Return why no answer can be expected any more, or None.
    """

    def __init__(self, sock: Any, silence_s: float, limit_s: float, lost_reason: Callable[[], str | None]) -> None:
        self._sock, self._lost_reason = sock, lost_reason
        self._silence_s = min(silence_s, limit_s) if limit_s > 0 else silence_s
        self._limit_s = limit_s if limit_s > 0 else math.inf

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Wait for bytes.

        Raises:
            TimeoutError: None came in time; the text says why none was waited for any longer.
        """
        waited = 0.0
        while True:
            count = self._receive(buffer, self._silence_s)
            if count is not None:
                return count
            waited += self._silence_s
            if waited >= self._limit_s:
                raise TimeoutError(f"no answer for {waited:g} s; database.query.timeout.ms sets the limit")
            why = self._lost_reason()
            if why is not None:
                # The answer may have come between the look at the connection and that at the server.
                count = self._receive(buffer, FINAL_READ_S)
                if count is not None:
                    return count
                raise TimeoutError(f"no answer for {waited:g} s, and {why}")

    def _receive(self, buffer: Any, seconds: float) -> int | None:
        self._sock.settimeout(seconds)
        try:
            count: int = self._sock.recv_into(buffer)
        except TimeoutError:
            return None
        return count


def connection_lost_reason(open_another: Callable[[], Any], thread_id: int) -> str | None:
    """Return why a server will not answer on a connection any more, or None when it may.

    Args:
        open_another: Opens another connection to the same server, within a limit of time; refuses another server.
        thread_id: The connection's id on the server.
    """
    try:
        connection = open_another()
    except (pymysql.MySQLError, OSError) as error:
        unreachable = not isinstance(error, pymysql.MySQLError) or error.args[:1][0] in _UNREACHABLE
        # A server that refuses (too many connections) is there.
        return f"the server cannot be reached on another connection either: {error}" if unreachable else None
    except SourceError as error:
        return f"on another connection {error.what}"
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW PROCESSLIST")  # an account sees its own threads without any privilege
            commands = {row[0]: row[4] for row in cursor.fetchall()}
    except (pymysql.MySQLError, OSError):
        return None
    finally:
        with contextlib.suppress(Exception):
            connection.close()
    if thread_id not in commands:
        return "the server has ended the connection"
    return "the server has answered" if commands[thread_id] == "Sleep" else None
