"""Row events and tables for decoder tests, built by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import compile_text_decoder
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from kit.avro_identity import sides

DEFAULT = DecoderOptions()
NO_SCHEMA = EnvelopeText()


def column(name: str, type_name: str, position: int = 1, **more: Any) -> Column:
    return Column(name, position, type_name, **more)


def table(*columns: Column, key: tuple[str, ...] = ()) -> Table:
    placed = tuple(
        Column(**{**{f: getattr(c, f) for f in Column.__slots__}, "position": i}) for i, c in enumerate(columns, 1)
    )
    return Table(TableId("db", "t"), placed, key)


def table_map(*wires: tuple[int, int]) -> Any:
    return SimpleNamespace(column_types=bytes(code for code, _ in wires), column_meta=tuple(meta for _, meta in wires))


def context(**more: Any) -> EventContext:
    return EventContext('{"row":', "}", ',"ts_ms":7}', **{"where": "binlog.000001:4", **more})


def body(*rows: bytes, columns: int, images: int = 1) -> tuple[bytes, int, int]:
    """Return (buffer, offset of the first row, end) with something before and after the rows."""
    present = (b"\xff" * ((columns + 7) // 8)) * images
    buf = b"head" + present + b"".join(rows)
    return buf + b"tail", 4 + len(present), len(buf)


def image(columns: int, data: bytes, nulls: int = 0) -> bytes:
    return nulls.to_bytes((columns + 7) // 8, "little") + data


def write(decoder: RowDecoder, *rows: bytes, columns: int, ctx: EventContext | None = None) -> list[Any]:
    out: list[Any] = []
    buf, pos, end = body(*rows, columns=columns)
    assert decoder.write(buf, pos, end, ctx or context(), out) == len(rows)
    return out


def python_decoder(decoder: Any) -> Any:
    """Return the decoder in Python, which a native one holds."""
    return getattr(decoder, "python", decoder)


def one_value(
    col: Column, wire: tuple[int, int], data: bytes | None, options: DecoderOptions = DEFAULT, null_text: str = ""
) -> str:
    """Return the JSON text of the only column of a one-row insert; data None means NULL.

    In Avro the row is the same at once and by way of JSON.
    """
    made = table(col)
    texts = EnvelopeText(null_text={col.name: null_text}) if null_text else NO_SCHEMA
    decoder = compile_decoder(made, table_map(wire), options, texts)
    row = image(1, data or b"", 1 if data is None else 0)
    if (both := sides(made, options, texts if null_text else None)) is not None:
        both.event("write", table_map(wire), *body(row, columns=1))
    (record,) = write(decoder, row, columns=1)
    return member_text(record[1], col.name)


def one_text(col: Column, data: bytes | None, options: DecoderOptions = DEFAULT, null_text: str = "") -> str:
    """Return the JSON text of the only column of a text protocol row; data None means NULL. Avro as ``one_value``."""
    texts = EnvelopeText(null_text={col.name: null_text}) if null_text else NO_SCHEMA
    if (both := sides(table(col), options, texts if null_text else None)) is not None:
        both.row(packet(data))
    decode = compile_text_decoder(table(col), options, texts)
    out: list[Any] = []
    decode(packet(data), 0, context(), out)
    return member_text(out[0][1], col.name)


def packet(*values: bytes | None) -> bytes:
    out = b""
    for value in values:
        if value is None:
            out += b"\xfb"
        elif len(value) < 251:
            out += bytes([len(value)]) + value
        else:
            out += b"\xfd" + len(value).to_bytes(3, "little") + value
    return out


def member_text(value: bytes, name: str) -> str:
    """Return the text of the last member of the after image as it was written."""
    text = value.decode()
    start = text.index(json.dumps(name, ensure_ascii=False) + ":", text.index('"after":')) + len(name) + 3
    return text[start : text.index('},"source":', start)]
