"""Take keys and rows out of records in JSON as bytes, for checksums, without reading the rows.

A key counts only in the one text that the stream writes, and an event only in the layout of the table's present
structure; the comparison by value reads all others. A quote inside of a JSON string is escaped, so the names of members
are found only where they are members.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import orjson

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_entries import checksum_of
from airflow_provider_mysql_cdc.cdc.verify.structures.event_layout import (
    EventLayout,
    RecentTails,
    event_layout,
    json_times,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.row_comparison import column_field

_PLAIN_VALUE = rb'(?:0|-?[1-9][0-9]{0,17}|true|false|null|"[ !#-\[\]-~]*")'
"""A value that only one text has."""
_SOURCE, _AFTER_ROW, _NO_AFTER = b',"source":{"version":', b',"after":{', b',"after":null'
_IN_EVENT = b'{"after":null'
_CLOSING = ord("}")
_NEW_ROW_OPS, _CHANGED_ROW_OPS, _NO_ROW_OPS = frozenset({b"c", b"r", b"u"}), frozenset({b"u"}), frozenset({b"d"})
_FILE_AND_POS = re.compile(rb'"file":"[^"]*?\.?(\d+)","pos":(\d+)')
_MEMBER_NAMES = frozenset({"before", "after", "source"})


def value_prefix(cfg: ConnectorConfig, table: Table) -> bytes | None:
    """Return what values of a table's events begin with, before their members; None where these are not looked for.

    An event with another schema is of an earlier structure, and has to be read.
    """
    if cfg.is_ticdc or cfg.is_avro("key") or cfg.is_avro("value"):
        return None
    if any(column.name.lower() in _MEMBER_NAMES for column in table.columns):
        return None
    schema = table_options.envelope_text(cfg, table, table_options.table_options(cfg, table)).value_schema
    return b"" if schema is None else f'{{"schema":{schema},"payload":'.encode()


def json_slices(cfg: ConnectorConfig, table: Table, prefix: bytes) -> JsonSlices:
    """Return what takes the records of a table apart, whose values begin with the prefix (``value_prefix``)."""
    options = table_options.table_options(cfg, table)
    schema = table_options.envelope_text(cfg, table, options).key_schema
    key_prefix = b"" if schema is None else f'{{"schema":{schema},"payload":'.encode()
    keys = KeyTexts(key_prefix, tuple(column_field(cfg, column) for column in key_columns(table, options)))
    return JsonSlices(keys, prefix, event_layout(cfg, table, has_schema=bool(prefix)))


def place_in_binlog(value: bytes) -> tuple[int, int]:
    """Return number of the binlog file and position of an event; zeros where its text does not say them."""
    place = _FILE_AND_POS.search(value)
    return (0, 0) if place is None else (int(place[1]), int(place[2]))


class KeyTexts:
    """Take the fields out of the keys of one table's records.

    Args:
        prefix: What keys begin with before their fields; empty for keys without schemas.
        fields: The key's fields, in order.
    """

    def __init__(self, prefix: bytes, fields: tuple[str, ...]) -> None:
        self._prefix, self._fields = prefix, fields
        members = b",".join(re.escape(dumps(name).encode()) + b":" + _PLAIN_VALUE for name in fields)
        plain = rb"\{" + members + rb"\}"
        self._is_plain = re.compile(plain).fullmatch
        # Not possessive: in Python 3.11.2 such a repetition matches a text whose last line is cut off.
        self._are_plain = re.compile(plain + rb"(?:\n" + plain + rb")*").fullmatch

    def fields_of(self, key: bytes) -> bytes | None:
        """Return the text of a key's fields; None if another text may have the same values.

        None also stands for what is no key of the table's present structure.
        """
        if self._prefix:
            if not key.startswith(self._prefix) or not key.endswith(b"}"):
                return None
            key = key[len(self._prefix) : -1]
        return key if self._is_plain(key) is not None or self._is_written_so(key) else None

    def fields_of_all(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the same of several keys, by one look at all of them where they are plain."""
        prefix, begin = self._prefix, len(self._prefix)
        fields = [k[begin:-1] for k in keys if k.startswith(prefix) and k.endswith(b"}")] if prefix else keys
        joined = b"\n".join(fields)
        are_plain = self._are_plain(joined) is not None and joined.count(b"\n") == len(keys) - 1
        return fields if are_plain and len(fields) == len(keys) else [self.fields_of(key) for key in keys]

    def _is_written_so(self, text: bytes) -> bool:
        try:
            fields = orjson.loads(text)
            return isinstance(fields, dict) and tuple(fields) == self._fields and orjson.dumps(fields) == text
        except (ValueError, TypeError):
            return False


class JsonSlices:
    """Take the records of one table apart.

    The text of the row is what checksums compare, so it is not looked into; all else has to be JSON.

    Args:
        keys: Takes the fields out of its keys.
        prefix: What values of the table's present structure begin with (``value_prefix``).
        layout: How its events are written.
    """

    checksum_of = staticmethod(checksum_of)

    def __init__(self, keys: KeyTexts, prefix: bytes, layout: EventLayout) -> None:
        self.fields_of, self.fields_of_all = keys.fields_of, keys.fields_of_all
        self._new_row, self._old_row = prefix + b'{"before":null,"after":{', prefix + b'{"before":{'
        self._no_row = prefix + b'{"before":null' + _NO_AFTER + _SOURCE
        self._opening = _IN_EVENT if not prefix else b'{"payload":' + _IN_EVENT
        self._row_match, self._tail_match = layout.row.match, layout.tail.fullmatch
        self._begin = len(self._new_row) - 1
        self._recent = RecentTails(json_times)
        self._row_tail = b""

    def rows_after(self, values: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the row after each event; empty for a delete, None where the event has to be read."""
        return self._recent.rows_of(values, self._new_row, _NEW_ROW_OPS) or list(map(self.row_after, values))

    def row_after(self, value: bytes) -> bytes | None:
        """Return the row after an event; empty for a delete, None where the event has to be read."""
        if value.startswith(self._new_row) and (end := self._recent.read_end(value)) is not None:
            after = value[self._begin : end[0]]
            if end[1] in _NEW_ROW_OPS and after.endswith(b"}"):
                return after
        found = self._rows_in(value)
        if found is None:
            return None
        source, after, operations = found
        if source < 0 or (after and after[-1] != _CLOSING):
            return None
        operation = self._recent.read(value, source)
        if operation is None:
            tail = self._tail_match(value, source)
            if tail is None or not _is_json(self._opening + tail[0]):
                return None
            operation = self._recent.learn(value, source, tail[1])
        return after if operation in operations else None

    def _rows_in(self, value: bytes) -> tuple[int, bytes, frozenset[bytes]] | None:
        """Return where the source block begins, the row after the event, and the operations that such events have."""
        if value.startswith(self._new_row):
            source = value.find(_SOURCE, self._begin)
            return source, value[self._begin : source], _NEW_ROW_OPS
        if value.startswith(self._no_row):
            return len(self._no_row) - len(_SOURCE), b"", _NO_ROW_OPS
        if not value.startswith(self._old_row):
            return None
        row = self._row_match(value, len(self._old_row) - 1)
        if row is None or not _is_json(row[0]):
            return None
        if value.startswith(_NO_AFTER, row.end()):
            return row.end() + len(_NO_AFTER), b"", _NO_ROW_OPS
        if not value.startswith(_AFTER_ROW, row.end()):
            return None
        source = value.find(_SOURCE, row.end())
        return source, value[row.end() + len(_AFTER_ROW) - 1 : source], _CHANGED_ROW_OPS

    def row_of(self, value: bytes) -> bytes | None:
        """Return the row of a record that the product's encoders have written for it; None where it has to be read."""
        tail = self._row_tail
        if tail and value.endswith(tail) and value.startswith(self._new_row):
            return value[self._begin : -len(tail)]
        row = self.row_after(value)
        if row and value.startswith(self._new_row):
            self._row_tail = value[self._begin + len(row) :]
        return row


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
