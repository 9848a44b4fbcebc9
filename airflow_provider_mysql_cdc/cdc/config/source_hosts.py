"""The servers in ``database.hostname``: one, or several as MySQL's clients take them."""

from __future__ import annotations

HIGHEST_PORT = 65535


def source_hosts(text: str, default_port: int) -> tuple[tuple[str, int], ...]:
    """Return host and port of each server, in order.

    Args:
        text: ``host``, ``host:port`` or ``[IPv6]:port``, several of them with commas between. An address with several
            colons and without brackets is an IPv6 address.
        default_port: The port of a server without one.

    Raises:
        ValueError: An entry is empty, has no host, or its port is no port.
    """
    entries = [entry.strip() for entry in text.split(",")]
    if not all(entries):
        raise ValueError("must not be empty, nor have an empty entry between commas")
    hosts = tuple(_host_and_port(entry, default_port) for entry in entries)
    if len(set(hosts)) < len(hosts):
        raise ValueError("names a server twice")
    return hosts


def host_list(value: str) -> str:
    """Return the text of a list of servers without blanks around it.

    Raises:
        ValueError: It is not one.
    """
    source_hosts(value, HIGHEST_PORT)
    return value.strip()


def _host_and_port(entry: str, default_port: int) -> tuple[str, int]:
    if entry.startswith("["):
        host, bracket, rest = entry[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{entry!r} is not of the form [IPv6]:port")
        port = rest[1:] if rest else ""
    elif entry.count(":") == 1:
        host, rest = entry.split(":")
        port = rest
    else:
        host, rest, port = entry, "", ""
    if not host or any(char.isspace() for char in host):
        raise ValueError(f"{entry!r} has no host")
    if not rest and not entry.endswith(":"):
        return host, default_port
    if not (port.isascii() and port.isdigit()) or not 1 <= int(port) <= HIGHEST_PORT:
        raise ValueError(f"the port of {entry!r} must be a number from 1 to {HIGHEST_PORT}")
    return host, int(port)
