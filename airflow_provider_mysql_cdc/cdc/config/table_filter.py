"""TiDB's table filter, by which dispatchers say which tables they are for.

A rule is ``database.table``. In both parts ``*`` stands for any text, ``?`` for one character, ``[a-z]`` and ``[!a-z]``
for one of or none of a set; a part in backticks or double quotes is taken as it is, one between slashes is a regular
expression. A rule that begins with ``!`` takes tables out again; the last rule that fits a table decides. Names are
compared without case (TiDB documentation, "Table Filter").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_QUOTES = {"`": "`", '"': '"'}
_WILDCARDS = {"*": ".*", "?": "."}


@dataclass(frozen=True, slots=True)
class _FilterRule:
    includes: bool
    database: re.Pattern[str]
    table: re.Pattern[str]


class TableFilter:
    """Say which tables the rules of a matcher fit.

    Args:
        rules: The rules in order.
        where: The property, for errors.

    Raises:
        ConfigError: A rule cannot be read.
    """

    def __init__(self, rules: Sequence[str], where: str) -> None:
        self._rules = tuple(_parse_rule(text, where) for text in rules)

    def matches(self, table: TableId) -> bool:
        """Return whether a table is meant."""
        for rule in reversed(self._rules):
            if rule.database.fullmatch(table.db) and rule.table.fullmatch(table.table):
                return rule.includes
        return False


def _parse_rule(text: str, where: str) -> _FilterRule:
    includes = not text.startswith("!")
    try:
        database, remainder = _parse_part(text if includes else text[1:])
        if not remainder.startswith("."):
            raise ValueError("a dot between database and table is missing")
        table, remainder = _parse_part(remainder[1:])
        if remainder:
            raise ValueError(f"{remainder!r} follows the table")
    except (ValueError, re.error) as error:
        raise ConfigError(
            f"the rule {text!r} cannot be read",
            where=where,
            why=str(error),
            remedy="write database.table, for example 'shop.*', '*.orders', '!shop.tmp_*' or '/^shop[0-9]+$/.orders'",
        ) from None
    return _FilterRule(includes, database, table)


def _parse_part(text: str) -> tuple[re.Pattern[str], str]:
    """Return the pattern of the first part of a rule, and what stands behind it."""
    first = text[:1]
    if first in _QUOTES:
        end = text.find(_QUOTES[first], 1)
        if end < 0:
            raise ValueError(f"the closing {first} is missing")
        return _compile(re.escape(text[1:end])), text[end + 1 :]
    if first == "/":
        end = text.find("/", 1)
        if end < 0:
            raise ValueError("the closing / is missing")
        return _compile(f".*(?:{text[1:end]}).*" if end > 1 else ".*"), text[end + 1 :]
    pieces = list(_part_patterns(text))
    if not pieces:
        raise ValueError("the name of the database or of the table is missing")
    return _compile("".join(piece for piece, _ in pieces)), text[sum(size for _, size in pieces) :]


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def _part_patterns(text: str) -> Iterator[tuple[str, int]]:
    """Yield the regular expression of each piece of a part up to its dot, and the piece's length."""
    pos = 0
    while pos < len(text) and text[pos] != ".":
        size = 1
        if text[pos] == "[":
            end = text.find("]", pos + 2)
            if end < 0:
                raise ValueError("the closing ] is missing")
            size = end + 1 - pos
            inner = text[pos + 1 : end]
            yield f"[{'^' + inner[1:] if inner[0] in '!^' else inner}]".replace("\\", "\\\\"), size
        else:
            yield _WILDCARDS.get(text[pos], re.escape(text[pos])), size
        pos += size
