"""Character sets of MySQL as Python decoders.

The server is the reference: what ``CONVERT(... USING utf8mb4)`` gives, also where Python's codec of that name differs.
A code without a character is ``?``, as the server's own conversion writes it (so that rows read from the binlog equal
rows read by a snapshot); bytes that are not well formed raise ``UnicodeDecodeError``.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.decode.values.charset_tables import MULTI, SINGLE
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import escape_utf8, make_escape
from airflow_provider_mysql_cdc.cdc.errors import SchemaError

DecodeText = Callable[[bytes], str]


class Charset(NamedTuple):
    """Decode one character set.

    Args:
        decode: Bytes to str.
        ascii_compatible: Whether bytes below 0x80 alone always are the ASCII characters of that code.
        escape: Byte text in this character set to the inside of a JSON string, byte text.
        unit: Least bytes of a character.
    """

    decode: DecodeText
    ascii_compatible: bool
    escape: Callable[[str], str]
    unit: int = 1


# Well-formed characters. Source: MySQL source, strings/ctype-*.cc (is*head, is*tail).
_WELL_FORMED = {
    "big5": rb"[\x00-\x7f]|[\xa1-\xf9][\x40-\x7e\xa1-\xfe]",
    "cp932": rb"[\x00-\x7f\xa1-\xdf]|[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc]",
    "eucjpms": rb"[\x00-\x7f]|\x8e[\xa0-\xdf]|\x8f[\xa1-\xfe]{2}|[\xa1-\xfe]{2}",
    "euckr": rb"[\x00-\x7f]|[\x81-\xfe][\x41-\x5a\x61-\x7a\x81-\xfe]",
    "gb18030": rb"[\x00-\x7f]|[\x81-\xfe][\x40-\x7e\x80-\xfe]|[\x81-\xfe][\x30-\x39][\x81-\xfe][\x30-\x39]",
    "gb2312": rb"[\x00-\x7f]|[\xa1-\xf7][\xa1-\xfe]",
    "gbk": rb"[\x00-\x7f]|[\x81-\xfe][\x40-\x7e\x80-\xfe]",
    "sjis": rb"[\x00-\x7f\xa1-\xdf]|[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc]",
    "ujis": rb"[\x00-\x7f]|\x8e[\xa0-\xdf]|\x8f[\xa1-\xfe]{2}|[\xa1-\xfe]{2}",
}
# Python codec and bytes a unit; these agree with the server for all well-formed data.
_UNICODE = {
    "utf8mb4": ("utf-8", 1),
    "utf8mb3": ("utf-8", 1),
    "utf8": ("utf-8", 1),
    "ascii": ("ascii", 1),
    "ucs2": ("utf-16-be", 2),
    "utf16": ("utf-16-be", 2),
    "utf16le": ("utf-16-le", 2),
    "utf32": ("utf-32-be", 4),
}


def _overrides(text: str) -> dict[bytes, str]:
    """Read the runs of ``charset_tables.MULTI``."""
    out: dict[bytes, str] = {}
    for code, count, kind, characters in re.findall(r"([0-9a-f]+):(\d+)([:+])([0-9a-f]+)", text):
        start, size = int(code, 16), len(code) // 2
        for i in range(int(count)):
            char = int(characters, 16) + i if kind == "+" else int(characters[4 * i : 4 * i + 4], 16)
            out[(start + i).to_bytes(size, "big")] = chr(char)
    return out


def _single_byte_decoder(name: str) -> DecodeText:
    upper = SINGLE[name]
    ascii_part = "".join(map(chr, range(0x80)))
    table = upper + "?" * 0x80 if name == "swe7" else ascii_part + upper

    def decode(data: bytes) -> str:
        return codecs.charmap_decode(data, "strict", table)[0]

    return decode


def _multi_byte_decoder(name: str) -> DecodeText:
    codec_name, runs = MULTI[name]
    codec, overrides = codecs.lookup(codec_name), _overrides(runs)
    characters = re.compile(_WELL_FORMED[name], re.DOTALL)
    # What Python's codec makes of sequences that the server reads differently: its result is not trusted then.
    ambiguous = frozenset(filter(None, (_decode_or_none(codec, data) for data in overrides)))

    def decode(data: bytes) -> str:
        try:
            text = codec.decode(data)[0]
        except UnicodeDecodeError:
            return decode_slowly(data)
        return text if ambiguous.isdisjoint(text) else decode_slowly(data)

    def decode_slowly(data: bytes) -> str:
        out, pos = [], 0
        while pos < len(data):
            match = characters.match(data, pos)
            if match is None:
                raise UnicodeDecodeError(name, data, pos, pos + 1, "not a well-formed character")
            character = match.group()
            out.append(overrides.get(character) or _decode_or_none(codec, character) or "?")
            pos = match.end()
        return "".join(out)

    return decode


def _decode_or_none(codec: codecs.CodecInfo, data: bytes) -> str | None:
    try:
        return codec.decode(data)[0]
    except UnicodeDecodeError:
        return None


def _unicode_decoder(name: str) -> DecodeText:
    codec = codecs.lookup(name)

    def decode(data: bytes) -> str:
        return codec.decode(data)[0]

    return decode


@cache
def charset(name: str) -> Charset:
    """Return the decoder of a MySQL character set.

    Args:
        name: MySQL's name, lower case; not ``binary``.

    Raises:
        SchemaError: When the name is not one of MySQL's character sets.
    """
    if name in _UNICODE:
        codec, unit = _UNICODE[name]
        decode = _unicode_decoder(codec)
        return Charset(decode, unit == 1, escape_utf8 if codec == "utf-8" else make_escape(decode, unit == 1), unit)
    if name in SINGLE or name in MULTI:
        decode = _single_byte_decoder(name) if name in SINGLE else _multi_byte_decoder(name)
        # swe7 has letters in place of brackets and braces.
        return Charset(decode, name != "swe7", make_escape(decode, name != "swe7"))
    raise SchemaError(
        f"Character set {name} is not known",
        remedy="report the character set, or exclude the column (column.exclude.list)",
    )
