"""Check what follows the rows in an event's JSON text, without reading it: its source block, operation and times.

A text counts only if it is like one that was read in full before: the same members in the same order, each once, of the
same table, with values of JSON. So no member comes twice, and none is written in another way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.offset import file_number
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.recent_tails import RecentTails, json_times
from airflow_provider_mysql_cdc.cdc.verify.source_place import position_order

MAX_TRIES = 32
"""Texts that are taken into account; such that are all of different kinds are not worth it."""
_STRING = rb'"[ !#-\[\]-~]*+(?:\\["\\/bfnrt][ !#-\[\]-~]*+)*+"'
_NUMBER = rb"(?:-?[1-9][0-9]{0,18}+|0)"
_SCALARS: Mapping[type, bytes] = {
    str: rb"(?:" + _STRING + rb"|null)",
    int: rb"(?:" + _NUMBER + rb"|null)",
    bool: rb"(?:true|false|null)",
    type(None): rb"(?:null|" + _NUMBER + rb"|" + _STRING + rb")",
}
_PLAIN_NAME = re.compile(r"[ !#-\[\]-~]*")
_GROUPS: Mapping[tuple[str, ...], bytes] = {
    ("source", "file"): rb'"(?P<file>[ !#-\[\]-~]*)"',
    ("source", "pos"): rb"(?P<pos>" + _NUMBER + rb")",
    ("op",): rb'"(?P<op>[crud])"',
}
"""Members whose values are told, by their paths."""
_CONSTANTS = frozenset(("source", name) for name in ("version", "connector", "name"))
"""Members that rarely change; a text with another value is another kind of text."""
_REFUSED = frozenset({"before", "after", "_tidb_commit_ts"})
"""Members that decide more than is told."""

_Pairs = list[tuple[str, Any]]
TailFacts = tuple[str, int]
"""Operation, and place in the binlog as ``source_order`` returns it."""


class EventTails:
    """Check the texts behind the rows of one table's events.

    Args:
        table: The table.
        closing: What a text ends with behind the event; ``}`` where records have schemas.
    """

    def __init__(self, table: TableId, closing: bytes) -> None:
        self._names: Mapping[tuple[str, ...], str] = {("source", "db"): table.db, ("source", "table"): table.table}
        self._closing = closing
        self._patterns: list[re.Pattern[bytes]] = []
        self._files: dict[bytes, int] = {}
        self._tries = 0
        self._recent = RecentTails[TailFacts](json_times)

    @property
    def knows_none(self) -> bool:
        """Return whether no text was learned, and one still can be."""
        return not self._patterns and self._tries < MAX_TRIES

    def read(self, value: bytes, start: int) -> TailFacts | None:
        """Return what a text says; None for one that is not like an earlier one.

        Args:
            value: The record's value.
            start: Where the comma before the source block is.
        """
        if (facts := self._recent.read(value, start)) is not None:
            return facts
        for pattern in self._patterns:
            if (found := pattern.fullmatch(value, start)) is not None:
                op, file, pos = found.group("op", "file", "pos")
                number = self._files.get(file)
                if number is None:
                    number = self._number_of(file)
                order = position_order(number, int(pos)) if number >= 0 else 0
                return self._recent.learn(value, start, (op.decode(), order))
        return None

    def read_end(self, value: bytes) -> tuple[int, TailFacts] | None:
        """Return where a text begins that is like the last one, and what that says (``RecentTails.read_end``).

        Args:
            value: The record's value.
        """
        return self._recent.read_end(value)

    def _number_of(self, file: bytes) -> int:
        try:
            number = file_number(file.decode())
        except ValueError:
            number = -1
        self._files[file] = number
        return number

    def learn(self, value: bytes, start: int) -> None:
        """Take a text as one that later ones may be like, if its event was read.

        Args:
            value: The record's value, which is JSON.
            start: Where the comma before the source block is.
        """
        end = len(value) - len(self._closing)
        if self._tries >= MAX_TRIES or self.read(value, start) is not None or not value.endswith(self._closing):
            return
        self._tries += 1
        try:
            members = json.loads(b"{" + value[start + 1 : end], object_pairs_hook=_Object)
            pattern = b"," + self._object_pattern(members, ())[2:] + re.escape(self._closing)
        except (ValueError, KeyError, RecursionError):
            return
        compiled = re.compile(pattern)
        if {"op", "file", "pos"} <= compiled.groupindex.keys() and compiled.fullmatch(value, start) is not None:
            self._patterns.append(compiled)

    def _object_pattern(self, members: _Pairs, path: tuple[str, ...]) -> bytes:
        names = [name for name, _ in members]
        if len(set(names)) < len(names) or not all(map(_PLAIN_NAME.fullmatch, names)) or _REFUSED & set(names):
            raise ValueError("members")
        parts = (
            b'"%s":%s' % (re.escape(name.encode()), self._value_pattern(value, (*path, name)))
            for name, value in members
        )
        return rb"\{" + b",".join(parts) + rb"\}"

    def _value_pattern(self, value: Any, path: tuple[str, ...]) -> bytes:
        if isinstance(value, _Object):
            return self._object_pattern(value, path)
        if isinstance(value, list):
            raise ValueError("an array")
        name = self._names.get(path)
        if name is not None:
            if value != name:
                raise ValueError("another table")
            return re.escape(json.dumps(name, ensure_ascii=False).encode())
        if path in _CONSTANTS:
            return re.escape(json.dumps(value, ensure_ascii=False).encode())
        return _GROUPS.get(path) or _SCALARS[type(value)]


class _Object(_Pairs):
    """The members of an object, in their order."""
