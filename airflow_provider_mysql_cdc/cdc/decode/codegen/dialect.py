"""How a record is put together from the parts that generated code writes: what JSON and Avro do otherwise.

Generated code reads rows the same way for both, and joins texts. A dialect says how a value becomes text, and what
stands between values, images and the source block.
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
    """Say why a dialect has no code for a table."""


class TextParts(NamedTuple):
    """Hold the code of a column of the text protocol.

    Args:
        code: Reads the value.
        result: Expression of what stands in keys, and in values where nothing changes it.
        null: Expression of the same for NULL.
        change: Name of the function that gives what stands in values, or None.
        change_null: Whether it is called for NULL too.
    """

    code: TextCode
    result: str
    null: str
    change: str | None = None
    change_null: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """Say how records are put together. Equal only to itself, so that shapes can be kept by it.

    Args:
        codes: Gives the code of a table's columns in row images.
        text: Gives the code of a column (its index, its request, whether it is in the key) of the text protocol.
        constant: Turns the JSON text that stands for a column's values into what stands in values; byte text.
        key_members: Gives what stands behind the columns of every key.
        after_row: Gives the function that writes what follows the row number.
        before: What stands before the image before a change.
        after: What stands before the image behind it.
        null: An image that is not there.
        source: What stands before the source block.
        image: What stands around an image's columns.
        key: What stands around a key's columns.
        row: Body of an f-string that holds the number in the name ``row``.
        number: Gives the text of a row's number; None for the number itself.
        needs_byte_text: Whether texts around rows may hold characters that are no bytes.
        names: What the generated code sees beside.
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
        """Return what stands before the only image of an insert."""
        return self.before + self.null + self.after

    def before_source(self, op: str) -> str:
        """Return what stands between the last image and the source block.

        Args:
            op: The operation: a create has its only image as the one behind, a delete as the one before.
        """
        return (self.after + self.null if op == "d" else "") + self.source
