"""Encoders of rows: from the members of a row image to byte text.

A row image comes as ``decode`` writes it with ``row_options``: numbers, text, Base64 for bytes and unscaled decimals,
MySQL's own text for dates and times.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from struct import Struct
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_binary
from airflow_provider_mysql_cdc.cdc.avro.avro_payload import Encode
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitTs
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import TicdcModes, tidb_type

RowValues = Mapping[str, Any]
_FLOAT = Struct("<f")
NULL, PRESENT = "\x00", "\x02"
"""The branches of NULL and of other values in the union of a column that may be NULL."""


def row_options(options: DecoderOptions, modes: TicdcModes) -> DecoderOptions:
    """Return the options of decoders whose row images are encoded here.

    Args:
        options: Key, included columns and treatments; type modes are replaced.
        modes: How values are written.
    """
    return replace(
        options,
        decimal_mode=modes.decimal,
        bigint_unsigned_mode="long",
        binary_mode="bytes",
        field_names="none",
        replace_null_with_default=False,
        tombstones=False,
        flat=True,
    )


def columns_encoder(columns: Sequence[Column], modes: TicdcModes) -> Callable[[RowValues], str]:
    """Return the function that encodes these columns of a row: generated code, without a call for each column.

    The functions of the columns say what the code means; they take over when it fails, so that errors name the column.

    Args:
        columns: Key or value columns in the order of the schema.
        modes: How values are written.

    Raises:
        SchemaError: A type is not known.
    """
    encoders = [(column.name, column_encoder(column, modes)) for column in columns]
    lines, bodies, namespace = list[str](), list[str](), dict(_NAMES)
    for number, column in enumerate(columns):
        encode, value = _value_encoder(column, modes), f"v{number}"
        namespace[f"encode{number}"] = encode
        body = _INLINE_CODE.get(encode, f"encode{number}({{0}})").format(value)
        lines.append(f" {value} = row[{column.name!r}]")
        bodies.append(f"{{(NULL if {value} is None else PRESENT + {body})}}" if column.nullable else f"{{{body}}}")
    source = "\n".join(["def run(row):", *lines, f" return f'{''.join(bodies)}'"])
    exec(compile(source, "<ticdc encoder>", "exec"), namespace)  # names of columns are values in it
    compiled: Callable[[RowValues], str] = namespace["run"]

    def encode_row(row: RowValues) -> str:
        try:
            return compiled(row)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            return "".join(part(row[name]) for name, part in encoders)

    return encode_row


def extension_text(operation: str, ts: CommitTs) -> str:
    """Return the fields after the columns (AVRO-09 to AVRO-12).

    Args:
        operation: ``c`` for an insert or a row of a snapshot, ``u`` for an update.
        ts: The transaction's timestamp.
    """
    return avro_binary.text(operation) + commit_ts_text(ts)


def commit_ts_text(ts: CommitTs) -> str:
    """Return the last two of these fields.

    Args:
        ts: The transaction's timestamp.
    """
    return avro_binary.varint(ts.value) + avro_binary.varint(ts.physical_ms)


def column_encoder(column: Column, modes: TicdcModes) -> Encode:
    """Return the function that encodes a column's values, NULL among them.

    Args:
        column: The column.
        modes: How values are written.

    Raises:
        SchemaError: The type is not known.
    """
    encode = _value_encoder(column, modes)
    if not column.nullable:
        return _required(column.name, encode)
    return lambda value: NULL if value is None else PRESENT + encode(value)


def _required(name: str, encode: Encode) -> Encode:
    def required(value: Any) -> str:
        if value is None:
            raise ValueError(f"column {name} is NULL, and it is declared NOT NULL")
        return encode(value)

    return required


def _value_encoder(column: Column, modes: TicdcModes) -> Encode:
    type_encoder = _BY_FAMILY.get(column.family)
    if type_encoder is not None:
        return type_encoder
    kind = tidb_type(column, modes)
    if kind.name == "BIGINT UNSIGNED" and kind.avro_type == "string":
        return _unsigned_text
    return BY_AVRO_TYPE[kind.avro_type]


def _unsigned_text(value: int) -> str:
    """Return an unsigned 64-bit number, which comes as the signed one of the same bits, as a string."""
    return avro_binary.text(str(value + (1 << 64) if value < 0 else value))


def _bit(value: bool | str) -> str:
    """Return a BIT: big-endian without leading zero bytes, one byte at least; it comes little-endian."""
    data = bytes([value]) if isinstance(value, bool) else a2b_base64(value)[::-1]
    return avro_binary.data(data.lstrip(b"\0") or b"\0")


def _single(value: float) -> str:
    """Return a FLOAT as the double of the same value."""
    return avro_binary.double(_FLOAT.unpack(_FLOAT.pack(float(value)))[0])


def _vector(value: Sequence[float]) -> str:
    """Return a VECTOR as TiDB prints it: the shortest text of each 32-bit float."""
    return avro_binary.text("[" + ",".join(f"{number:.9g}" for number in value) + "]")


def _integer(value: int) -> str:
    return avro_binary.varint(value)


def _double(value: float) -> str:
    return avro_binary.double(float(value))


def _bytes(value: str) -> str:
    return avro_binary.data(a2b_base64(value))


_BY_FAMILY: dict[Family, Encode] = {Family.BIT: _bit, Family.FLOAT: _single, Family.VECTOR: _vector}
BY_AVRO_TYPE: dict[str, Encode] = {
    "int": _integer,
    "long": _integer,
    "double": _double,
    "string": avro_binary.text,
    "bytes": _bytes,
}
# The code of some of them.
_INLINE_CODE: Mapping[Encode, str] = {
    _integer: "(S[{0}] if -8192 <= {0} < 8192 else varint({0}))",
    _double: "double(float({0}))",
    _bytes: "data(a2b_base64({0}))",
    avro_binary.text: "(V[len({0})] + {0} if {0}.isascii() else text({0}))",
}
_NAMES: Mapping[str, Any] = {
    "V": avro_binary.VARINTS,
    "S": avro_binary.SMALL,
    "varint": avro_binary.varint,
    "text": avro_binary.text,
    "double": avro_binary.double,
    "data": avro_binary.data,
    "a2b_base64": a2b_base64,
    "NULL": NULL,
    "PRESENT": PRESENT,
}
