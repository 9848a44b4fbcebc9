"""The value in an event of a column that the row image leaves out (binlog_row_image MINIMAL or NOBLOB).

==================  ==================================================================================================
image               text of an absent column
==================  ==================================================================================================
INSERT              what the server stored: the column's literal default, or null where it has none. Expressions and
                    generated columns are in the image (9.7.4, seen in its events); where an older server leaves them
                    out their value is unknown, and so are a TIMESTAMP's literal default, which is a time in the zone
                    of a session, and what sql_mode puts into a NOT NULL column without a default
UPDATE, after       its value in the before image, for an absent column is an unchanged one (generated columns that
                    follow a changed one are in the image); where the before image lacks it too, it is unknown
UPDATE, DELETE:     unknown; a before image with an unknown value and no placeholder is null as a whole, which the
before              envelope allows
==================  ==================================================================================================

An unknown value is written as ``unavailable.value.placeholder`` in character, JSON, ENUM and SET columns and, as bytes,
in binary columns: the types in which Debezium writes it, or which Connect has as a plain string. All others cannot hold
it. In a before image it is then null where the column is nullable. In an after image null would say that the
value *is* NULL, so the row is an error, unless ``unavailable.value.as.null`` is set.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import text_parts
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ROW_ERRORS
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import BINARY_TEXTS
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_renderers import TextRequest
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote_byte_text
from airflow_provider_mysql_cdc.cdc.model.table import Column

PLACEHOLDER = "__debezium_unavailable_value"
ABSENT_BEFORE_IMAGE = "{}"
"""The value in before images of flat rows, which are not written: no column has such a value."""
UNWRITABLE = ""
"""What stands for a stored value that an event cannot represent: the row fails, as one that has the value does."""
_HEX = "hex:"


class UnavailableError(ValueError):
    """Report that a column's value is unknown.

    Args:
        column: Its name.
        why: The reason.
    """

    def __init__(self, column: str, why: str) -> None:
        super().__init__(why)
        self.column = column


def placeholder_bytes(placeholder: str) -> bytes:
    """Return the placeholder of binary columns: its UTF-8 bytes, or those that follow ``hex:`` in hexadecimal.

    Raises:
        ValueError: What follows ``hex:`` is not hexadecimal.
    """
    return bytes.fromhex(placeholder[len(_HEX) :]) if placeholder.startswith(_HEX) else placeholder.encode()


def placeholder_text(column: Column, options: DecoderOptions) -> str | None:
    """Return the placeholder as JSON in byte text, or None for a type that cannot hold it."""
    data = placeholder_bytes(options.unavailable)
    custom = options.custom(column)
    if custom is not None:
        if custom.name is not None or custom.type not in ("string", "bytes"):
            return None
        if custom.type == "bytes":
            return f'"{BINARY_TEXTS["bytes"](data)}"'
        return quote_byte_text(data.decode("utf-8", "replace"))
    written_as = column.mysql_type.unavailable
    if written_as == "bytes" or (written_as == "text" and column.charset == "binary"):
        return f'"{BINARY_TEXTS[options.binary_mode](data)}"'
    if written_as == "text":
        return quote_byte_text(data.decode("utf-8", "replace"))
    return None


class Unavailable(NamedTuple):
    """Hold the text of a column that is absent, by kind of image; None where its value is unknown.

    Args:
        stored: What an INSERT stored in it; ``UNWRITABLE`` for a value that an event cannot represent.
        before: In a before image.
        after: In an after image, when the before image does not have its value.
    """

    stored: str | None
    before: str | None
    after: str | None


def unavailable(column: Column, options: DecoderOptions, null: str, *, null_refused: bool = False) -> Unavailable:
    """Return the text of a column that is absent, as JSON in byte text.

    Args:
        column: The column.
        options: Placeholder and modes.
        null: JSON text of NULL.
        null_refused: Whether a converter cannot convert NULL.
    """
    text = placeholder_text(column, options)
    if options.flat:
        return Unavailable(None, ABSENT_BEFORE_IMAGE, None)
    # A converter's text of NULL would say that the value is NULL.
    unknown_null = null if options.custom(column) is None else "null"
    before = text or (unknown_null if column.nullable else None)
    after = text or (unknown_null if column.nullable and options.unavailable_as_null else None)
    return Unavailable(_stored_text(column, options, null, null_refused=null_refused), before, after)


def _stored_text(column: Column, options: DecoderOptions, null: str, *, null_refused: bool) -> str | None:
    """Return the text of what an INSERT stored in the column, as a row of the text protocol would have it."""
    if column.generated or column.default_is_expression:
        return None
    if column.default is None:
        return null if column.nullable and not null_refused else None
    if column.stored_default is None:
        return None
    namespace: dict[str, Any] = {}

    def bind(hint: str, value: Any) -> str:
        namespace[hint] = value
        return hint

    parts = text_parts(0, TextRequest(column, options, null, bind), False)
    lines = ["def run(s, d, n):", *(f" {line}" for line in parts.code.lines), f" return {parts.result}"]
    exec("\n".join(lines), namespace)  # source generated here from the column
    data = column.stored_default.encode("latin-1" if column.charset in (None, "binary") else "utf-8")
    try:
        return str(namespace["run"](data.decode("latin-1"), data, len(data)))
    except ROW_ERRORS:
        return UNWRITABLE
