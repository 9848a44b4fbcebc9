"""Character sets of MySQL, decoded and as JSON strings (``model.charset_decoders``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import escape_utf8, make_escape
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import UNICODE, DecodeText, text_decoder
from airflow_provider_mysql_cdc.cdc.model.charset_tables import MULTI, SINGLE


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


@cache
def charset(name: str) -> Charset:
    """Return the decoder of a MySQL character set.

    Args:
        name: MySQL's name, lower case; not ``binary``.

    Raises:
        SchemaError: When the name is not one of MySQL's character sets.
    """
    if name in UNICODE:
        codec, unit = UNICODE[name]
        decode = text_decoder(name)
        return Charset(decode, unit == 1, escape_utf8 if codec == "utf-8" else make_escape(decode, unit == 1), unit)
    if name in SINGLE or name in MULTI:
        decode = text_decoder(name)
        # swe7 has letters in place of brackets and braces.
        return Charset(decode, name != "swe7", make_escape(decode, name != "swe7"))
    raise SchemaError(
        f"Character set {name} is not known",
        remedy="report the character set, or exclude the column (column.exclude.list)",
    )
