"""JSON strings and numbers exactly as Kafka Connect's JsonConverter (Jackson) writes them.

The generated decoders work on *byte text*: the event's bytes read as ISO 8859-1, so that one character is one byte.
UTF-8 data passes through unchanged, and one final ``encode("latin-1")`` gives the record's bytes.
"""

from __future__ import annotations

import re
import struct
from binascii import b2a_base64
from collections.abc import Callable
from math import isfinite

import orjson

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


def _java_notation(text: str, one_digit: Callable[[], str]) -> str:
    """Return Java's notation of a shortest decimal given in Python's notation (no sign)."""
    mantissa, _, exp_text = text.partition("e")
    integer_part, _, fraction = mantissa.partition(".")
    exponent = (int(exp_text) if exp_text else 0) + len(integer_part) - 1
    digits = integer_part + fraction
    stripped = digits.lstrip("0")
    exponent -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    if len(digits) == 1:
        # Java looks for the closest decimal of two digits where one would do.
        mantissa, _, exp_text = one_digit().partition("e")
        digits, exponent = mantissa.replace(".", "").rstrip("0"), int(exp_text)
    if -3 <= exponent < 7:
        if exponent < 0:
            return "0." + "0" * (-exponent - 1) + digits
        digits = digits.ljust(exponent + 1, "0")
        return f"{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"
    return f"{digits[0]}.{digits[1:] or '0'}E{exponent}"


def java_double(value: float) -> str:
    """Return a double as Java's ``Double.toString`` of JDK 19 and later writes it (shortest decimal)."""
    if -1e7 < value < 1e7 and (value >= 1e-3 or value <= -1e-3 or value == 0):
        return repr(value)
    if not isfinite(value):
        raise ValueError(f"{value!r} is not a number that MySQL stores")
    text = repr(value)
    if text[0] == "-":
        return "-" + _java_notation(text[1:], lambda: f"{-value:.1e}")
    return _java_notation(text, lambda: f"{value:.1e}")


_F32 = struct.Struct("<f")
_U32 = struct.Struct("<I")
_FLT_MIN = 1.1754943508222875e-38


def _shortest_float(value: float, bits: bytes) -> str:
    """Return the shortest decimal that reads back as the same float (positive values only)."""
    for digits in range(1 if value < _FLT_MIN else 6, 9):
        text = f"{value:.{digits - 1}e}"
        try:
            if _F32.pack(float(text)) == bits:
                return text
        except OverflowError:  # rounded up beyond the largest float
            continue
    return f"{value:.8e}"


def java_float(value: float) -> str:
    """Return a float, given as the double of the same value, as Java's ``Float.toString`` writes it (JDK 19+)."""
    if value == 0:
        return repr(value)
    if not isfinite(value):
        raise ValueError(f"{value!r} is not a number that MySQL stores")
    sign, value = ("-", -value) if value < 0 else ("", value)
    return sign + _java_notation(_shortest_float(value, _F32.pack(value)), lambda: f"{value:.1e}")


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
