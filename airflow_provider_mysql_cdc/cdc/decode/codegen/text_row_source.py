"""Source text of the functions that read one row of MySQL's text protocol, column by column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import CodeType
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.rows_header import lenenc
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import JSON, Dialect, TextParts, schema_wrapper
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ObjectDelimiters, literal
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import constant_text, key_columns, value_columns
from airflow_provider_mysql_cdc.cdc.decode.codegen.table_shape import KEY_PREFIX, KEY_SUFFIX, VALUE_PREFIX
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_renderers import TextRequest
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote_byte_text, to_byte_text
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

GENERATED_FILE = "<text decoder>"
"""File name of the generated code in tracebacks."""
VALUE_SUFFIX = "\u0103"
_NULL = 0xFB
_MAX_SHAPES = 256
_END_OF_COLUMNS = " row = ctx.first_row"


@dataclass(frozen=True)
class TextRowPlan:
    """Say how the rows of a SELECT become records.

    Args:
        table: The table.
        options: Modes, key and included columns.
        envelope: Constant schema text.
        columns: The columns that the SELECT returns, in its order.
        dialect: How records are assembled.
        prefixes: Text that keys and values begin with; None for the schemas of ``envelope``.
    """

    table: Table
    options: DecoderOptions
    envelope: EnvelopeText
    columns: tuple[Column, ...]
    dialect: Dialect = JSON
    prefixes: tuple[str, str] | None = None

    @cached_property
    def key(self) -> tuple[Column, ...]:
        """The key columns in key order."""
        return key_columns(self.table, self.options)

    @cached_property
    def value(self) -> tuple[Column, ...]:
        """The columns of the value in table order."""
        return value_columns(self.table, self.options)

    @cached_property
    def wrappers(self) -> tuple[str, str, str, str]:
        """The text before and after keys, and before and after values, byte text."""
        if self.prefixes is not None:
            return self.prefixes[0], "", self.prefixes[1], ""
        return (*schema_wrapper(self.envelope.key_schema), *schema_wrapper(self.envelope.value_schema))

    def null_text(self, column: Column) -> str:
        """Return the JSON text of NULL in a column, byte text.

        Args:
            column: The column.
        """
        if not self.options.replace_null_with_default:
            return "null"
        return to_byte_text(self.envelope.null_text.get(column.name, "null"))


@dataclass(frozen=True)
class TextRowSource:
    """Generate the function that reads one row.

    Args:
        plan: How rows become records.

    Attributes:
        namespace: The objects that the generated code names.
    """

    plan: TextRowPlan
    namespace: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        names = {"lenenc": lenenc, "to_byte_text": to_byte_text, "value_end": value_end, **self.plan.dialect.names}
        object.__setattr__(self, "namespace", names)

    def record_lines(self) -> list[str]:
        """Return the lines of ``run(packet, byte text, offset, context, append)``, which appends the row's record.

        Raises:
            SchemaError: A column's type is not known.
            Declined: The dialect has no code for the table.
        """
        plan, dialect = self.plan, self.plan.dialect
        lines, masked = ["def run(b, t, p, ctx, append):"], set()
        for index, column in enumerate(plan.columns):
            request = TextRequest(column, plan.options, plan.null_text(column), self._bind)
            parts = dialect.text(index, request, column in plan.key)
            lines += _column_lines(index, column, parts)
            if parts.change is not None:
                masked.add(column)
        self._bind("after_row", dialect.after_row(plan.options))
        after = f"after_row(ctx, {plan.options.read_op!r})"
        lines += [_END_OF_COLUMNS]
        lines += [f" h = f'{literal(dialect.before_source('r'))}{{ctx.src_head}}{dialect.row}' + {after}"]
        if dialect.needs_byte_text:
            lines += [" if not h.isascii(): h = to_byte_text(h)"]
        lines += [" if p != len(b): raise ValueError('the row does not end where the packet ends')"]
        lines += [f" k = {self._key(KEY_PREFIX, KEY_SUFFIX)}"]
        start = literal(VALUE_PREFIX + dialect.insert())
        value = f"{start}{self._image(masked)}{{h}}{literal(VALUE_SUFFIX)}"
        return [*lines, f" append((k, f'{value}'.encode('latin-1'), row, 0, None, None))"]

    def key_lines(self) -> list[str]:
        """Return the lines of ``run(packet, byte text, offset)``, which returns the row's key.

        Of columns outside of the key it reads the lengths only, and of those after the last key column nothing.

        Raises:
            SchemaError: A key column's type is not known.
        """
        plan, lines = self.plan, ["def run(b, t, p):"]
        last = max(map(plan.columns.index, plan.key))
        for index, column in enumerate(plan.columns[: last + 1]):
            if column in plan.key:
                request = TextRequest(column, plan.options, "null", self._bind)
                lines += _column_lines(index, column, plan.dialect.text(index, request, True))
            else:
                lines += [f" n = b[p]  # {index}", " if n < 251: p += n + 1", " else: p = value_end(b, p)"]
        return [*lines, f" return {self._key()}"]

    def _bind(self, hint: str, value: Any) -> str:
        self.namespace.setdefault(hint, value)
        return hint

    def _object(self, delimiters: ObjectDelimiters, columns: Iterable[Column], bodies: list[str]) -> str:
        """Return the f-string body of an object without the text that ends it."""
        opening, comma, _ = map(literal, delimiters)
        labels = [""] * len(bodies)
        if comma:
            names = (field_name(column.name, self.plan.options.field_names) for column in columns)
            labels = [literal(quote_byte_text(name) + ":") for name in names]
        return opening + comma.join(map(str.__add__, labels, bodies))

    def _image(self, masked: set[Column]) -> str:
        plan, bodies = self.plan, []
        for column in plan.value:
            constant = constant_text(plan.options.treatment(column).change)
            if constant is None:
                bodies.append(f"{{{'c' if column in masked else 'v'}{plan.columns.index(column)}}}")
            else:
                bodies.append(literal(plan.dialect.constant(column, plan.options, constant)))
        image = plan.dialect.image
        return self._object(image, plan.value, bodies) + literal(image.closing)

    def _key(self, prefix: str = "", suffix: str = "") -> str:
        plan, dialect = self.plan, self.plan.dialect
        if not plan.key:
            return "None"
        body = self._object(dialect.key, plan.key, [f"{{v{plan.columns.index(column)}}}" for column in plan.key])
        ending = literal(dialect.key_members(plan.options) + dialect.key.closing + suffix)
        return f"f'{literal(prefix)}{body}{ending}'.encode('latin-1')"


def value_end(packet: bytes, pos: int) -> int:
    """Return the offset after a value.

    Args:
        packet: A row.
        pos: Offset of the value.
    """
    if packet[pos] == _NULL:
        return pos + 1
    size, start = lenenc(packet, pos)
    return start + size


def _column_lines(index: int, column: Column, parts: TextParts) -> list[str]:
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


def line_columns(lines: list[str]) -> list[int | None]:
    """Return, for each line of a generated function, the index of the column it reads; None after the last.

    Args:
        lines: From ``TextRowSource``.
    """
    column_index: int | None = None
    indexes: list[int | None] = []
    for line in lines:
        if line.startswith(" n = b[p]  # "):
            column_index = int(line.rpartition(" ")[2])
        elif line == _END_OF_COLUMNS:
            column_index = None
        indexes.append(column_index)
    return indexes


@lru_cache(maxsize=_MAX_SHAPES)
def compile_source(source: str) -> CodeType:
    """Return compiled source; tables of one shape have the same, with marks in place of their schemas.

    Args:
        source: The lines of a function.
    """
    return compile(source, GENERATED_FILE, "exec")
