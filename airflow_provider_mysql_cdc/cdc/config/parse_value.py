"""Parsers from property text to typed values, servers of ``database.hostname`` included; each raises ``ValueError``
that says what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from airflow_provider_mysql_cdc.cdc.config.enums import DocEnum, Operation
from airflow_provider_mysql_cdc.cdc.model.connection import Secret
from airflow_provider_mysql_cdc.cdc.model.expression import Expression, java_expression
from airflow_provider_mysql_cdc.cdc.model.table import TableId

E = TypeVar("E", bound=DocEnum)

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_MATCH_CACHE_SIZE = 32_768
"""Names of which a list remembers whether it matches them."""
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9_.\-]+")


def as_text(value: str) -> str:
    """Return the text without blanks around it; it must not be empty."""
    if not (stripped := value.strip()):
        raise ValueError("must not be empty")
    return stripped


def optional_text(value: str) -> str | None:
    """Return the text without blanks around it, or None when nothing is left."""
    return value.strip() or None


def secret(value: str) -> Secret:
    """Return the text, blanks included, as a secret."""
    return Secret(value)


def optional_secret(value: str) -> Secret | None:
    """Return the text as a secret, or None when it is empty."""
    return Secret(value) if value else None


def boolean(value: str) -> bool:
    """Return True or False for ``true`` and ``false`` in any case."""
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("must be true or false")
    return lowered == "true"


def integer(low: int, high: int = INT64_MAX) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``low`` to ``high``, both included."""

    def parse(value: str) -> int:
        try:
            number = int(value.strip())
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"must be at least {low}" if number < low else f"must be at most {high}")
        return number

    return parse


def choice(options: type[E], synonyms: Mapping[str, str] | None = None) -> Callable[[str], E]:
    """Return a parser of an enum's values and their older names, in any case (Debezium ignores case here too)."""

    def parse(value: str) -> E:
        name = value.strip().lower()
        try:
            return options((synonyms or {}).get(name, name))
        except ValueError:
            raise ValueError(f"must be one of {', '.join(options)}") from None

    return parse


def topic_part(value: str) -> str:
    """Return a topic name or a part of one: letters, digits, hyphen, dot, underscore (CFG-08)."""
    stripped = as_text(value)
    if not _TOPIC_NAME.fullmatch(stripped):
        raise ValueError("may hold only letters, digits, hyphens, dots and underscores")
    if len(stripped) > 249:
        raise ValueError("must have at most 249 characters, as Kafka allows for a topic")
    return stripped


@dataclass(frozen=True, slots=True)
class Patterns:
    r"""Match names against a list of regular expressions as Debezium does.

    An expression must match the whole name; ASCII letters match without case; ``\d``, ``\w`` and ``\s`` mean ASCII
    (Java's ``Pattern.CASE_INSENSITIVE`` with ``Matcher.matches``).

    Args:
        source: The property text.
        compiled: One expression per list entry; matching raises ``ConfigError`` when it takes too long.
    """

    source: str = ""
    compiled: tuple[Expression, ...] = ()
    # Each table asks for its database again, and a match that can be stopped takes 10 microseconds.
    _match_cache: dict[str, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __bool__(self) -> bool:
        return bool(self.compiled)

    def __str__(self) -> str:
        return self.source

    def matches(self, name: str) -> bool:
        """Say whether any expression matches the whole name."""
        matched = self._match_cache.get(name)
        if matched is None:
            matched = any(p.fullmatch(name) for p in self.compiled)
            if len(self._match_cache) >= _MATCH_CACHE_SIZE:
                self._match_cache.clear()
            self._match_cache[name] = matched
        return matched

    def first_index(self, name: str) -> int:
        """Return the index of the first expression that matches the whole name; their number when none does."""
        return next((i for i, p in enumerate(self.compiled) if p.fullmatch(name)), len(self.compiled))


def split_list(value: str) -> list[str]:
    r"""Split at commas; a comma after a backslash belongs to the entry, and loses its backslash.

    Source: ``Strings.RegExSplitter`` of Debezium 3.6.1: any escaped character is passed over, entries are trimmed.
    """
    parts, start, i = [], 0, 0
    while i < len(value):
        if value[i] == "\\":
            if i + 1 == len(value):
                raise ValueError("ends in a backslash that escapes nothing")
            i += 1
        elif value[i] == ",":
            parts.append(value[start:i])
            start = i + 1
        i += 1
    parts.append(value[start:])
    return [stripped.replace("\\,", ",") for part in parts if (stripped := part.strip())]


pattern = java_expression


def patterns(value: str) -> Patterns:
    """Return the list of regular expressions; an empty text gives one that is false and matches nothing."""
    return Patterns(value, tuple(pattern(p) for p in split_list(value)))


def operations(value: str) -> frozenset[Operation]:
    """Return the operations of ``skipped.operations``; ``none`` alone stands for the empty set."""
    names = [n.strip() for n in value.split(",") if n.strip()]
    if "none" in names:
        if len(names) > 1:
            raise ValueError("'none' cannot be combined with other operations")
        return frozenset()
    try:
        return frozenset(Operation(n) for n in names)
    except ValueError:
        raise ValueError(f"must be none, or a list of {', '.join(Operation)}") from None


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Hold ``message.key.columns``: per list entry a pattern for ``database.table.column``.

    Args:
        source: The property text.
        rules: The patterns in the order of the text.
    """

    source: str = ""
    rules: tuple[Patterns, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)

    def __str__(self) -> str:
        return self.source

    def select(self, table: TableId, columns: tuple[str, ...]) -> tuple[str, ...]:
        """Return the key columns of a table, or empty when no rule fits it.

        Columns stand in the order of the rules; the pattern covers the column name too, as in Debezium's
        ``Key.CustomKeyMapper``, so ``db.t:id.*`` selects several columns.

        Args:
            table: The table.
            columns: All its column names in order.
        """
        selected = [c for rule in self.rules for c in columns if rule.matches(f"{table}.{c}")]
        return tuple(dict.fromkeys(selected))


_KEY_ENTRY = re.compile(r"([^:]++):([^:,]++(?:,[^:,]++)*)")


def key_columns(value: str) -> KeyColumns:
    """Return the rules of ``table:column,column;table:column`` (COL-13)."""
    rules = []
    for entry in filter(str.strip, value.split(";")):
        if not (match := _KEY_ENTRY.fullmatch(entry.strip())):
            raise ValueError(f"the entry {entry.strip()!r} is not of the form table:column,column")
        rules += [patterns(f"{match[1].strip()}.{c.strip()}") for c in match[2].split(",")]
    if not rules:
        raise ValueError("must not be empty")
    return KeyColumns(value, tuple(rules))


def is_pem(location: str) -> bool:
    """Say whether a file name looks like PEM rather than like a Java key store."""
    return location.lower().endswith((".pem", ".crt", ".cer", ".cert", ".key"))


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
