"""Adjust names to what Avro allows.

Source: ``SchemaNameAdjuster`` and its replacement functions in Debezium 3.6.1. Java works on UTF-16 units, so a
character beyond U+FFFF counts as two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_FIRST_CHARACTER = {"avro": re.compile("[a-zA-Z_]"), "avro_unicode": re.compile("[a-zA-Z]")}
_FIELD_CHARACTER = {"avro": re.compile("[a-zA-Z0-9_]"), "avro_unicode": re.compile("[a-zA-Z0-9]")}
_SCHEMA_CHARACTER = {"avro": re.compile("[a-zA-Z0-9_.]"), "avro_unicode": re.compile("[a-zA-Z0-9.]")}


def field_name(name: str, mode: str) -> str:
    """Return a column's name as a field name.

    Args:
        name: The column's name.
        mode: ``field.name.adjustment.mode``: none, avro or avro_unicode.
    """
    return name if mode == "none" else _adjust(name, mode, _FIELD_CHARACTER[mode])


def schema_name(name: str, mode: str, *, keep_leading_digit: bool = True) -> str:
    """Return the name of a schema; dots stay.

    Args:
        name: The name.
        mode: ``schema.name.adjustment.mode``: none, avro or avro_unicode.
        keep_leading_digit: Whether ``avro`` keeps a leading digit behind its underscore; Debezium 1.9 did not.
    """
    if mode == "none":
        return name
    if not keep_leading_digit and mode == "avro" and name[:1].isdecimal():
        name = "_" + name[1:]
    return _adjust(name, mode, _SCHEMA_CHARACTER[mode])


def _utf16_units(name: str) -> Iterator[str]:
    data = name.encode("utf-16-be", "surrogatepass")
    return (chr(int.from_bytes(data[i : i + 2], "big")) for i in range(0, len(data), 2))


def _adjust(name: str, mode: str, allowed: re.Pattern[str]) -> str:
    out = []
    for index, char in enumerate(_utf16_units(name)):
        if (allowed if index else _FIRST_CHARACTER[mode]).fullmatch(char):
            out.append(char)
        elif mode == "avro":
            # A leading digit stays, so that names which differ in it only do not become equal.
            out.append("_" + (char if not index and char.isdecimal() else ""))
        else:
            code = f"{ord(char):x}"
            out.append("_u" + ("00" + code if len(code) <= 2 else code))
    return "".join(out)
