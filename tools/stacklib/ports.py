"""Free loopback ports, chosen once per run folder and kept over restarts where possible."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

from stacklib.errors import StackError, say
from stacklib.settings import LOOPBACK

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Below are ports that programs are known by.
_FIRST, _LAST = 10240, 65535


def is_free(port: int) -> bool:
    """Return whether a server could listen on the loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def outgoing() -> range:
    """Return the ports of which the kernel gives outgoing connections one (Linux: ip_local_port_range)."""
    try:
        low, high = map(int, _RANGE.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return range(32768, 61000)
    return range(low, high + 1)


def any_free(avoid: frozenset[int] = frozenset()) -> int:
    """Return a loopback port that is free now and not among ``avoid``.

    It is none that an outgoing connection could get before the server listens there, where there are others.
    """
    taken = outgoing()
    below, above = range(_FIRST, min(taken.start, _LAST + 1)), range(max(taken.stop, _FIRST), _LAST + 1)
    found: list[int] = [*below, *above] or [*range(_FIRST, _LAST + 1)]
    for _ in range(100):
        port = secrets.choice(found)
        if port not in avoid and is_free(port):
            return port
    raise StackError("choosing a port", "100 attempts gave none", "free some loopback ports and run it again")


def choose(subject: str, wanted: int | None, remembered: int | None, avoid: frozenset[int] = frozenset()) -> int:
    """Choose the port of a server.

    Args:
        subject: the server, for messages.
        wanted: the requested port; it must be free.
        remembered: the port of the last start; it is kept when it is free.
        avoid: ports already used by other servers of the stack.

    Raises:
        StackError: the wanted port is in use.
    """
    if wanted is not None:
        if not is_free(wanted):
            raise StackError(
                f"{subject} port {wanted}",
                "another program listens there",
                f"end that program, choose another --{subject}-port, or leave the option out for a free one",
            )
        return wanted
    if remembered is not None and remembered not in avoid:
        if is_free(remembered):
            return remembered
        say(subject, f"port {remembered} of the last start is in use by another program; taking a free one")
    return any_free(avoid)
