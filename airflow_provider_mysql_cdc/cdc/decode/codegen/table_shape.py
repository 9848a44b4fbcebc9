"""The code that tables of one shape share, and the keys that a writer owns.

The code that tables of one shape share: that of their columns and the functions generated from it.

A shape is everything that determines generated code but the texts around a payload, which contain the table's name.
Those replace marks in the compiled code, so that a thousand tables of a shape are compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import JSON, Dialect
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import (
    MAX_BITMAPS,
    ColumnCode,
    Emitter,
    NullBitmapFunctions,
    compiled,
    image_bodies,
    literal,
    object_body,
    run_code,
    run_function,
)
from airflow_provider_mysql_cdc.cdc.model.table import Column, Interned, interned


@dataclass(frozen=True, slots=True)
class OwnedKeys:
    """Decide by its key whether a writer produces a row, so that the other rows need not be decoded.

    Args:
        partition_count: The topic's partition count.
        own_partitions: Those of this writer.
        partitioner: Returns the partition of a record's key among so many.
    """

    partition_count: int
    own_partitions: frozenset[int]
    partitioner: Callable[[bytes | None, int], int]

    def owns(self, key: bytes | None) -> bool:
        """Return whether this writer produces the record with this key.

        Args:
            key: The key as the record has it, or None.
        """
        return self.partitioner(key, self.partition_count) in self.own_partitions


# Generated code holds byte text, in which no character is above U+00FF.
KEY_PREFIX, KEY_SUFFIX, VALUE_PREFIX = "\u0100", "\u0101", "\u0102"
_MAX_SHAPES, _MAX_RUNS = 256, 4 * MAX_BITMAPS


class TableShape:
    """Hold the code of one shape.

    Args:
        columns: The table's columns.
        keys: Indexes of the event key's columns in key order.
        wires: Wire types of the columns.
        options: Modes.
        null_text: Texts of defaults for NULL, by column name.
        dialect: How records are assembled.

    Raises:
        Declined: The dialect has no code for the columns.
    """

    def __init__(
        self,
        columns: tuple[Column, ...],
        keys: tuple[int, ...],
        wires: tuple[WireType, ...],
        options: DecoderOptions,
        null_text: tuple[tuple[str, str], ...],
        dialect: Dialect = JSON,
    ) -> None:
        self.columns = dialect.codes(columns, wires, options, dict(null_text), keys)
        self.size = (len(columns) + 7) >> 3
        self.extra_key_members = dialect.key_members(options)
        # (bytes, byte text, offset of the bitmap) -> offset after the image, key text, row text
        self.images = NullBitmapFunctions(self._make_image)
        # (bytes, byte text, offset of the bitmap) -> offset after the image, key text
        self.key_images = NullBitmapFunctions(self._make_key)
        self._keys, self._dialect = keys, dialect
        self._namespace: dict[str, Any] = dict(dialect.names)
        self._runs: dict[tuple[str, bool, bytes | None, bool], MarkedCode] = {}

    def run(
        self, start: str, bitmap: bytes | None, *, tombstone: bool, texts: Mapping[str, str], owned: OwnedKeys | None
    ) -> Any:
        """Return the function that reads rows with one image, for a table of this shape.

        Args:
            start: What the payload begins with.
            bitmap: NULL columns of the rows that it reads; None for any.
            tombstone: Whether a tombstone follows each record.
            texts: The texts that replace the marks: those around keys and before values.
            owned: Selects the rows whose records are produced; None for all.
        """
        cache_key = start, tombstone, bitmap, owned is not None
        marked = self._runs.get(cache_key)
        if marked is None:
            if len(self._runs) >= _MAX_RUNS:  # each table has at most VARIANTS of its own, but there may be many tables
                self._runs.clear()
            lines = self._run_lines(start, bitmap, tombstone=tombstone, owned=owned is not None)
            marked = self._runs[cache_key] = MarkedCode(run_code(compiled("\n".join(lines))))
        defaults = None if owned is None else (owned.owns,)
        return FunctionType(marked.with_texts(texts), self._namespace, None, defaults)

    def _body(
        self, bitmap: bytes | None, columns: tuple[ColumnCode, ...], *, keys_first: bool = False
    ) -> tuple[Emitter, str, str]:
        emitter = Emitter(self._namespace, keys_first=keys_first)
        if bitmap is None:
            emitter.line(f"nulls = int.from_bytes(b[p - {self.size}:p], 'little')")
        nulls = None if bitmap is None else int.from_bytes(bitmap, "little")
        bodies, value_bodies = image_bodies(emitter, columns, nulls)
        value = object_body(columns, value_bodies, self._dialect.image)
        key = object_body(columns, {i: bodies[i] for i in self._keys}, self._dialect.key, self.extra_key_members)
        return emitter, value, key if self._keys else ""

    def _make_image(self, bitmap: bytes | None) -> Any:
        body, value, key = self._body(bitmap, self.columns)
        lines = ["def run(b, t, p):", f" p += {self.size}", *(" " + x for x in body.lines)]
        code = compiled("\n".join([*lines, f" return p, f'{key}', f'{value}'"]))
        return run_function(code, self._namespace)

    def _make_key(self, bitmap: bytes | None) -> Any:
        body, _, key = self._body(bitmap, tuple(replace(code, in_value=False) for code in self.columns))
        lines = ["def run(b, t, p):", f" p += {self.size}", *(" " + x for x in body.lines), f" return p, f'{key}'"]
        return run_function(compiled("\n".join(lines)), self._namespace)

    def _run_lines(self, start: str, bitmap: bytes | None, *, tombstone: bool, owned: bool) -> list[str]:
        body, value, key = self._body(bitmap, self.columns, keys_first=owned)
        if self._keys:
            key = f"f'{literal(KEY_PREFIX)}{key}{literal(KEY_SUFFIX)}'.encode('latin-1')"
        prefix, size, same_bitmap = literal(VALUE_PREFIX + start), self.size, ""
        if bitmap is not None:
            same_bitmap = f" and b[p] == {bitmap[0]}" if size == 1 else f" and b[p:p + {size}] == {bitmap!r}"
        return [
            f"def run(b, t, p, end, m, x, row, append{', owns' * owned}):",
            f" while p < end{same_bitmap}:",
            f"  p += {size}",
            *("  " + line for line in body.lines[: body.key_line_count]),
            f"  k = {key or None}",
            *(("  if not owns(k):", "   row += 1", "   continue") if owned else ()),
            *("  " + line for line in body.lines[body.key_line_count :]),
            f"  append((k, f'{prefix}{value}{{m}}{self._dialect.row}{{x}}'.encode('latin-1'), row, 0, None, None))",
            *(("  append((k, None, row, 1, None, None))",) if tombstone else ()),
            "  row += 1",
            " return p, row",
        ]


class MarkedCode:
    """Hold the code of a function, and which of its constants have marks.

    Args:
        code: The code; what is nested in it has no marks.
    """

    def __init__(self, code: CodeType) -> None:
        self._code = code
        self._marked = [(i, c) for i, c in enumerate(code.co_consts) if isinstance(c, str) and not c.isascii()]

    def with_texts(self, texts: Mapping[str, str]) -> CodeType:
        """Return the code with texts in place of marks.

        Args:
            texts: By mark.
        """
        constants = list(self._code.co_consts)
        for i, constant in self._marked:
            constants[i] = _replace_marks(constant, texts)
        return self._code.replace(co_consts=tuple(constants))


def _replace_marks(text: str, texts: Mapping[str, str]) -> str:
    for mark, replacement in texts.items():
        text = text.replace(mark, replacement)
    return text


def fill_marks(code: CodeType, texts: Mapping[str, str]) -> CodeType:
    """Return code whose constants have texts in place of marks.

    Args:
        code: The code.
        texts: By mark.
    """

    def fill(constant: Any) -> Any:
        if isinstance(constant, CodeType):
            return fill_marks(constant, texts)
        return _replace_marks(constant, texts) if isinstance(constant, str) and not constant.isascii() else constant

    return code.replace(co_consts=tuple(map(fill, code.co_consts)))


@lru_cache(maxsize=_MAX_SHAPES)
def _shared_shape(columns: Interned[tuple[Column, ...]], *arguments: Any) -> TableShape:
    return TableShape(columns.value, *arguments)


def shared_table_shape(
    columns: tuple[Column, ...],
    keys: tuple[int, ...],
    wires: tuple[WireType, ...],
    options: DecoderOptions,
    envelope: EnvelopeText,
    dialect: Dialect = JSON,
) -> TableShape:
    """Return the shape of a table version; tables that are alike get the same.

    Args:
        columns: The table's columns.
        keys: Indexes of the event key's columns in key order.
        wires: Wire types of the columns.
        options: Modes.
        envelope: Constant texts.
        dialect: How records are assembled.
    """
    null_text = tuple(envelope.null_text.items()) if options.replace_null_with_default else ()
    untitled = replace(options, schema_titles=()) if options.schema_titles else options
    arguments = keys, wires, untitled, null_text, dialect
    try:
        return _shared_shape(interned(columns), *arguments)
    except TypeError:  # what a custom converter returned cannot be compared
        return TableShape(columns, *arguments)
