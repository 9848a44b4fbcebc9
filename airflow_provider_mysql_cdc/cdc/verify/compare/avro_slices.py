"""Take keys and rows out of records in Avro as bytes, for checksums, without reading the rows.

Reading depends on the schema and on the bytes that it has come to, on nothing else. So where an event goes on with the
bytes of a table's row at the place of ``after``, its reader would read that row and no other, and goes on behind it.
Where the row ends is guessed by how the source block begins; a wrong guess gives other bytes than those of any row.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from airflow_provider_mysql_cdc.cdc.avro.connect_avro import avro_schema
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_entries import bytes_checksum_of
from airflow_provider_mysql_cdc.cdc.verify.read.avro_events import as_json, readable_schema, without_logical_types
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import row_bytes
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.structures.event_layout import RecentTails, Times

_ROW = b"\0"
"""What the bytes of a row begin with, so that a row without columns is none that was deleted."""
_MAX_TRIES = 32
"""Events that are read to learn how source blocks begin."""
_NULL, _SOME = 0, 2
_BEFORE_AND_AFTER = ["before", "after"]
_CONSTANTS = ("version", "connector", "name")
_OPERATIONS = {(False, True): "cru", (True, True): "u", (True, False): "d", (False, False): "d"}
"""Operations of events with and without a row before and after them."""
_SOME_LONG = rb"\x02[\x80-\xff]{0,8}[\x00-\x7f]"
"""A number of at most 63 bits that may be absent, and is not."""
_MAX_LONG = 0xFFFF_FFFF_FFFF_FFFF

Decode = Callable[[io.BytesIO], Any]
ReadField = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value at an offset; returns it, and the offset after it."""


def record_schemas(cfg: ConnectorConfig, table: Table) -> tuple[str, str] | None:
    """Return the Avro schemas that a table's keys and envelopes are written with; None where one is not such Avro."""
    if cfg.is_ticdc or not all(map(cfg.is_avro, F.PARTS)):
        return None
    text = table_options.schema_text(cfg, table, table_options.table_options(cfg, table))
    if text.key_schema is None or text.value_schema is None:
        return None
    key, value = (
        dumps(avro_schema(json.loads(schema), meta=_has_meta(cfg, part)))
        for part, schema in zip(F.PARTS, (text.key_schema, text.value_schema), strict=True)
    )
    return key, value


def _has_meta(cfg: ConnectorConfig, part: F.ConverterPart) -> bool:
    part_fields = F.CONVERTER_FIELDS[part]
    return bool(cfg[part_fields.meta_data] or cfg[part_fields.use_latest])


def avro_slices(cfg: ConnectorConfig, compared: ComparedTable, formats: RecordFormats) -> AvroSlices | None:
    """Return what takes the records of a table apart; None where they have to be read."""
    schemas, options = record_schemas(cfg, compared.table), table_options.table_options(cfg, compared.table)
    written = formats.table_format(compared.table, options, compared.topic)
    if schemas is None or isinstance(written, TicdcFormat):
        return None
    prefixes = written.prefixes(keyed=True)
    if prefixes is None or not all(prefixes):
        return None
    key_mark, value_mark = (prefix.encode("latin-1") for prefix in prefixes)
    try:
        keys = AvroKeys(key_mark, schemas[0], compared.identity.key_fields)
        return AvroSlices(compared.table.id, keys, value_mark, json.loads(schemas[1]))
    except (ValueError, KeyError, TypeError):
        return None


class AvroKeys:
    """Return the fields that keys in Avro have, which are mostly one whole number or text.

    Args:
        mark: What keys begin with that are written with the present schema.
        text: That schema.
        fields: The fields of the table's key.

    Raises:
        ValueError: It is no schema of a record.
    """

    def __init__(self, mark: bytes, text: str, fields: frozenset[str]) -> None:
        self._mark, self._schema = mark, readable_schema(text)
        parsed: Mapping[str, Any] = self._schema.parsed
        names = [str(field["name"]) for field in parsed["fields"]]
        readers = [_READERS.get(str(field["type"])) for field in parsed["fields"]]
        self._fields = [(name, read) for name, read in zip(names, readers, strict=True) if read is not None]
        self._is_simple = len(self._fields) == len(names) and not self._schema.converted
        self._has_fields = fields == set(names)
        self._number_text = _number_text(names, readers) if self._is_simple else None

    def fields_of(self, key: bytes) -> bytes | None:
        """Return the canonical bytes of a key; None where it has to be read, or other bytes have the same values."""
        if not self._has_fields or not key.startswith(self._mark):
            return None
        try:
            if self._number_text is not None:
                number, pos = _read_long(key, len(self._mark))
                return self._number_text % number if pos == len(key) else None
            row, pos = self._read(key) if self._is_simple else self._decode(key)
        except Exception:  # fastavro has many for damaged bytes
            return None
        return row_bytes(row) if pos == len(key) else None

    def fields_of_all(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the same of several keys."""
        return list(map(self.fields_of, keys))

    def _read(self, key: bytes) -> tuple[dict[str, Any], int]:
        row, pos = dict[str, Any](), len(self._mark)
        for name, read in self._fields:
            row[name], pos = read(key, pos)
        return row, pos

    def _decode(self, key: bytes) -> tuple[dict[str, Any], int]:
        import fastavro

        stream = io.BytesIO(key)
        stream.seek(len(self._mark))
        row: Any = fastavro.schemaless_reader(stream, self._schema.parsed, None)
        written = io.BytesIO()
        fastavro.schemaless_writer(written, self._schema.parsed, row)
        if written.getvalue() != key[len(self._mark) : stream.tell()]:
            raise ValueError("other bytes have the same values")
        return as_json(row) if self._schema.converted else row, stream.tell()


def _number_text(names: Sequence[str], readers: Sequence[ReadField | None]) -> bytes | None:
    """Return the text of a key of one whole number, with a place for that; None for other keys."""
    if len(names) != 1 or readers[0] is not _read_long:
        return None
    return b"{%s:%%d}" % orjson.dumps(names[0]).replace(b"%", b"%%")


def _read_long(data: bytes, pos: int) -> tuple[int, int]:
    byte = data[pos]
    number, shift = byte & 0x7F, 7
    while byte & 0x80:
        pos += 1
        byte = data[pos]
        number |= (byte & 0x7F) << shift
        shift += 7
    if number > _MAX_LONG or (not byte and shift > 7):
        raise ValueError("a number is too large, or written longer than it has to be")
    return (number >> 1) ^ -(number & 1), pos + 1


def _read_string(data: bytes, pos: int) -> tuple[str, int]:
    size, pos = _read_long(data, pos)
    if size < 0 or pos + size > len(data):
        raise ValueError("a text is too long")
    return data[pos : pos + size].decode(), pos + size


_READERS: Mapping[str, ReadField] = {"int": _read_long, "long": _read_long, "string": _read_string}


class AvroSlices:
    """Take the records of one table apart, in Debezium's envelope.

    Args:
        keys: Takes the fields out of its keys.
        mark: What values begin with that are written with the present schema.
        schema: That schema, as JSON.

    Raises:
        ValueError: It is no schema of such an envelope.
    """

    checksum_of = staticmethod(bytes_checksum_of)

    def __init__(self, table: TableId, keys: AvroKeys, mark: bytes, schema: Mapping[str, Any]) -> None:
        self.fields_of, self.fields_of_all = keys.fields_of, keys.fields_of_all
        self._name, self._mark, self._begin = (table.db, table.table), mark, len(mark)
        row, tail = _parts(schema)
        self._read_row, self._read_tail, self._read_event = map(_decoder_of, (row, tail, schema))
        self._recent = RecentTails(_times_behind(tail))
        self._heads, self._row_head = list[bytes](), b""
        self._row_tail = b""
        self._new_row = mark + bytes((_NULL, _SOME))

    def rows_after(self, values: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the row after each event; empty for a delete, None where the event has to be read."""
        return list(map(self.row_after, values))

    def row_after(self, value: bytes) -> bytes | None:
        """Return the row after an event; empty for a delete, None where the event has to be read."""
        try:
            return self._row_after(value)
        except Exception:  # fastavro has many for damaged bytes
            return None

    def row_of(self, value: bytes) -> bytes | None:
        """Return the row of a record that the product's encoders have written for it; None where it has to be read."""
        if not value.startswith(self._new_row):
            return None
        begin, tail = self._begin + 2, self._row_tail
        if tail and value.endswith(tail):
            return _ROW + value[begin : -len(tail)]
        if not self._row_head:
            self._row_head = self._head(value)
        source = value.rfind(self._row_head, begin)
        if source < 0:
            return None
        self._row_tail = value[source:]
        return _ROW + value[begin:source]

    def _row_after(self, value: bytes) -> bytes | None:
        if value.startswith(self._new_row) and (end := self._recent.read_end(value)) is not None:
            start, operation = end
            if start >= self._begin + 2 and operation.decode() in _OPERATIONS[False, True]:
                return _ROW + value[self._begin + 2 : start]
        if not value.startswith(self._mark):
            return None
        before, pos = value[self._begin], self._begin + 1
        if before == _SOME:
            stream = io.BytesIO(value)
            stream.seek(pos)
            self._read_row(stream)
            pos = stream.tell()
        elif before != _NULL:
            return None
        after: bytes = b""
        if value[pos] == _SOME:
            source = self._source(value, pos + 1)
            after = _ROW + value[pos + 1 : source]
        elif value[pos] == _NULL:
            source = pos + 1
        else:
            return None
        if source < 0:
            return None
        found = self._recent.read(value, source) or self._read_operation(value, source)
        possible = _OPERATIONS[before == _SOME, bool(after)]
        return after if found is not None and found.decode() in possible else None

    def _read_operation(self, value: bytes, source: int) -> bytes | None:
        """Return the operation of an event of the table; None where it is none."""
        stream = io.BytesIO(value)
        stream.seek(source)
        tail = self._read_tail(stream)
        block, op = tail["source"], tail["op"]
        is_own = (block["db"], block["table"]) == self._name and min(filter(_is_whole, block.values())) >= 0
        if stream.tell() != len(value) or len(op) != 1 or not is_own:
            return None
        return self._recent.learn(value, source, op.encode())

    def _source(self, value: bytes, begin: int) -> int:
        """Return where a source block may begin; a number below 0 for nowhere."""
        # Behind the row there is one: those before it are texts of the row, of this or of an earlier version.
        found = max((value.rfind(head, begin) for head in self._heads), default=-1)
        if found >= 0 or len(self._heads) >= _MAX_TRIES:
            return found
        self._heads.append(self._head(value))
        return value.rfind(self._heads[-1], begin)

    def _head(self, value: bytes) -> bytes:
        """Return how the source block of an event begins."""
        block = self._read_event(io.BytesIO(value[self._begin :]))["source"]
        return b"".join(_string(block[name]) for name in _CONSTANTS)


def _is_whole(value: Any) -> bool:
    return type(value) is int


def _decoder_of(schema: Any) -> Decode:
    """Return what reads values of a schema; fastavro has many errors for what is none."""
    import fastavro

    parsed, read = fastavro.parse_schema(without_logical_types(schema)), fastavro.schemaless_reader
    return lambda stream: read(stream, parsed, None)


def _parts(schema: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the schemas of a row, and of what follows the rows in an envelope."""
    rows, tail = schema["fields"][:2], schema["fields"][2:]
    before, after = (field["type"] for field in rows)
    in_order = [field["name"] for field in rows] == _BEFORE_AND_AFTER and tail[0]["name"] == "source"
    optional = isinstance(before, list) and isinstance(after, list) and before[0] == after[0] == "null"
    if not in_order or not optional or (len(before), len(after)) != (2, 2) or before[1]["type"] != "record":
        raise ValueError("no envelope")
    names = [field["name"] for field in tail[0]["type"]["fields"][: len(_CONSTANTS)]]
    if names != list(_CONSTANTS):
        raise ValueError("no source block")
    namespace = schema.get("namespace", "")
    row = {"namespace": namespace, **before[1]}
    return row, {"type": "record", "name": "Tail", "namespace": namespace, "fields": tail}


def _times_behind(tail: Mapping[str, Any]) -> Callable[[bytes, int], Times | None]:
    """Return what finds the times at the end of an event (``RecentTails``), given the schema behind its rows."""
    names = [field["name"] for field in tail["fields"]]
    head, times = tail["fields"][: names.index("op") + 1], tail["fields"][names.index("op") + 1 :]
    if not all(without_logical_types(field["type"]) == ["null", "long"] for field in times):
        return lambda value, source: None
    read, pattern = _decoder_of({**tail, "fields": head}), re.compile(_SOME_LONG * len(times))

    def times_of(value: bytes, source: int) -> Times:
        stream = io.BytesIO(value)
        stream.seek(source)
        read(stream)
        return stream.tell(), pattern, pattern

    return times_of


def _string(text: str) -> bytes:
    """Return a text as Avro writes it."""
    data = text.encode()
    size, out = len(data) << 1, bytearray()
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out) + data
