"""How a record is assembled from the parts that generated code writes: the differences between JSON and Avro.

Generated code reads rows the same way for both, and joins texts. A dialect defines how a value becomes text, and the
text between values, images and the source block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import JSON_OBJECT, ColumnCode, ObjectDelimiters
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_renderers import TextCode, TextRequest
from airflow_provider_mysql_cdc.cdc.model.table import Column

AfterRow = Callable[[EventContext, str], str]
# Columns, their wire types, modes, texts of defaults for NULL, indexes of the key columns
MakeColumnCodes = Callable[
    [tuple[Column, ...], tuple[WireType, ...], DecoderOptions, Mapping[str, str], tuple[int, ...]],
    tuple[ColumnCode, ...],
]
NO_NAMES: Mapping[str, Any] = MappingProxyType({})


class Declined(Exception):
    """Report that a dialect has no code for a table, or the native kernel no plan; the message says why."""


class TextParts(NamedTuple):
    """Hold the code of a column of the text protocol.

    Args:
        code: Reads the value.
        result: Expression of the text in keys, and in values where no mask or hash changes it.
        null: Expression of the same for NULL.
        change: Name of the function that returns the masked or hashed text in values, or None.
        change_null: Whether it is called for NULL too.
    """

    code: TextCode
    result: str
    null: str
    change: str | None = None
    change_null: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """Define how records are assembled. Equal only to itself, so that it can be a key of the shape cache.

    Args:
        codes: Returns the code of a table's columns in row images.
        text: Returns the code of a column (its index, its request, whether it is in the key) of the text protocol.
        constant: Turns the JSON text of a constant mask into the text in values; byte text.
        key_members: Returns the text after the columns of every key.
        after_row: Returns the function that writes the text after the row number.
        before: Text before the before image.
        after: Text before the after image.
        null: Text of an absent image.
        source: Text before the source block.
        image: Text around an image's columns.
        key: Text around a key's columns.
        row: Body of an f-string that holds the number in the name ``row``.
        number: Returns the text of a row's number; None for the number itself.
        needs_byte_text: Whether texts around rows may hold characters that are no bytes.
        names: Further objects that the generated code uses, by name.
    """

    codes: MakeColumnCodes
    text: Callable[[int, TextRequest, bool], TextParts]
    constant: Callable[[Column, DecoderOptions, str], str]
    key_members: Callable[[DecoderOptions], str]
    after_row: Callable[[DecoderOptions], AfterRow]
    before: str = '{"before":'
    after: str = ',"after":'
    null: str = "null"
    source: str = ',"source":'
    image: ObjectDelimiters = JSON_OBJECT
    key: ObjectDelimiters = JSON_OBJECT
    row: str = "{row}"
    number: Callable[[int], str] | None = None
    needs_byte_text: bool = True
    names: Mapping[str, Any] = field(default_factory=lambda: NO_NAMES)

    def insert(self) -> str:
        """Return the text before the only image of an insert."""
        return self.before + self.null + self.after

    def before_source(self, op: str) -> str:
        """Return the text between the last image and the source block.

        Args:
            op: The operation: the only image of a create is the after image, that of a delete the before image.
        """
        return (self.after + self.null if op == "d" else "") + self.source
