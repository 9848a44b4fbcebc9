"""The file of Kafka Connect standalone's offsets: a Java-serialized ``HashMap<byte[], byte[]>``.

Just this form is read and written. Sources: Java Object Serialization Specification, chapter 6; Kafka Connect's
``FileOffsetBackingStore``, which writes ``new HashMap<byte[], byte[]>()``.
"""

from __future__ import annotations

import math
import struct

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

MAGIC = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _ARRAY, _BLOCK, _END = b"\x70", b"\x71", b"\x72", b"\x73", b"\x75", b"\x77", b"\x78"
_HASH_MAP = (
    b"\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16\x60\xd1\x03\x00\x02F\x00\x0aloadFactorI\x00\x09threshold" + _END
)
_BYTES = b"\x00\x02[B\xac\xf3\x17\xf8\x06\x08\x54\xe0\x02\x00\x00" + _END
_BYTES_HANDLE = 0x7E0002  # handles: 0 the class of the map, 1 the map, 2 the class of byte arrays
_LOAD_FACTOR, _LEAST_CAPACITY, _MOST_ENTRIES = 0.75, 16, 1_000_000


class _Reader:
    """Read from the beginning to the end, one expected part after the other."""

    def __init__(self, data: bytes, where: str) -> None:
        self._data, self._at, self._where = data, 0, where

    def expect(self, part: bytes, what: str) -> None:
        if self.take(len(part), what) != part:
            raise self.error(f"{what} expected at byte {self._at - len(part)}")

    def take(self, size: int, what: str) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) < size:
            raise self.error(f"it ends at byte {len(self._data)}, inside {what}")
        self._at += size
        return part

    def number(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "big")

    def error(self, why: str) -> ConfigError:
        return ConfigError(
            "this is not a file of Kafka Connect's offsets",
            where=self._where,
            why=why,
            remedy="give the file that offset.storage.file.filename of the standalone worker names, or the JSON that "
            "GET /connectors/NAME/offsets answers",
        )


def read_byte_map(data: bytes, where: str) -> dict[bytes, bytes | None]:
    """Return the entries of the map, in the order of the file.

    Args:
        data: The file.
        where: Its name, for the error.

    Raises:
        ConfigError: It is something else.
    """
    reader = _Reader(data, where)
    reader.expect(MAGIC, "the mark of Java serialization")
    reader.expect(_OBJECT + _CLASS + _HASH_MAP + _NULL, "a java.util.HashMap")
    reader.take(8, "its load factor and threshold")
    reader.expect(_BLOCK + b"\x08", "its size")
    reader.take(4, "its capacity")
    entries, knows_class = dict[bytes, bytes | None](), False
    count = reader.number("its size")
    if count > _MOST_ENTRIES:
        raise reader.error(f"it says that it has {count} entries")
    for _ in range(count):
        pair: list[bytes | None] = []
        for part in ("a key", "a value"):
            kind = reader.take(1, part)
            if kind == _NULL:
                pair.append(None)
                continue
            if kind != _ARRAY:
                raise reader.error(f"{part} is not an array of bytes")
            if knows_class:
                reader.expect(_REFERENCE + _BYTES_HANDLE.to_bytes(4, "big"), "the class of byte arrays")
            else:
                reader.expect(_CLASS + _BYTES + _NULL, "the class of byte arrays")
                knows_class = True
            pair.append(reader.take(reader.number(part), part))
        if (key := pair[0]) is not None:
            entries[key] = pair[1]
    reader.expect(_END, "the map's end")
    return entries


def write_byte_map(entries: dict[bytes, bytes | None]) -> bytes:
    """Return the file with these entries.

    Args:
        entries: Keys and values.
    """
    capacity = max(_LEAST_CAPACITY, 1 << math.ceil(math.log2(max(len(entries), 1) / _LOAD_FACTOR + 1)))
    out = [MAGIC, _OBJECT, _CLASS, _HASH_MAP, _NULL, struct.pack(">fi", _LOAD_FACTOR, int(capacity * _LOAD_FACTOR))]
    out += [_BLOCK, b"\x08", struct.pack(">ii", capacity, len(entries))]
    class_of_bytes = _CLASS + _BYTES + _NULL
    for value in (part for entry in entries.items() for part in entry):
        if value is None:
            out.append(_NULL)
            continue
        out += [_ARRAY, class_of_bytes, struct.pack(">i", len(value)), value]
        class_of_bytes = _REFERENCE + _BYTES_HANDLE.to_bytes(4, "big")
    return b"".join([*out, _END])
