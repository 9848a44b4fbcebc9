"""Read keys in Avro, whose fields are mostly one whole number or text, without a reader for any schema."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from airflow_provider_mysql_cdc.cdc.verify.avro_schemas import readable_schema
from airflow_provider_mysql_cdc.cdc.verify.row_text import row_bytes

ReadField = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value at an offset; returns it, and the offset after it."""
_MAX_LONG = 0xFFFF_FFFF_FFFF_FFFF


class AvroKeys:
    """Return the identities that keys in Avro name.

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
        self._is_simple = len(self._fields) == len(names) and self._schema.convert is None
        self._has_fields = fields == set(names)
        self._number_text = _number_text(names, readers) if self._is_simple else None

    def identity_of(self, key: bytes) -> bytes | None:
        """Return the canonical bytes of a key; None where it has to be read, or other bytes have the same values.

        Args:
            key: The record's key.
        """
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

    fields_of = identity_of
    """As ``checksum_keys.KeySlices`` has it."""

    def identities_of(self, keys: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """Return the canonical bytes of several keys.

        Args:
            keys: The records' keys; None for those without one.
        """
        identity_of = self.identity_of
        return [None if key is None else identity_of(key) for key in keys]

    fields_of_all = identities_of
    """As ``checksum_keys.KeySlices`` has it."""

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
        return row if self._schema.convert is None else self._schema.convert(row), stream.tell()


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
