"""Make the entries of rows and events whose records need not be read: the row's text is taken out of them as it is.

A record is plain if it is written as the encoders write an event of the table's present structure. All others are left,
and read in full.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import orjson
from confluent_kafka import Message

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.verify.avro_keys import AvroKeys
from airflow_provider_mysql_cdc.cdc.verify.avro_slices import AvroSlices, FlatSlices
from airflow_provider_mysql_cdc.cdc.verify.carried_rows import record_schemas
from airflow_provider_mysql_cdc.cdc.verify.checksum_keys import (
    PLAIN_VALUE,
    key_texts,
    matcher_of_lines,
    texts_of_fields,
)
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.entries import EVENT_RUN, PLACE, ROW_RUN, EntryBlocks
from airflow_provider_mysql_cdc.cdc.verify.event_layout import event_layout
from airflow_provider_mysql_cdc.cdc.verify.exact_json import is_exact_json
from airflow_provider_mysql_cdc.cdc.verify.json_slices import EventSlice, JsonSlices, value_prefix
from airflow_provider_mysql_cdc.cdc.verify.repair_marks import is_repair
from airflow_provider_mysql_cdc.cdc.verify.row_records import WrittenRow
from airflow_provider_mysql_cdc.cdc.verify.row_text import MAX_VALUE_CHARACTERS, row_bytes


class PlainKeys:
    """Return the identities that keys in JSON name.

    Args:
        prefix: What keys of the table's present structure begin with; empty for keys without schemas.
        fields: The fields of the key, in order.
    """

    def __init__(self, prefix: bytes, fields: tuple[str, ...]) -> None:
        self._prefix, self._fields = prefix, fields
        members = b",".join(re.escape(orjson.dumps(name)) + b":" + PLAIN_VALUE for name in fields)
        # An identity has its members in the order of their names.
        pattern = rb"\{" + members + rb"\}" if tuple(sorted(fields)) == fields else rb"(?!)"
        self._is_canonical, self._are_canonical = re.compile(pattern).fullmatch, matcher_of_lines(pattern)

    def identity_of(self, key: bytes) -> bytes | None:
        """Return the canonical bytes of a key; None where it has to be read.

        Args:
            key: The record's key.
        """
        fields = key
        if self._prefix:
            if not key.startswith(self._prefix) or not key.endswith(b"}"):
                return None
            fields = key[len(self._prefix) : -1]
        if self._is_canonical(fields) is not None and len(fields) <= MAX_VALUE_CHARACTERS:
            return fields
        try:
            row = orjson.loads(fields)
        except ValueError:
            return None
        is_own = isinstance(row, dict) and tuple(row) == self._fields and is_exact_json(fields, len(row))
        return row_bytes(row) if is_own else None

    def identities_of(self, keys: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """Return the canonical bytes of several keys.

        Args:
            keys: The records' keys; None for those without one.
        """
        known = [key for key in keys if key is not None]
        fields = texts_of_fields(self._prefix, known)
        if len(fields) == len(keys) and max(map(len, fields)) <= MAX_VALUE_CHARACTERS and self._are_canonical(fields):
            return fields
        return [None if key is None else self.identity_of(key) for key in keys]


class Keys(Protocol):
    """Tell the identities that keys name."""

    def identities_of(self, keys: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """Return the canonical bytes of keys; None where one has to be read."""


class Slices(Protocol):
    """Take the rows out of events."""

    @property
    def knows_none(self) -> bool:
        """Return whether an event has to be read before others need not be."""

    def learn(self, value: bytes) -> None:
        """Take an event as one that later ones may be like."""

    def slice(self, value: bytes) -> EventSlice | None:
        """Return the parts of an event; None where it has to be read."""

    def of_row(self, value: bytes) -> bytes | None:
        """Return the row of a record that the product's encoders have written; None where it has to be read."""


class PlainEntries:
    """Make the entries of the plain records of one table.

    Args:
        number: The table's number.
        keys: Returns the identities of its rows.
        slices: Takes the rows out of its events.
        is_older: Says of a place in the binlog whether the table may have had another structure there, which records
            without schemas do not say; None where that is of no importance.
        reads_events: Whether events are plain; otherwise only rows are.
    """

    def __init__(
        self,
        number: int,
        keys: Keys,
        slices: Slices,
        is_older: Callable[[int], bool] | None = None,
        *,
        reads_events: bool = True,
    ) -> None:
        self._number, self._keys, self._slices, self._is_older = number, keys, slices, is_older
        self._reads_events = reads_events

    @property
    def knows_none(self) -> bool:
        """Return whether no event was learned that others may be like."""
        return self._reads_events and self._slices.knows_none

    def learn(self, value: bytes) -> None:
        """Take an event as one that later ones may be like; see ``JsonSlices.learn``."""
        if self._reads_events:
            self._slices.learn(value)

    def add_rows(self, rows: Iterable[WrittenRow], blocks: EntryBlocks) -> list[WrittenRow]:
        """Add the entries of rows, and return the rows that have to be read.

        Args:
            rows: The rows, as records that the product's encoders have written.
            blocks: Takes the entries.
        """
        records, row_of, left = list(rows), self._slices.of_row, []
        if not records:
            return []
        runs: dict[int, tuple[list[bytes], list[bytes]]] = defaultdict(lambda: ([], []))
        identities = self._keys.identities_of([row[0] for row in records])
        for row, identity in zip(records, identities, strict=True):
            value = row[1]
            after = None if value is None else row_of(value)
            if identity is None or not after:
                left.append(row)
                continue
            keys, values = runs[row[2]]
            keys.append(identity)
            values.append(after)
        for partition, (keys, values) in runs.items():
            blocks.put_run(self._number, ROW_RUN, partition, keys, values)
        return left

    def add_events(self, messages: Sequence[Message], partition: int, blocks: EntryBlocks) -> Sequence[Message]:
        """Add the entries of events, and return the records that have to be read.

        Args:
            messages: Records of the table's topic.
            partition: Their partition.
            blocks: Takes the entries.
        """
        if not self._reads_events:
            return messages
        if not messages:
            return messages
        slice_of, is_older, pack = self._slices.slice, self._is_older, PLACE.pack
        left, keys, values = list[Message](), list[bytes](), list[bytes]()
        identities = self._keys.identities_of([message.key() for message in messages])
        for message, identity in zip(messages, identities, strict=True):
            value = message.value()
            if (
                identity is None
                or value is None
                or (event := slice_of(value)) is None
                or (is_older is not None and is_older(event[1]))
                or ((headers := message.headers()) and is_repair(headers))
            ):
                left.append(message)
                continue
            after, order = event
            keys.append(identity)
            values.append(after + pack(message.offset(), order))
        blocks.put_run(self._number, EVENT_RUN, partition, keys, values)
        return left


def plain_entries(
    cfg: ConnectorConfig, compared: ComparedTable, formats: RecordFormats | None = None, *, ordered: bool
) -> PlainEntries | None:
    """Return what makes the entries of a table's plain records; None where all records have to be read.

    Args:
        cfg: The connector's configuration.
        compared: The table, with the structures that it has had where these are wanted.
        formats: The formats of records; None when all of them are JSON.
        ordered: Whether places in the binlog decide which of two events is later.
    """
    # A record that is not read carries no forms.
    parts = plain_parts(cfg, compared, formats) if compared.own_key and compared.unchanged else None
    if parts is None:
        return None
    written = compared.written
    return PlainEntries(
        compared.number,
        *parts,
        None if written is None or compared.columns.has_schemas or not written.has_changed else written.is_older,
        # Positions of several binlogs do not order events, and a record that is not read does not say their times.
        reads_events=not (ordered and written is not None and not written.one_binlog),
    )


def plain_parts(
    cfg: ConnectorConfig, compared: ComparedTable, formats: RecordFormats | None
) -> tuple[Keys, Slices] | None:
    """Return what reads the keys of a table, and what takes the rows out of its events; None where there is none.

    Args:
        cfg: The connector's configuration.
        compared: The table.
        formats: The formats of records; None when all of them are JSON.
    """
    if formats is not None:
        return _avro_parts(cfg, compared, formats)
    prefix = value_prefix(cfg, compared.table)
    if prefix is None:
        return None
    row = event_layout(cfg, compared.table, has_schema=bool(prefix)).row
    keys = key_texts(cfg, compared.table)
    return PlainKeys(keys.prefix, keys.fields), JsonSlices(compared.table.id, prefix, row)


def _avro_parts(cfg: ConnectorConfig, compared: ComparedTable, formats: RecordFormats) -> tuple[Keys, Slices] | None:
    options, schemas = table_options.table_options(cfg, compared.table), record_schemas(cfg, compared.table)
    written = formats.table_format(compared.table, options, compared.topic)
    prefixes = written.row_prefixes() if isinstance(written, TicdcFormat) else written.prefixes(keyed=True)
    if schemas is None or prefixes is None or not all(prefixes):
        return None
    key_mark, value_mark = (prefix.encode("latin-1") for prefix in prefixes)
    key, value = schemas
    try:
        keys = AvroKeys(key_mark, key, compared.identity.key_fields)
        if cfg.is_ticdc:
            return keys, FlatSlices(value_mark, extended=table_options.ticdc_modes(cfg).extension)
        return keys, AvroSlices(compared.table.id, value_mark, json.loads(value))
    except (ValueError, KeyError, TypeError):
        return None
