"""Columns in Avro: the code of generated decoders that writes values as bytes, without JSON between.

``avro_renderers`` and ``avro_text_renderers`` write the common types at once. All other values, and those that are
changed or converted, are written as JSON by the decoders' own renderers and turned into Avro one by one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from airflow_provider_mysql_cdc.cdc.avro import avro_binary as binary
from airflow_provider_mysql_cdc.cdc.avro.avro_payload import encoder, payload_of
from airflow_provider_mysql_cdc.cdc.avro.avro_renderers import Answer, fast_answer
from airflow_provider_mysql_cdc.cdc.avro.avro_text_renderers import fast_text
from airflow_provider_mysql_cdc.cdc.avro.column_form import NAMES, ColumnForm
from airflow_provider_mysql_cdc.cdc.avro.connect_avro import null_index
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.convert.connect_schema import field_schema
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import AfterRow, Declined, Dialect, TextParts
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnCode, ObjectText
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_dialect import JSON
from airflow_provider_mysql_cdc.cdc.decode.codegen.mask_functions import change_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import Request
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_renderers import TextRequest
from airflow_provider_mysql_cdc.cdc.model.table import Column

ConvertText = Callable[[str], str]
_HEADS = {None: "", 0: "\x02", 1: "\x00"}


def column_form(column: Column, options: DecoderOptions) -> ColumnForm:
    """Return how a column's values are written.

    Args:
        column: The column.
        options: Modes.

    Raises:
        SchemaError: Its type is not known.
    """
    schema = field_schema(column, options, names=options.field_names)
    encode = encoder(schema)

    def of(text: str) -> str:
        return encode(payload_of(str(text).encode("latin-1")))

    return ColumnForm(column, options, _HEADS[null_index(schema)], of)


def _refusal(form: ColumnForm) -> Callable[[], str]:
    return lambda: form.of("null")


Fast = Callable[[Request, ColumnForm, str], Answer | None]


def written_code(plain: ColumnCode, request: Request, form: Callable[[], ColumnForm], fast_of: Fast) -> ColumnCode:
    """Return the code of a column in row images that writes bytes.

    Args:
        plain: Its code that writes JSON.
        request: The column.
        form: Gives how its values are written; not asked for a column that is in no record.
        fast_of: Gives what writes values at once, of the request, the form and what stands for NULL, or None.

    Raises:
        Declined: It is written one way in the key and another in the value.
    """
    if not plain.in_value and not plain.in_key:
        return replace(plain, label="")
    return _written(plain, request, form(), fast_of)


def _written(plain: ColumnCode, request: Request, form: ColumnForm, fast_of: Fast) -> ColumnCode:
    change, text = plain.change, plain.null
    if change is not None and plain.in_key:
        raise Declined(f"column {plain.name} of the key is shown otherwise in the value")
    if change is not None and plain.convert is not None:
        text = change(text)
    null, refuse = "", plain.refuse_null
    try:
        null = form.of(text)
    except ValueError:
        refuse = refuse or _refusal(form)
    made = replace(
        plain,
        label="",
        null=null,
        refuse_null=refuse,
        constant=None if plain.constant is None else form.of(plain.constant),
        change=None,
    )
    fast = fast_of(request, form, null) if change is None and plain.convert is None else None
    if fast is not None:
        return replace(made, wire=fast[0], render=fast[1])
    steps = [step for step in (plain.convert, change, form.of) if step is not None]
    return replace(made, convert=_joined(steps))


def _joined(steps: list[ConvertText]) -> ConvertText:
    def run(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    return run


def avro_codes(
    columns: tuple[Column, ...],
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    null_text: Mapping[str, str],
    key_columns: tuple[str, ...],
) -> tuple[ColumnCode, ...]:
    """Return the code of every column of a table in row images; arguments as for ``json_dialect.column_codes``.

    Raises:
        Declined: A column is written one way in the key and another in the value.
    """
    plain = JSON.codes(columns, wires, options, null_text, key_columns)
    return tuple(
        written_code(
            code, Request(column, wire, options, code.null), partial(column_form, column, options), fast_answer
        )
        for code, column, wire in zip(plain, columns, wires, strict=True)
    )


def avro_text(index: int, request: TextRequest, in_key: bool) -> TextParts:
    """Return the code of a column of the text protocol; arguments as for ``json_dialect.text_parts``.

    Raises:
        Declined: As for ``avro_codes``.
    """
    column, options = request.column, request.options
    plain, form = JSON.text(index, request, in_key), column_form(column, options)
    change = change_text(options.treatment(column).change)
    if change is not None and in_key:
        raise Declined(f"column {column.name} of the key is shown otherwise in the value")
    null = plain.null
    if not null.endswith("()"):
        text = ast.literal_eval(null)
        try:
            null = repr(form.of(change(text) if change is not None and plain.change_null else text))
        except ValueError:
            null = f"{request.bind(f'refuse_{index}', _refusal(form))}()"
    if change is None and options.custom(column) is None:
        fast = fast_text(request, form, null)
        if fast is not None:
            return TextParts(fast, fast.result, null)
    of = request.bind(f"avro_{index}", form.of if change is None else _joined([change, form.of]))
    return TextParts(plain.code, f"{of}({plain.result})", null)


def _constant(column: Column, options: DecoderOptions, text: str) -> str:
    return column_form(column, options).of(text)


def _key_members(options: DecoderOptions) -> str:
    return "".join(binary.text(value) for _, value in options.key_fields)


_NO_TRANSACTION = "\x00"
_OPERATIONS: Mapping[str, str] = MappingProxyType({op: binary.text(op) for op in "crud"})


def _after_row(ctx: EventContext, op: str) -> str:
    return f"{ctx.src_tail}{_NO_TRANSACTION}{_OPERATIONS[op]}{ctx.tail}"


def _after_row_1_9(ctx: EventContext, op: str) -> str:
    return f"{ctx.src_tail}{_OPERATIONS[op]}{ctx.tail}"


def _after_row_of(options: DecoderOptions) -> AfterRow:
    return _after_row_1_9 if options.contract == "1.9" else _after_row


AVRO = Dialect(
    codes=avro_codes,
    text=avro_text,
    constant=_constant,
    key_members=_key_members,
    after_row=_after_row_of,
    before="",
    after="",
    null="\x00",
    source="",
    image=ObjectText("\x02", "", ""),
    key=ObjectText("", "", ""),
    row="{S[row] if row < 8192 else varint(row)}",
    number=binary.varint,
    foreign=False,
    names=NAMES,
)
"""Confluent's form of Debezium's events, without transaction metadata."""
