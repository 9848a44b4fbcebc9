"""Columns of TiCDC's flat rows: the code of generated decoders that writes their bytes, without JSON in between.

Most types are written as Confluent's Avro writes them (``avro.avro_renderers``); dates and times are the texts that
MySQL prints. Values without a renderer are converted by way of JSON, one by one, as ``ticdc_encoder`` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NoReturn

from airflow_provider_mysql_cdc.cdc.avro import avro_binary, avro_renderers
from airflow_provider_mysql_cdc.cdc.avro.avro_binary import CODE_NAMESPACE, ColumnFormat
from airflow_provider_mysql_cdc.cdc.avro.avro_columns import avro_column_code
from airflow_provider_mysql_cdc.cdc.avro.avro_payload import parse_payload
from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen import literal_temporal_renderers
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import JSON, Declined, Dialect
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import (
    ColumnCode,
    ColumnRenderer,
    Emitter,
    ObjectDelimiters,
    WireLayout,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import TemporalRequest
from airflow_provider_mysql_cdc.cdc.model.mysql_types import TEMPORAL_FAMILIES, Family
from airflow_provider_mysql_cdc.cdc.model.table import Column
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_encoder import PRESENT, column_encoder
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import TicdcModes, tidb_type

_NO_OBJECT = ObjectDelimiters("", "", "")
_LONGEST_TIME = 64


def ticdc_column_format(column: Column, options: DecoderOptions, modes: TicdcModes) -> ColumnFormat:
    """Return how a column's values are written.

    Args:
        column: The column.
        options: From ``ticdc_encoder.row_options``.
        modes: How values are written.

    Raises:
        SchemaError: Its type is not known.
    """
    encode = column_encoder(column, modes)

    def encode_text(text: str) -> str:
        return encode(parse_payload(text.encode("latin-1")))

    return ColumnFormat(column, options, PRESENT if column.nullable else "", encode_text)


def _float(request: ColumnRequest, fmt: ColumnFormat) -> ColumnRenderer:
    def render(emitter: Emitter, names: list[str]) -> str:
        name = names[0]
        # The difference is not 0 for NaN and the infinities.
        emitter.line(f"{name} = double_of({name}).decode('latin-1') if {name} - {name} == 0 else finite({name})")
        return fmt.body(f"{{{name}}}")

    return WireLayout((("<", "f"),)), render


def _unsigned_text(request: ColumnRequest, fmt: ColumnFormat) -> ColumnRenderer:
    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = f'{{{names[0]}}}'")
        return fmt.body(f"{{{names[0]}}}", size=f"len({names[0]})", max_size=_LONGEST_TIME)

    return WireLayout((("<", "Q"),)), render


def _trimmed_bits(data: bytes) -> str:
    return avro_binary.data(data.lstrip(b"\0") or b"\0")


def _bit(request: ColumnRequest, fmt: ColumnFormat) -> ColumnRenderer:
    bits = request.wire.length

    def render_bit(emitter: Emitter, names: list[str]) -> str:
        texts = (avro_binary.data(b"\0"), avro_binary.data(b"\1"))
        return fmt.body(f"{{{emitter.bind('FLAT_BITS', texts)}[{names[0]}]}}")

    def render(emitter: Emitter, names: list[str]) -> str:
        return fmt.body(f"{{{emitter.bind('trimmed', _trimmed_bits)}({names[0]})}}")

    return (WireLayout((("", "B"),)), render_bit) if bits == 1 else (WireLayout((("", f"{(bits + 7) // 8}s"),)), render)


def _temporal(request: ColumnRequest, fmt: ColumnFormat) -> ColumnRenderer:
    column = request.column
    temporal = TemporalRequest(request.wire, request.options, request.null, column)
    wire, quoted = literal_temporal_renderers.RENDERERS[request.wire.code](temporal)

    def render(emitter: Emitter, names: list[str]) -> str:
        name = quoted(emitter, names)[1:-1]
        emitter.line(f"{name} = {name}[1:-1]")
        return fmt.body(f"{{{name}}}", size=f"len({name})", max_size=_LONGEST_TIME)

    return wire, render


# Types that Confluent's Avro writes differently; spatial types and VECTOR have no renderer there either.
_RENDERERS: Mapping[Family, Callable[[ColumnRequest, ColumnFormat], ColumnRenderer]] = {
    Family.FLOAT: _float,
    Family.BIT: _bit,
    **dict.fromkeys(TEMPORAL_FAMILIES, _temporal),
}


def _direct_renderer(modes: TicdcModes, request: ColumnRequest, fmt: ColumnFormat, null: str) -> ColumnRenderer | None:
    build = None if request.wire_format is None else _RENDERERS.get(request.column.family)
    if request.column.family is Family.INTEGER and tidb_type(request.column, modes).avro_type == "string":
        build = _unsigned_text
    return avro_renderers.avro_renderer(request, fmt, null) if build is None else build(request, fmt)


def _column_codes(
    modes: TicdcModes,
    columns: tuple[Column, ...],
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    null_text: Mapping[str, str],
    keys: tuple[int, ...],
) -> tuple[ColumnCode, ...]:
    plain, find_renderer = JSON.codes(columns, wires, options, null_text, keys), partial(_direct_renderer, modes)
    return tuple(
        avro_column_code(
            code,
            ColumnRequest(column, wire, options, code.null),
            partial(ticdc_column_format, column, options, modes),
            find_renderer,
        )
        for code, column, wire in zip(plain, columns, wires, strict=True)
    )


def _decline_text(*given: Any) -> NoReturn:
    raise Declined("rows of snapshots are converted by way of JSON")


def _after_row(ctx: EventContext, op: str) -> str:
    return ctx.tail


@lru_cache(maxsize=16)
def ticdc_dialect(modes: TicdcModes) -> Dialect:
    """Return how flat rows are put together.

    Args:
        modes: How values are written.
    """
    return Dialect(
        codes=partial(_column_codes, modes),
        text=_decline_text,
        constant=lambda column, options, text: ticdc_column_format(column, options, modes).encode(text),
        key_members=lambda options: "",
        after_row=lambda options: _after_row,
        before="",
        after="",
        null="",
        source="",
        image=_NO_OBJECT,
        key=_NO_OBJECT,
        number=avro_binary.varint,
        needs_byte_text=False,
        names=CODE_NAMESPACE,
    )
