"""Columns of TiCDC's flat rows: the code of generated decoders that writes their bytes, without JSON between.

Most types are written as Confluent's Avro writes them (``avro.avro_renderers``); dates and times are the texts that
MySQL prints. What has no renderer goes by way of JSON, value by value, as ``ticdc_encoder`` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NoReturn

from airflow_provider_mysql_cdc.cdc.avro import avro_binary as binary
from airflow_provider_mysql_cdc.cdc.avro import avro_renderers
from airflow_provider_mysql_cdc.cdc.avro.avro_columns import written_code
from airflow_provider_mysql_cdc.cdc.avro.avro_payload import payload_of
from airflow_provider_mysql_cdc.cdc.avro.avro_renderers import Answer
from airflow_provider_mysql_cdc.cdc.avro.column_form import NAMES, ColumnForm
from airflow_provider_mysql_cdc.cdc.binlog import wire_types as wt
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen import literal_temporal_renderers as literal_times
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Declined, Dialect
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnCode, Emitter, ObjectText, Wire
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_dialect import JSON
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import Request
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import Temporal
from airflow_provider_mysql_cdc.cdc.model.table import Column
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_encoder import PRESENT, column_encoder
from airflow_provider_mysql_cdc.cdc.ticdc.tidb_types import TicdcModes, tidb_type

_NOTHING = ObjectText("", "", "")
_LONGEST_TIME = 64


def flat_form(column: Column, options: DecoderOptions, modes: TicdcModes) -> ColumnForm:
    """Return how a column's values are written.

    Args:
        column: The column.
        options: From ``ticdc_encoder.row_options``.
        modes: How values are written.

    Raises:
        SchemaError: Its type is not known.
    """
    encode = column_encoder(column, modes)

    def of(text: str) -> str:
        return encode(payload_of(text.encode("latin-1")))

    return ColumnForm(column, options, PRESENT if column.nullable else "", of)


def _float(request: Request, form: ColumnForm) -> Answer:
    def render(emitter: Emitter, names: list[str]) -> str:
        name = names[0]
        # A number that is none, or has no end, is not equal to itself then.
        emitter.line(f"{name} = double_of({name}).decode('latin-1') if {name} - {name} == 0 else finite({name})")
        return form.body(f"{{{name}}}")

    return Wire((("<", "f"),)), render


def _unsigned_text(request: Request, form: ColumnForm) -> Answer:
    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = f'{{{names[0]}}}'")
        return form.body(f"{{{names[0]}}}", size=f"len({names[0]})", most=_LONGEST_TIME)

    return Wire((("<", "Q"),)), render


def _trimmed(data: bytes) -> str:
    return binary.data(data.lstrip(b"\0") or b"\0")


def _bit(request: Request, form: ColumnForm) -> Answer:
    bits = request.wire.a

    def one(emitter: Emitter, names: list[str]) -> str:
        texts = (binary.data(b"\0"), binary.data(b"\1"))
        return form.body(f"{{{emitter.bind('FLAT_BITS', texts)}[{names[0]}]}}")

    def render(emitter: Emitter, names: list[str]) -> str:
        return form.body(f"{{{emitter.bind('trimmed', _trimmed)}({names[0]})}}")

    return (Wire((("", "B"),)), one) if bits == 1 else (Wire((("", f"{(bits + 7) // 8}s"),)), render)


def _time(request: Request, form: ColumnForm) -> Answer:
    column = request.column
    temporal = Temporal(request.wire, request.options, column.nullable, request.null, column.length or 0)
    wire, quoted = literal_times.RENDERERS[column.type_name, request.wire.code](temporal)

    def render(emitter: Emitter, names: list[str]) -> str:
        name = quoted(emitter, names)[1:-1]
        emitter.line(f"{name} = {name}[1:-1]")
        return form.body(f"{{{name}}}", size=f"len({name})", most=_LONGEST_TIME)

    return wire, render


# What Confluent's Avro writes otherwise; spatial types and VECTOR have no renderer there either.
_RENDERERS: Mapping[tuple[str, int], Callable[[Request, ColumnForm], Answer]] = {
    ("FLOAT", wt.FLOAT): _float,
    ("BIT", wt.BIT): _bit,
    **dict.fromkeys(literal_times.RENDERERS, _time),
}


def _fast(modes: TicdcModes, request: Request, form: ColumnForm, null: str) -> Answer | None:
    build = _RENDERERS.get((request.column.type_name, request.wire.code))
    if request.column.type_name == "BIGINT" and tidb_type(request.column, modes).avro == "string":
        build = _unsigned_text
    return avro_renderers.fast_answer(request, form, null) if build is None else build(request, form)


def _codes(
    modes: TicdcModes,
    columns: tuple[Column, ...],
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    null_text: Mapping[str, str],
    key_columns: tuple[str, ...],
) -> tuple[ColumnCode, ...]:
    plain, fast = JSON.codes(columns, wires, options, null_text, key_columns), partial(_fast, modes)
    return tuple(
        written_code(code, Request(column, wire, options, code.null), partial(flat_form, column, options, modes), fast)
        for code, column, wire in zip(plain, columns, wires, strict=True)
    )


def _no_text(*given: Any) -> NoReturn:
    raise Declined("rows of snapshots become JSON first")


def _behind(ctx: EventContext, op: str) -> str:
    return ctx.tail


@lru_cache(maxsize=16)
def flat_dialect(modes: TicdcModes) -> Dialect:
    """Return how flat rows are put together.

    Args:
        modes: How values are written.
    """
    return Dialect(
        codes=partial(_codes, modes),
        text=_no_text,
        constant=lambda column, options, text: flat_form(column, options, modes).of(text),
        key_members=lambda options: "",
        after_row=lambda options: _behind,
        before="",
        after="",
        null="",
        source="",
        image=_NOTHING,
        key=_NOTHING,
        number=binary.varint,
        foreign=False,
        names=NAMES,
    )
