"""Generate the functions of row images that leave columns out, and of partial JSON updates.

There is one set of functions for each pattern of present columns (and, in partial updates, for each set of JSON columns
of which only changes are logged); what stands for an absent column is part of the generated code. ``unavailable`` has
the rules. Row events of complete images do not come here: ``compile`` has their functions.

Layout: the bitmap of NULL columns has a bit for each *present* column; the values of those that are not NULL follow.
Before the after image of a partial update stand the value options and, when they announce partial JSON, a bit for each
JSON column of the table. Source: MySQL source, ``rpl_record.cc``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import (
    ColumnCode,
    Emitter,
    image_bodies,
    literal,
    object_body,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.null_bitmap_functions import ROW_ERRORS, Variants, run_source
from airflow_provider_mysql_cdc.cdc.decode.codegen.row_salvage import Blame, Salvage, Shape, partial_bits, row_error
from airflow_provider_mysql_cdc.cdc.decode.codegen.unavailable import Unavailable, UnavailableError
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import escape_utf8
from airflow_provider_mysql_cdc.cdc.decode.values.json_diff import changed_text
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.model.custom_column import REMEDY, ConverterError
from airflow_provider_mysql_cdc.cdc.model.table import Table

Record = tuple[bytes | None, bytes | None, int, int, tuple[str, bytes] | None]
# (bytes, byte text, offset of the bitmap, texts and documents of the before image)
#   -> offset after the image, key text, row text, texts and documents that the after image may need
Image = Callable[[bytes, str, int, Any], tuple[int, str, str, Any]]

ABSENT_WHY = "the row image leaves the column out (binlog_row_image is not FULL), and its type cannot say so"
_REMEDY_ABSENT = (
    "SET PERSIST binlog_row_image = 'FULL' and reconnect the writing sessions, or exclude the column, or let null "
    "stand for it (unavailable.value.as.null); the table's rows can be read again with a snapshot"
)
_REMEDY_ROW = (
    "compare the row with SELECT on the server; if the table's structure in the schema history is not what it was at "
    "this position, rebuild the history with snapshot.mode=recovery; else exclude the column (column.exclude.list)"
)


@dataclass(frozen=True, slots=True)
class Frame:
    """Hold what the functions of all patterns of a table version have in common.

    Args:
        table: The table.
        columns: Code of its columns.
        keys: Indexes of the key columns in key order.
        key_more: Members behind them in every key.
        absent: What stands for each column when it is absent.
        tombstones: Whether a tombstone follows a delete.
        key_wrap: Text before and after a key.
        value_wrap: Text before and after a payload.
        around: Function of context and operation that returns the text around the row number.
        key_change: Adds the records of an UPDATE that changes the key.
    """

    table: Table
    columns: tuple[ColumnCode, ...]
    keys: tuple[int, ...]
    key_more: str
    absent: tuple[Unavailable, ...]
    tombstones: bool
    key_wrap: tuple[str, str]
    value_wrap: tuple[str, str]
    around: Callable[[EventContext, str], tuple[str, str]]
    key_change: Callable[..., None]

    def documents(self) -> tuple[int, ...]:
        """Return the indexes of the JSON columns."""
        return tuple(i for i, column in enumerate(self.table.columns) if column.type_name == "JSON")


class Plan(NamedTuple):
    """Say how one kind of image becomes a row object.

    Args:
        present: Indexes of the columns in the image.
        shown: F-string bodies of absent columns in the value; None for one that cannot be told.
        key: F-string bodies of absent key columns; None likewise.
        whole: Whether the row object is null as a whole when a column cannot be told (a before image).
        keep: Indexes of the columns whose texts are handed on to the after image.
        take: Indexes of those that were handed on.
        documents: Indexes of JSON columns whose bytes are handed on.
    """

    present: tuple[int, ...]
    shown: dict[int, str | None]
    key: dict[int, str | None]
    whole: bool = False
    keep: tuple[int, ...] = ()
    take: tuple[int, ...] = ()
    documents: tuple[int, ...] = ()


def _text(text: str | None) -> str | None:
    return None if text is None else literal(text)


def _stored(code: ColumnCode, absent: Unavailable) -> str | None:
    if absent.stored is None:
        # What the server stored is NULL, perhaps, which the converter cannot convert.
        return absent.after if code.refuse_null is None else None
    plain_null = code.convert is None and absent.stored == code.null
    return absent.stored if code.change is None or plain_null else code.change(absent.stored)


def _plans(frame: Frame, shape: Shape, write: bool) -> tuple[Plan, ...]:
    """Return the plan of each image of a row."""
    columns, absent = frame.columns, frame.absent
    missing = [[i for i in range(len(columns)) if i not in present] for present in shape.images]

    def shown(indexes: list[int], text: Callable[[int], str | None]) -> dict[int, str | None]:
        return {
            i: text(i) if columns[i].constant is None else literal(columns[i].constant or "")
            for i in indexes
            if columns[i].in_value
        }

    nothing: dict[int, str | None] = {i: None for i in frame.keys if i in missing[0]}
    if write:
        known = {i: _text(absent[i].stored) for i in frame.keys if i in missing[0]}
        return (Plan(shape.images[0], shown(missing[0], lambda i: _text(_stored(columns[i], absent[i]))), known),)
    old = shown(missing[0], lambda i: _text(absent[i].before))
    if len(shape.images) == 1:
        return (Plan(shape.images[0], old, nothing, whole=True),)
    take = tuple(i for i in missing[1] if i in shape.images[0] and (columns[i].in_value or columns[i].in_key))
    new = shown(missing[1], lambda i: f"{{old_{i}}}" if i in take else _text(absent[i].after))
    key = {i: f"{{key_{i}}}" if i in take else None for i in frame.keys if i in missing[1]}
    documents = frame.documents() if shape.partial else ()
    return (
        Plan(shape.images[0], old, nothing, whole=True, keep=take, documents=documents),
        Plan(shape.images[1], new, key, take=take, documents=documents),
    )


class ImageCode:
    """Make the functions of one kind of image.

    Args:
        frame: The table.
        plan: The image.
        changed: JSON columns of which the image holds changes only.
    """

    def __init__(self, frame: Frame, plan: Plan, changed: frozenset[int] = frozenset()) -> None:
        self._frame, self._plan = frame, plan
        self._namespace: dict[str, Any] = {"unavailable": UnavailableError}
        self.size = (len(plan.present) + 7) >> 3
        self._columns = tuple(self._column(i, i in changed) for i in plan.present)
        self.variants: Variants = Variants(self._make)

    def _column(self, index: int, changed: bool) -> ColumnCode:
        code, documents = self._frame.columns[index], self._plan.documents
        if index not in documents:
            return code
        render, at = code.render, documents.index(index)
        if changed:
            hint, change = f"changed_{index}", partial(_changed, code.name)

            def apply(emitter: Emitter, names: list[str]) -> str:
                emitter.line(f"{names[0]} = {emitter.bind(hint, change)}(documents[{at}], {names[0]})")
                return f'"{{{names[0]}}}"'

            return replace(code, render=apply)
        if not self._plan.whole:
            return code

        def remember(emitter: Emitter, names: list[str]) -> str:
            emitter.line(f"document_{index} = {names[0]}")
            return render(emitter, names)

        return replace(code, render=remember)

    def _make(self, bitmap: bytes | None) -> Image:
        plan, frame = self._plan, self._frame
        emitter = Emitter(self._namespace)
        if not plan.whole and (plan.take or plan.documents):
            emitter.line("texts, documents = old")
        handed = self._handed(plan.take)
        if handed:
            emitter.line(f"{', '.join(handed)}, = texts")
        if plan.whole:
            for i in plan.documents:
                emitter.line(f"document_{i} = None")
        emitter.line(f"p += {self.size}")
        if bitmap is None:
            emitter.line(f"nulls = int.from_bytes(b[p - {self.size}:p], 'little')")
        nulls = None if bitmap is None else int.from_bytes(bitmap, "little")
        bodies, shown = image_bodies(emitter, self._columns, nulls)
        in_key = {i: bodies.get(n) for n, i in enumerate(plan.present)} | plan.key
        in_value = {i: shown.get(n) for n, i in enumerate(plan.present) if n in shown} | plan.shown
        value = self._value(emitter, in_value)
        key = ""
        if frame.keys:
            told = {i: self._told(emitter, i, in_key[i]) for i in frame.keys}
            key = object_body(frame.columns, told, more=frame.key_more)
        texts = [f"f'{in_value[i]}'" if name[0] == "o" else f"f'{in_key[i]}'" for name, i in self._named(plan.keep)]
        kept = f"({', '.join(texts)}{',' if texts else ''})"
        held = "".join(f"document_{i}, " for i in plan.documents) if plan.whole else ""
        emitter.line(f"return p, f'{key}', f'{value}', ({kept}, ({held}))")
        made: Image = run_source(["def run(b, t, p, old):", *(" " + x for x in emitter.lines)], self._namespace)
        return made

    def _named(self, indexes: tuple[int, ...]) -> list[tuple[str, int]]:
        """Return the names of handed-on texts with their columns: ``old_N`` in the value, ``key_N`` in the key."""
        columns = self._frame.columns
        return [(f"old_{i}", i) for i in indexes if columns[i].in_value] + [
            (f"key_{i}", i) for i in indexes if columns[i].in_key
        ]

    def _handed(self, indexes: tuple[int, ...]) -> list[str]:
        return [name for name, _ in self._named(indexes)]

    def _value(self, emitter: Emitter, bodies: Mapping[int, str | None]) -> str:
        if self._plan.whole and None in bodies.values():
            return "null"
        return object_body(self._frame.columns, {i: self._told(emitter, i, bodies[i]) for i in sorted(bodies)})

    def _told(self, emitter: Emitter, index: int, body: str | None) -> str:
        if body is None:
            emitter.line(f"raise unavailable({self._frame.columns[index].name!r}, {ABSENT_WHY!r})")
            return ""
        return body


def _changed(column: str, before: bytes | None, changes: bytes) -> str:
    try:
        return escape_utf8(changed_text(before, changes))
    except ROW_ERRORS as error:
        raise UnavailableError(column, str(error)) from error


class PatternRows:
    """Decode the row events of one pattern of present columns.

    Args:
        frame: The table.
        shape: The pattern.
        write: Whether the rows are inserts.
    """

    def __init__(self, frame: Frame, shape: Shape, write: bool) -> None:
        self._frame, self._shape = frame, shape
        self._plans = _plans(frame, shape, write)
        self._first = ImageCode(frame, self._plans[0])
        self._second: dict[frozenset[int], ImageCode] = {}
        self._documents = frame.documents()
        self._salvage = Salvage(frame.table, frame.columns, frame.keys, frame.key_more)

    def single(self, op: str, data: bytes, ctx: EventContext, append: Callable[[Record], None]) -> int:
        """Add the records of inserts or deletes; return the number of rows.

        Args:
            op: ``c`` or ``d``.
            data: Bytes of the rows.
            ctx: Text around the rows.
            append: Takes a record.

        Raises:
            ValueDecodeError: A value cannot be decoded or told.
        """
        frame, text = self._frame, data.decode("latin-1")
        head = frame.value_wrap[0] + ('{"before":null,"after":' if op == "c" else '{"before":')
        middle, tail = frame.around(ctx, op)
        images, size, tombstone = self._first.variants, self._first.size, op == "d" and frame.tombstones
        pos, row = 0, ctx.first_row
        # The one row of defaults of an INSERT that names no column has no bytes (``header.check_rows``).
        defaults = not data and not self._shape.images[0]
        while pos < len(data) or defaults:
            start, defaults = pos, False
            try:
                pos, key, image, _ = images[data[pos : pos + size]](data, text, pos, None)
                self._require_end(start, pos, data)
            except ROW_ERRORS as error:
                raise self._failure(error, data, start, row, ctx) from error
            name = self._key(key)
            append((name, f"{head}{image}{middle}{row}{tail}".encode("latin-1"), row, 0, None))
            if tombstone:
                append((name, None, row, 1, None))
            row += 1
        return row - ctx.first_row

    def update(self, data: bytes, ctx: EventContext, append: Callable[[Record], None]) -> int:
        """Add the records of updates; arguments, errors and result as for ``single``."""
        frame, text = self._frame, data.decode("latin-1")
        head = frame.value_wrap[0] + '{"before":'
        middle, tail = frame.around(ctx, "u")
        first = self._first
        pos, row = 0, ctx.first_row
        while pos < len(data):
            start = pos
            try:
                pos, old_key, old, held = first.variants[data[pos : pos + first.size]](data, text, pos, None)
                second, pos = self._after(data, pos)
                pos, new_key, new, _ = second.variants[data[pos : pos + second.size]](data, text, pos, held)
                self._require_end(start, pos, data)
            except ROW_ERRORS as error:
                raise self._failure(error, data, start, row, ctx) from error
            if old_key == new_key:
                value = f'{head}{old},"after":{new}{middle}{row}{tail}'
                append((self._key(new_key), value.encode("latin-1"), row, 0, None))
            else:
                frame.key_change((old_key, old), (new_key, new), row, ctx, append)
            row += 1
        return row - ctx.first_row

    def _after(self, data: bytes, pos: int) -> tuple[ImageCode, int]:
        """Return the code of the after image at ``pos``, and where the image begins."""
        changed: frozenset[int] = frozenset()
        if self._shape.partial:
            changed, pos = partial_bits(data, pos, self._documents)
        second = self._second.get(changed)
        if second is None:
            if len(self._second) >= 256:
                self._second.clear()
            second = self._second[changed] = ImageCode(self._frame, self._plans[1], changed)
        return second, pos

    def _require_end(self, start: int, pos: int, data: bytes) -> None:
        if pos == start and data:
            raise ValueError("the rows have no bytes")
        if pos > len(data):
            raise ValueError("the rows do not end where the event ends")

    def _key(self, key: str) -> bytes | None:
        before, after = self._frame.key_wrap
        return f"{before}{key}{after}".encode("latin-1") if self._frame.keys else None

    def _failure(self, error: Exception, data: bytes, start: int, row: int, ctx: EventContext) -> CdcError:
        if isinstance(error, CdcError):
            return error
        key, failed = None, []
        try:
            found = self._salvage.row(data, start, self._shape)
            key, failed = found.key, found.failed
        except ROW_ERRORS:
            pass
        if isinstance(error, UnavailableError):
            blame = Blame(error.column, str(error), _REMEDY_ABSENT)
        elif isinstance(error, ConverterError):
            blame = Blame(error.column, f"{type(error).__name__}: {error}", REMEDY)
        else:
            column, why = failed[0] if failed else ("", f"{type(error).__name__}: {error}")
            blame = Blame(column, why, _REMEDY_ROW)
        return row_error(self._frame.table, blame, row, key, ctx)
