"""Character sets of MySQL as Python decoders, and the way back.

The server is the reference: what ``CONVERT(... USING utf8mb4)`` gives, also where Python's codec of that name differs.
A code without a character is ``?``, as the server's own conversion writes it (so that rows read from the binlog equal
rows read by a snapshot); bytes that are not well formed raise ``UnicodeDecodeError``.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain, product

from airflow_provider_mysql_cdc.cdc.model.charset_tables import MULTI, SINGLE

DecodeText = Callable[[bytes], str]

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
UNICODE = {
    "utf8mb4": ("utf-8", 1),
    "utf8mb3": ("utf-8", 1),
    "utf8": ("utf-8", 1),
    "ascii": ("ascii", 1),
    "ucs2": ("utf-16-be", 2),
    "utf16": ("utf-16-be", 2),
    "utf16le": ("utf-16-le", 2),
    "utf32": ("utf-32-be", 4),
}
"""Python codec and bytes a unit by character set; they agree with the server for all well-formed data."""

_EUC_END = rb"\x8f.?|[\x8e\xa1-\xfe]"
_LAST_BYTES = {
    "big5": rb"[\x80-\xff]",
    "cp932": rb"[\x80-\xa0\xe0-\xff]",
    "eucjpms": _EUC_END,
    "euckr": rb"[\x80-\xff]",
    "gb18030": rb"[\x81-\xfe](?:[\x30-\x39].?)?",
    "gb2312": rb"[\x80-\xff]",
    "gbk": rb"[\x80-\xff]",
    "sjis": rb"[\x80-\xa0\xe0-\xff]",
    "ucs2": rb".",
    "ujis": _EUC_END,
    "utf16": rb".|[\xd8-\xdb].{1,2}",
    "utf16le": rb".|.[\xd8-\xdb].?",
    "utf32": rb".{1,3}",
    "utf8": rb"[\xc2-\xdf]|[\xe0-\xef].?",
    "utf8mb3": rb"[\xc2-\xdf]|[\xe0-\xef].?",
    "utf8mb4": rb"[\xc2-\xdf]|[\xe0-\xef].?|[\xf0-\xff].{0,2}",
}
"""What the server's conversions leave out at the end: fewer bytes than the first one announces (MySQL 9.7.4)."""
_WRONG_BYTES = {"big5": 2, "euckr": 2, "gb2312": 2, "gbk": 2, "ucs2": 2, "utf32": 4}
"""Bytes that the server's conversions read as one ``?`` where they are not well formed; elsewhere one (MySQL 9.7.4)."""


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
def text_decoder(name: str) -> DecodeText:
    """Return what decodes a MySQL character set.

    Args:
        name: MySQL's name, lower case; not ``binary``.

    Raises:
        KeyError: The name is not one of MySQL's character sets.
    """
    if name in UNICODE:
        return _unicode_decoder(UNICODE[name][0])
    return _single_byte_decoder(name) if name in SINGLE else _multi_byte_decoder(name)


@cache
def shared_characters(name: str) -> frozenset[str]:
    """Return the characters that different codes of a character set become; values with them may be the same text.

    Args:
        name: MySQL's name, lower case; not ``binary``.

    Raises:
        KeyError: The name is not one of MySQL's character sets.
    """
    decode = text_decoder(name)
    if name in SINGLE:
        return _repeated(decode(bytes([code])) for code in range(256))
    if name not in MULTI:
        return frozenset()
    # gb18030 has one code for each character, except where MySQL and Python differ; its codes of four bytes are too
    # many to be decoded here.
    codec_name, runs = MULTI[name]
    codec, overrides = codecs.lookup(codec_name), _overrides(runs)
    python_texts = (_decode_or_none(codec, data) for data in overrides)
    sizes: tuple[Iterable[bytes], ...] = (
        (bytes([code]) for code in range(0x100)),
        (bytes(code) for code in product(range(0x80, 0x100), range(0x40, 0x100))),
        (bytes((0x8F, *code)) for code in product(range(0xA1, 0xFF), repeat=2)),
    )
    well_formed = re.compile(_WELL_FORMED[name], re.DOTALL)
    codes = (code for code in chain.from_iterable(sizes) if well_formed.fullmatch(code))
    return _repeated(map(decode, codes)) | {"?", *overrides.values(), *filter(None, python_texts)}


def _repeated(characters: Iterable[str]) -> frozenset[str]:
    return frozenset(character for character, count in Counter(characters).items() if count > 1)


def decode_lossy(data: bytes, name: str) -> str:
    """Return bytes of a character set as text; those that are not well formed become ``?``.

    Args:
        data: The bytes.
        name: MySQL's name of the character set.
    """
    return _decode_each(data, name, UNICODE[name][1] if name in UNICODE else 1)


def shown_text(data: bytes, name: str) -> str:
    """Return bytes of a character set as the server converts them to UTF-8, also those that are not well formed.

    They become ``?``, and an incomplete character at the end is left out.

    Args:
        data: The bytes.
        name: MySQL's name of the character set.
    """
    text = _decode_each(data, name, _WRONG_BYTES.get(name, 1), _LAST_BYTES.get(name))
    return _BEYOND_BASIC_PLANE.sub("????", text) if name in ("utf8", "utf8mb3") else text


def _decode_each(data: bytes, name: str, wrong_bytes: int, last: bytes | None = None) -> str:
    """Return bytes as text: ``?`` for each so many that are not well formed, and nothing for those of ``last``."""
    decode = text_decoder(name)
    try:
        return decode(data)
    except UnicodeDecodeError:
        pass
    out, pos = [], 0
    incomplete = None if last is None else re.compile(last, re.DOTALL)
    while pos < len(data) and not (incomplete and incomplete.fullmatch(data, pos)):
        for size in (4, 3, 2, 1):
            try:
                character = decode(data[pos : pos + size])
            except UnicodeDecodeError:
                continue
            if len(character) == 1:
                out.append(character)
                pos += min(size, len(data) - pos)
                break
        else:
            out.append("?")
            pos += wrong_bytes
    return "".join(out)


def characters(data: bytes, name: str) -> list[bytes]:
    """Return the characters of a text; a byte that is not well formed stands alone.

    Args:
        data: The text.
        name: MySQL's name of a character set that is not one of ``UNICODE``.
    """
    return re.findall(_WELL_FORMED.get(name, b".") + b"|.", data, re.DOTALL)


def encode_lossy(text: str, name: str) -> bytes:
    """Return text in a character set, with ``?`` for characters that it does not have.

    Args:
        text: The text.
        name: MySQL's name of the character set; ``binary`` means UTF-8.
    """
    if name in UNICODE or name == "binary":
        if name in _BASIC_PLANE_ONLY:
            text = basic_plane(text)
        return text.encode(UNICODE.get(name, ("utf-8",))[0], "replace")
    if name in SINGLE:
        table = _single_byte_codes(name)
        return bytes(table.get(character, 0x3F) for character in text)
    codec, exceptions = MULTI[name][0], _multi_byte_codes(name)
    return b"".join(exceptions.get(character) or character.encode(codec, "replace") for character in text)


def within_charset(text: str, name: str) -> str:
    """Return text as it is after a conversion to a character set: characters that it does not have become ``?``.

    Args:
        text: The text.
        name: MySQL's name of the character set; ``binary`` keeps everything.
    """
    if text.isascii() or name in ("utf8mb4", "binary"):
        return text
    return decode_lossy(encode_lossy(text, name), name)


def basic_plane(text: str) -> str:
    """Return text with ``?`` for characters beyond U+FFFF, as the server stores names and comments (utf8mb3)."""
    return text if text.isascii() else _BEYOND_BASIC_PLANE.sub("?", text)


@cache
def _single_byte_codes(name: str) -> dict[str, int]:
    decode = text_decoder(name)
    return {decode(bytes([code])): code for code in range(0xFF, -1, -1) if code == 0x3F or decode(bytes([code])) != "?"}


@cache
def _multi_byte_codes(name: str) -> dict[str, bytes]:
    # A wide form of an ASCII character (0x815F of sjis is a backslash) is not what the character is written as.
    codes = reversed(_overrides(MULTI[name][1]).items())
    return {character: code for code, character in codes if not character.isascii()}


_BASIC_PLANE_ONLY = frozenset(("utf8mb3", "utf8", "ucs2"))
_BEYOND_BASIC_PLANE = re.compile("[\U00010000-\U0010ffff]")
