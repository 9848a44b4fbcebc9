"""JSON strings and numbers exactly as Kafka Connect's JsonConverter (Jackson) writes them.

JSON strings and numbers exactly as Kafka Connect's JsonConverter (Jackson) writes them.

The generated decoders work on *byte text*: the event's bytes read as ISO 8859-1, so that one character is one byte.
UTF-8 data passes through unchanged, and one final ``encode("latin-1")`` gives the record's bytes.
"""

from __future__ import annotations

import re
import struct
from binascii import b2a_base64
from collections.abc import Callable

import orjson

from airflow_provider_mysql_cdc.cdc.model.java import java_float

_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL = re.compile('["\\\\\x00-\x1f\U00010000-\U0010ffff\ud800-\udfff]')
_FOUR_BYTES = re.compile("[\xf0-\xf4]")


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    short = _SHORT.get(char)
    if short is not None:
        return short
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04X}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"


def escape(text: str) -> str:
    """Return a str as the inside of a JSON string: raw up to U+FFFF, upper case escapes for controls and the rest.

    Source: captured/types, ``str_utf8mb4``.
    """
    return _SPECIAL.sub(_escape, text)


def quote(text: str) -> str:
    """Return a str as a JSON string with quotes."""
    return f'"{_SPECIAL.sub(_escape, text)}"'


def to_byte_text(text: str) -> str:
    """Return a str as byte text: its UTF-8 bytes, one character each."""
    return text if text.isascii() else text.encode().decode("latin-1")


def quote_byte_text(text: str) -> str:
    """Return a str as a JSON string with quotes, in byte text."""
    return to_byte_text(quote(text))


def escape_utf8(data: str) -> str:
    """Return UTF-8 byte text as the inside of a JSON string, in byte text.

    Raises:
        UnicodeDecodeError: When the bytes are not UTF-8.
    """
    text = data if data.isascii() else data.encode("latin-1").decode()
    out = orjson.dumps(text).decode("latin-1")
    # orjson writes control characters in lower case and characters above U+FFFF raw: those take the slow way.
    if "\\u00" in out or (text is not data and _FOUR_BYTES.search(out)):
        return to_byte_text(escape(text))
    return out[1:-1]


def make_escape(decode: Callable[[bytes], str], ascii_compatible: bool) -> Callable[[str], str]:
    """Return a function from byte text in some character set to the inside of a JSON string, in byte text.

    Args:
        decode: Decodes bytes of the character set.
        ascii_compatible: Whether bytes below 0x80 alone always are the ASCII characters of that code.
    """

    def escape_ascii_compatible(data: str) -> str:
        return to_byte_text(escape(data if data.isascii() else decode(data.encode("latin-1"))))

    def escape_other(data: str) -> str:
        return to_byte_text(escape(decode(data.encode("latin-1"))))

    return escape_ascii_compatible if ascii_compatible else escape_other


# Base64 of 12 bits; two of them make the four characters of three bytes.
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
BASE64_PAIRS: tuple[str, ...] = tuple(a + b for a in _ALPHABET for b in _ALPHABET)


def base64_text(data: bytes) -> str:
    """Return standard base64 with padding."""
    return b2a_base64(data, newline=False).decode("ascii")


def base64_int(value: int) -> str:
    """Return base64 of the shortest big-endian two's complement form, as Connect writes a Decimal."""
    size = ((value if value >= 0 else ~value).bit_length() >> 3) + 1
    return b2a_base64(value.to_bytes(size, "big", signed=True), newline=False).decode("ascii")


_F32 = struct.Struct("<f")
_U32 = struct.Struct("<I")


def narrowed_float(value: float) -> str:
    """Return a double rounded to the nearest 4-byte float as Java prints it.

    Raises:
        OverflowError: The double is beyond the largest float.
    """
    try:
        return java_float(_F32.unpack(_F32.pack(value))[0])
    except OverflowError:
        raise OverflowError(f"{value!r} is beyond what a 4-byte float holds (REAL in event.contract=1.9)") from None


class FloatTexts(dict[int, str]):
    """Remember the text of floats by their 32 bits."""

    limit = 65536

    def __missing__(self, bits: int) -> str:
        if len(self) >= self.limit:
            self.clear()
        text = self[bits] = java_float(_F32.unpack(_U32.pack(bits))[0])
        return text


# Bytes that hold 0 to 9 digits. Source: MySQL source, decimal.cc (dig2bytes).
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_groups(precision: int, scale: int) -> list[tuple[int, int]]:
    """Return the groups of a packed DECIMAL as (digits, bytes), most significant first."""
    integer_digits = precision - scale
    groups = [(integer_digits % 9, DIGIT_BYTES[integer_digits % 9])] if integer_digits % 9 else []
    groups += [(9, 4)] * (integer_digits // 9 + scale // 9)
    if scale % 9:
        groups.append((scale % 9, DIGIT_BYTES[scale % 9]))
    return groups


def decimal_text(unscaled: int, scale: int) -> str:
    """Return the plain text of ``unscaled * 10**-scale`` with all digits after the point."""
    if not scale:
        return str(unscaled)
    digits = f"{abs(unscaled):0{scale + 1}d}"
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def decimal_double(unscaled: int, scale: int) -> float:
    """Return the double nearest to ``unscaled * 10**-scale``."""
    power: int = 10**scale
    return unscaled / power
