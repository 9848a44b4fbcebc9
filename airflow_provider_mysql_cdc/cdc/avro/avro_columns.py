"""Columns in Avro: the code of generated decoders that writes values as bytes, and the decoder in Python that has
it.

Columns in Avro: the code of generated decoders that writes values as bytes, without JSON in between.

``avro_renderers`` and ``avro_text_renderers`` write the common types directly. All other values, and those that are
masked, hashed or converted, are written as JSON by the JSON renderers and turned into Avro one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from airflow_provider_mysql_cdc.cdc.avro import avro_binary
from airflow_provider_mysql_cdc.cdc.avro.avro_binary import CODE_NAMESPACE, ColumnFormat
from airflow_provider_mysql_cdc.cdc.avro.avro_payload import encoder, parse_payload
from airflow_provider_mysql_cdc.cdc.avro.avro_renderers import avro_renderer
from airflow_provider_mysql_cdc.cdc.avro.avro_text_renderers import avro_text_code, literal_value
from airflow_provider_mysql_cdc.cdc.avro.connect_avro import null_index
from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.convert.connect_schema import field_schema
from airflow_provider_mysql_cdc.cdc.decode.codegen.custom_values import ConvertText
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import JSON, AfterRow, Declined, Dialect, TextParts
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnCode, ColumnRenderer, ObjectDelimiters
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import change_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import OwnedKeys
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_renderers import TextRequest
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

_BRANCH_BY_NULL = {None: "", 0: "\x02", 1: "\x00"}


def avro_column_format(column: Column, options: DecoderOptions) -> ColumnFormat:
    """Return how a column's values are written.

    Args:
        column: The column.
        options: Modes.

    Raises:
        SchemaError: Its type is not known.
    """
    schema = field_schema(column, options, names=options.field_names)
    encode = encoder(schema)

    def encode_text(text: str) -> str:
        return encode(parse_payload(str(text).encode("latin-1")))

    return ColumnFormat(column, options, _BRANCH_BY_NULL[null_index(schema)], encode_text)


def _null_refusal(fmt: ColumnFormat) -> Callable[[], str]:
    return lambda: fmt.encode("null")


FindRenderer = Callable[[ColumnRequest, ColumnFormat, str], ColumnRenderer | None]


def avro_column_code(
    plain: ColumnCode, request: ColumnRequest, format_of: Callable[[], ColumnFormat], find_renderer: FindRenderer
) -> ColumnCode:
    """Return the code of a column in row images that writes bytes.

    Args:
        plain: Its code that writes JSON.
        request: The column.
        format_of: Returns how its values are written; not called for a column that is in no record.
        find_renderer: Returns the renderer that writes values directly, of the request, the format and the bytes of
            NULL; None where there is none.

    Raises:
        Declined: The column is in the key, and masked or hashed in the value.
    """
    if not plain.in_value and not plain.in_key:
        return replace(plain, label="")
    return _avro_column_code(plain, request, format_of(), find_renderer)


def _avro_column_code(
    plain: ColumnCode, request: ColumnRequest, fmt: ColumnFormat, find_renderer: FindRenderer
) -> ColumnCode:
    change, text = plain.change, plain.null
    if change is not None and plain.in_key:
        raise Declined(f"column {plain.name} of the key is masked or hashed in the value")
    if change is not None and plain.convert is not None:
        text = change(text)
    null, refuse = "", plain.refuse_null
    try:
        null = fmt.encode(text)
    except ValueError:
        refuse = refuse or _null_refusal(fmt)
    code = replace(
        plain,
        label="",
        null=null,
        refuse_null=refuse,
        constant=None if plain.constant is None else fmt.encode(plain.constant),
        change=None,
    )
    renderer = find_renderer(request, fmt, null) if change is None and plain.convert is None else None
    if renderer is not None:
        return replace(code, wire=renderer[0], render=renderer[1])
    steps = [step for step in (plain.convert, change, fmt.encode) if step is not None]
    return replace(code, convert=_compose(steps))


def _compose(steps: list[ConvertText]) -> ConvertText:
    def apply(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    return apply


def avro_column_codes(
    columns: tuple[Column, ...],
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    null_text: Mapping[str, str],
    keys: tuple[int, ...],
) -> tuple[ColumnCode, ...]:
    """Return the code of every column of a table in row images; arguments as for ``json_dialect.column_codes``.

    Raises:
        Declined: A column is in the key, and masked or hashed in the value.
    """
    plain = JSON.codes(columns, wires, options, null_text, keys)
    return tuple(
        avro_column_code(
            code,
            ColumnRequest(column, wire, options, code.null),
            partial(avro_column_format, column, options),
            avro_renderer,
        )
        for code, column, wire in zip(plain, columns, wires, strict=True)
    )


def avro_text_parts(index: int, request: TextRequest, in_key: bool) -> TextParts:
    """Return the code of a column of the text protocol; arguments as for ``json_dialect.text_parts``.

    Raises:
        Declined: As for ``avro_column_codes``.
    """
    column, options = request.column, request.options
    plain, fmt = JSON.text(index, request, in_key), avro_column_format(column, options)
    change = change_text(options.treatment(column).change)
    if change is not None and in_key:
        raise Declined(f"column {column.name} of the key is masked or hashed in the value")
    null = plain.null
    if not null.endswith("()"):
        text = literal_value(null)
        try:
            null = repr(fmt.encode(change(text) if change is not None and plain.change_null else text))
        except ValueError:
            null = f"{request.bind(f'refuse_{index}', _null_refusal(fmt))}()"
    if change is None and options.custom(column) is None:
        direct_code = avro_text_code(request, fmt, null)
        if direct_code is not None:
            return TextParts(direct_code, direct_code.result, null)
    encode = request.bind(f"avro_{index}", fmt.encode if change is None else _compose([change, fmt.encode]))
    return TextParts(plain.code, f"{encode}({plain.result})", null)


def _constant(column: Column, options: DecoderOptions, text: str) -> str:
    return avro_column_format(column, options).encode(text)


def _key_members(options: DecoderOptions) -> str:
    return "".join(avro_binary.text(value) for _, value in options.key_fields)


_NO_TRANSACTION = "\x00"
_OPERATIONS: Mapping[str, str] = MappingProxyType({op: avro_binary.text(op) for op in "crud"})


def _after_row(ctx: EventContext, op: str) -> str:
    return f"{ctx.src_tail}{_NO_TRANSACTION}{_OPERATIONS[op]}{ctx.tail}"


def _after_row_1_9(ctx: EventContext, op: str) -> str:
    return f"{ctx.src_tail}{_OPERATIONS[op]}{ctx.tail}"


def _after_row_of(options: DecoderOptions) -> AfterRow:
    return _after_row_1_9 if options.contract == "1.9" else _after_row


AVRO = Dialect(
    codes=avro_column_codes,
    text=avro_text_parts,
    constant=_constant,
    key_members=_key_members,
    after_row=_after_row_of,
    before="",
    after="",
    null="\x00",
    source="",
    image=ObjectDelimiters("\x02", "", ""),
    key=ObjectDelimiters("", "", ""),
    row="{S[row] if row < 8192 else varint(row)}",
    number=avro_binary.varint,
    needs_byte_text=False,
    names=CODE_NAMESPACE,
)
"""Debezium's events as Confluent's converter writes them, without transaction metadata."""


class FallbackToJson(Exception):
    """Report that an event has to be converted by way of JSON.

    Args:
        error: The error of a value; None for rows that are always converted so.
    """

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(repr(error))
        self.error = error


def avro_row_decoder(
    table: Table,
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    envelope: EnvelopeText,
    prefixes: tuple[str, str],
    owned: OwnedKeys | None = None,
) -> RowDecoder:
    """Return the decoder that writes complete row images as Avro; it refuses other events.

    Args:
        table: The table.
        wires: Wire types of its columns.
        options: Modes.
        envelope: Constant text around the rows.
        prefixes: Text that keys and values begin with.
        owned: Selects the rows whose records are produced; None for all.

    Raises:
        Declined: A column cannot be written as Avro directly.
    """
    return RowDecoder(table, wires, options, envelope, AVRO, prefixes, owned, FallbackToJson)
