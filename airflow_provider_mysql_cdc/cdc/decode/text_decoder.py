"""Generate the function that turns one row of MySQL's text protocol into a record.

The connection must be utf8mb4 and its ``time_zone`` ``'+00:00'``; the columns must be those of ``select_list``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from types import CodeType
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.rows_header import lenenc
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Dialect, TextParts
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ObjectDelimiters, literal
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_dialect import JSON
from airflow_provider_mysql_cdc.cdc.decode.codegen.mask_functions import constant_text
from airflow_provider_mysql_cdc.cdc.decode.codegen.null_bitmap_functions import ROW_ERRORS
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, selected_columns, value_columns
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import KEY_PREFIX, KEY_SUFFIX, VALUE_PREFIX, fill_marks
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_renderers import TextRequest
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally
from airflow_provider_mysql_cdc.cdc.decode.native_text import choose_text_decoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import schema_wrapper
from airflow_provider_mysql_cdc.cdc.decode.row_functions import TextDecoder
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote_byte_text, to_byte_text
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.custom_column import CONVERTER_REMEDY, ConverterError
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

# (packet, offset of the row, context, records)
_FILE = "<text decoder>"
_NULL = 0xFB
_VALUE_SUFFIX = "\u0103"
_MAX_SHAPES = 256
KeyReader = Callable[[bytes], bytes]


def compile_text_decoder(
    table: Table,
    options: DecoderOptions,
    envelope: EnvelopeText,
    columns: tuple[Column, ...] | None = None,
    dialect: Dialect = JSON,
    prefixes: tuple[str, str] | None = None,
    fallback: TextDecoder | None = None,
    tally: Tally | None = None,
) -> TextDecoder:
    """Return the function that reads one row packet.

    It appends ``(key, value, row, leg, header)`` with op ``r`` (or ``read_op``) to the list it is given.

    Args:
        table: The table.
        options: Modes, key and included columns.
        envelope: Constant schema text.
        columns: The columns that the SELECT gives, in its order; None means those of ``select_list``.
        dialect: How records are put together.
        prefixes: What keys and values begin with; None for what ``envelope`` says.
        fallback: Reads rows that fail, or raises their errors; None to raise them here.
        tally: Counts what the native kernel decodes.

    Raises:
        SchemaError: A column's type is not known.
        Declined: The dialect has no code for the table.
    """
    selected = selected_columns(table, options) if columns is None else columns
    namespace: dict[str, Any] = {"lenenc": lenenc, "to_byte_text": to_byte_text, **dialect.names}
    body = _body(table, selected, options, envelope, namespace, dialect)
    wrappers = (*schema_wrapper(envelope.key_schema), *schema_wrapper(envelope.value_schema))
    if prefixes is not None:
        wrappers = (prefixes[0], "", prefixes[1], "")
    texts = dict(zip((KEY_PREFIX, KEY_SUFFIX, VALUE_PREFIX, _VALUE_SUFFIX), wrappers, strict=True))
    exec(fill_marks(_compile_source("\n".join(body)), texts), namespace)  # source generated here from the table
    run = namespace["run"]

    def decode(packet: bytes, pos: int, ctx: EventContext, out: list[Any]) -> None:
        data = packet if isinstance(packet, bytes) else bytes(packet)
        try:
            run(data, data.decode("latin-1"), pos, ctx, out.append)
        except ROW_ERRORS as error:
            if fallback is None:
                raise _failure(table, selected, error, line_columns, _row_location(data, pos, ctx)) from error
        else:
            return
        fallback(data, pos, ctx, out)

    def _row_location(data: bytes, pos: int, ctx: EventContext) -> str:
        identity = row_identity(data, pos, selected, keys)
        return f"{ctx.where}, table {table.id}" + (f", key {identity}" if identity else "")

    line_columns = _line_columns(body)
    keys = frozenset(column.name for column in key_columns(table, options))
    if dialect is not JSON or prefixes is not None:
        return decode
    return choose_text_decoder(decode, table, options, envelope, selected, tally)


@lru_cache(maxsize=_MAX_SHAPES)
def _compile_source(source: str) -> CodeType:
    """Return compiled source; that of tables of one shape is the same, with marks where their schemas stand."""
    return compile(source, _FILE, "exec")


def compile_key_reader(table: Table, options: DecoderOptions, columns: tuple[Column, ...]) -> KeyReader:
    """Return the function that reads the key of one row packet; of other columns it reads the lengths only.

    The key is the one that ``compile_text_decoder`` gives its records with these options and no schema text.

    Args:
        table: The table.
        options: Modes and key columns; there is one at least.
        columns: The columns that the SELECT gives, in its order.

    Raises:
        SchemaError: A key column's type is not known.
    """
    namespace: dict[str, Any] = {"lenenc": lenenc, "to_byte_text": to_byte_text, "behind": _value_end}
    keys = _key_positions(table, columns, options)
    body = ["def run(b, t, p):"]
    for index, column in enumerate(columns[: max(keys) + 1]):
        request = TextRequest(column, options, "null", _binder(namespace))
        skip_lines = [f" n = b[p]  # {index}", " if n < 251: p += n + 1", " else: p = behind(b, p)"]
        body += _column(index, column, JSON.text(index, request, True)) if index in keys else skip_lines
    body.append(f" return {_key(keys, columns, options, JSON)}")
    exec(compile("\n".join(body), _FILE, "exec"), namespace)  # source generated here from the table
    run, line_columns = namespace["run"], _line_columns(body)

    def read(packet: bytes) -> bytes:
        try:
            key: bytes = run(packet, packet.decode("latin-1"), 0)
        except ROW_ERRORS as error:
            raise _failure(table, columns, error, line_columns, f"table {table.id}") from error
        return key

    return read


def row_identity(packet: bytes, pos: int, columns: tuple[Column, ...], keys: frozenset[str]) -> str:
    """Return the key of a row as ``name=value, ...`` in MySQL's own text, as far as it can be read.

    Args:
        packet: A row of the text protocol.
        pos: Offset of the first value.
        columns: Its columns.
        keys: Names of the key columns.
    """
    parts: list[str] = []
    for column in columns:
        if pos >= len(packet) or packet[pos] > 254:
            break
        if packet[pos] == _NULL:
            pos += 1
            continue
        size, start = lenenc(packet, pos)
        pos = start + size
        if column.name in keys:
            parts.append(f"{column.name}={packet[start:pos].decode('utf-8', 'replace')}")
    return ", ".join(parts)


def _body(
    table: Table,
    selected: tuple[Column, ...],
    options: DecoderOptions,
    envelope: EnvelopeText,
    namespace: dict[str, Any],
    dialect: Dialect,
) -> list[str]:
    keys, bind = _key_positions(table, selected, options), _binder(namespace)
    lines = ["def run(b, t, p, ctx, append):"]
    masked = set()
    for index, column in enumerate(selected):
        null = "null"
        if options.replace_null_with_default:
            null = to_byte_text(envelope.null_text.get(column.name, "null"))
        parts = dialect.text(index, TextRequest(column, options, null, bind), index in keys)
        lines += _column(index, column, parts)
        if parts.change is not None:
            masked.add(column)
    bind("after_row", dialect.after_row(options))
    after = f"after_row(ctx, {options.read_op!r})"
    lines += [" row = ctx.first_row"]
    lines += [f" h = f'{literal(dialect.before_source('r'))}{{ctx.src_head}}{dialect.row}' + {after}"]
    if dialect.needs_byte_text:
        lines += [" if not h.isascii(): h = to_byte_text(h)"]
    lines += [" if p != len(b): raise ValueError('the row does not end where the packet ends')"]
    lines += [f" k = {_key(keys, selected, options, dialect, KEY_PREFIX, KEY_SUFFIX)}"]
    image = _image(value_columns(table, options), selected, masked, options, dialect)
    start = literal(VALUE_PREFIX + dialect.insert())
    lines += [f" append((k, f'{start}{image}{{h}}{literal(_VALUE_SUFFIX)}'.encode('latin-1'), row, 0, None))"]
    return lines


def _key_positions(table: Table, selected: tuple[Column, ...], options: DecoderOptions) -> list[int]:
    """Return where the key columns stand in a row, in key order."""
    return [selected.index(column) for column in key_columns(table, options)]


def _binder(namespace: dict[str, Any]) -> Callable[[str, Any], str]:
    def bind(hint: str, value: Any) -> str:
        namespace.setdefault(hint, value)
        return hint

    return bind


def _value_end(packet: bytes, pos: int) -> int:
    """Return the offset after a value."""
    if packet[pos] == _NULL:
        return pos + 1
    size, start = lenenc(packet, pos)
    return start + size


def _object(delimiters: ObjectDelimiters, columns: Iterable[Column], options: DecoderOptions, bodies: list[str]) -> str:
    """Return the f-string body of an object without what stands behind its members."""
    opening, comma, _ = map(literal, delimiters)
    labels = [""] * len(bodies)
    if comma:
        labels = [literal(quote_byte_text(field_name(c.name, options.field_names)) + ":") for c in columns]
    return opening + comma.join(map(str.__add__, labels, bodies))


def _image(
    columns: tuple[Column, ...],
    selected: tuple[Column, ...],
    masked: Collection[Column],
    options: DecoderOptions,
    dialect: Dialect,
) -> str:
    bodies = []
    for column in columns:
        constant = constant_text(options.treatment(column).change)
        if constant is None:
            bodies.append(f"{{{'c' if column in masked else 'v'}{selected.index(column)}}}")
        else:
            bodies.append(literal(dialect.constant(column, options, constant)))
    return _object(dialect.image, columns, options, bodies) + literal(dialect.image.closing)


def _key(
    keys: list[int],
    selected: tuple[Column, ...],
    options: DecoderOptions,
    dialect: Dialect,
    prefix: str = "",
    suffix: str = "",
) -> str:
    if not keys:
        return "None"
    body = _object(dialect.key, [selected[i] for i in keys], options, [f"{{v{i}}}" for i in keys])
    ending = literal(dialect.key_members(options) + dialect.key.closing + suffix)
    return f"f'{literal(prefix)}{body}{ending}'.encode('latin-1')"


def _column(index: int, column: Column, parts: TextParts) -> list[str]:
    value_lines = [
        "if n < 251: q = p + 1",
        "else: n, q = lenenc(b, p)",
        "p = q + n",
        "d = b[q:p]" if parts.code.as_bytes else "s = t[q:p]",
        *parts.code.lines,
        f"v{index} = {parts.result}",
    ]
    null_lines = [f"v{index} = {parts.null}"]
    if parts.change is not None:
        changed = f"c{index} = {parts.change}(v{index})"
        value_lines.append(changed)
        null_lines.append(changed if parts.change_null else f"c{index} = v{index}")
    lines = [f" n = b[p]  # {index}"]
    # A first byte of 251 is NULL; for a NOT NULL column lenenc refuses it.
    if not column.nullable:
        return lines + [" " + line for line in value_lines]
    lines += [" if n == 251:", "  p += 1", *("  " + line for line in null_lines), " else:"]
    return lines + ["  " + line for line in value_lines]


def _line_columns(body: list[str]) -> list[int | None]:
    """Return, for each line of the generated function, the index of the column it reads; None after the last."""
    column_index: int | None = None
    line_columns: list[int | None] = []
    for line in body:
        if line.startswith(" n = b[p]  # "):
            column_index = int(line.rpartition(" ")[2])
        elif line == " row = ctx.first_row":
            column_index = None
        line_columns.append(column_index)
    return line_columns


def _failure(
    table: Table, columns: tuple[Column, ...], error: Exception, line_columns: list[int | None], where: str
) -> ValueDecodeError:
    column_index, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            column_index = line_columns[trace.tb_lineno - 1]
        trace = trace.tb_next
    what = "A row" if column_index is None else f"A value of column {columns[column_index].name}"
    return ValueDecodeError(
        f"{what} of table {table.id} cannot be read",
        where=where,
        why=f"{type(error).__name__}: {error}",
        remedy=CONVERTER_REMEDY
        if isinstance(error, ConverterError)
        else (
            "compare the row with SELECT on the server; if the table was changed since its structure was read, "
            "take the snapshot again; else exclude the column (column.exclude.list)"
        ),
    )
