"""Generate the functions of row images that leave columns out, and of partial JSON updates.

There is one set of functions for each pattern of present columns (and, in partial updates, for each set of JSON columns
of which only changes are logged); the text of an absent column is part of the generated code. ``unavailable`` has
the rules. ``table_shape`` has the functions for complete images.

Layout: the bitmap of NULL columns has a bit for each *present* column; the values of those that are not NULL follow.
The after image of a partial update is preceded by the value options and, when they announce partial JSON, by a bit for
each JSON column of the table. Source: MySQL source, ``rpl_record.cc``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import (
    ROW_ERRORS,
    ColumnCode,
    Emitter,
    NullBitmapFunctions,
    image_bodies,
    literal,
    object_body,
    run_source,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.row_salvage import (
    PartialRowDecoder,
    RowFailure,
    RowLayout,
    partial_json_columns,
    row_error,
)
from airflow_provider_mysql_cdc.cdc.decode.codegen.unavailable import UNWRITABLE, Unavailable, UnavailableError
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import escape_utf8
from airflow_provider_mysql_cdc.cdc.decode.values.json_diff import patched_text
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.model.column_rule import CONVERTER_REMEDY, ConverterError
from airflow_provider_mysql_cdc.cdc.model.records import CHANGE, TOMBSTONE, RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table

# (bytes, byte text, offset of the bitmap, texts and documents of the before image)
#   -> offset after the image, key text, row text, texts and documents that the after image may need
DecodeImage = Callable[[bytes, str, int, Any], tuple[int, str, str, Any]]

ABSENT_WHY = (
    "the row image leaves the column out (binlog_row_image is not FULL), and its type cannot represent an unknown value"
)
_REMEDY_ABSENT = (
    "SET PERSIST binlog_row_image = 'FULL' and reconnect the writing sessions, or exclude the column, or write null in "
    "its place (unavailable.value.as.null); a snapshot can read the table's rows again"
)
_REMEDY_ROW = (
    "compare the row with SELECT on the server; if the table had another structure at this position than in the schema "
    "history, rebuild the history with snapshot.mode=recovery; otherwise exclude the column (column.exclude.list)"
)


@dataclass(frozen=True, slots=True)
class ImageContext:
    """Hold what the functions of all patterns of a table version share.

    Args:
        table: The table.
        columns: Code of its columns.
        keys: Indexes of the key columns in key order.
        extra_key_members: Members after them in every key.
        absent: The text of each column when it is absent.
        tombstones: Whether a tombstone follows a delete.
        key_wrapper: Text before and after a key.
        value_wrapper: Text before and after a payload.
        row_texts: Function of context and operation that returns the text around the row number.
        key_change: Adds the records of an UPDATE that changes the key.
    """

    table: Table
    columns: tuple[ColumnCode, ...]
    keys: tuple[int, ...]
    extra_key_members: str
    absent: tuple[Unavailable, ...]
    tombstones: bool
    key_wrapper: tuple[str, str]
    value_wrapper: tuple[str, str]
    row_texts: Callable[[EventContext, str], tuple[str, str]]
    key_change: Callable[..., None]

    def json_columns(self) -> tuple[int, ...]:
        """Return the indexes of the JSON columns."""
        return tuple(i for i, column in enumerate(self.table.columns) if column.type_name == "JSON")


class ImagePlan(NamedTuple):
    """Say how one kind of image becomes a row object.

    Args:
        present: Indexes of the columns in the image.
        absent_values: F-string bodies of absent columns in the value; None for one whose value is unknown.
        absent_keys: F-string bodies of absent key columns; None likewise.
        is_before: Whether the row object is null as a whole when a column's value is unknown (a before image).
        saved: Indexes of the columns whose texts the after image may reuse.
        reused: Indexes of those that it reuses.
        json_columns: Indexes of JSON columns whose bytes the after image may reuse.
    """

    present: tuple[int, ...]
    absent_values: dict[int, str | None]
    absent_keys: dict[int, str | None]
    is_before: bool = False
    saved: tuple[int, ...] = ()
    reused: tuple[int, ...] = ()
    json_columns: tuple[int, ...] = ()


def _text(text: str | None) -> str | None:
    return None if text is None else literal(text)


def _stored_text(code: ColumnCode, absent: Unavailable) -> str | None:
    if absent.stored is None:
        # What the server stored is NULL, perhaps, which the converter cannot convert.
        return absent.after if code.refuse_null is None else None
    if absent.stored == UNWRITABLE:
        return None
    plain_null = code.convert is None and absent.stored == code.null
    return absent.stored if code.change is None or plain_null else code.change(absent.stored)


def _image_plans(context: ImageContext, layout: RowLayout, write: bool) -> tuple[ImagePlan, ...]:
    """Return the plan of each image of a row."""
    columns, absent = context.columns, context.absent
    absent_columns = [[i for i in range(len(columns)) if i not in present] for present in layout.images]

    def absent_values(indexes: list[int], text: Callable[[int], str | None]) -> dict[int, str | None]:
        return {
            i: text(i) if columns[i].constant is None else literal(columns[i].constant or "")
            for i in indexes
            if columns[i].in_value
        }

    unknown_keys: dict[int, str | None] = {i: None for i in context.keys if i in absent_columns[0]}
    if write:
        stored_keys = {i: _text(absent[i].stored or None) for i in context.keys if i in absent_columns[0]}
        return (
            ImagePlan(
                layout.images[0],
                absent_values(absent_columns[0], lambda i: _text(_stored_text(columns[i], absent[i]))),
                stored_keys,
            ),
        )
    old = absent_values(absent_columns[0], lambda i: _text(absent[i].before))
    if len(layout.images) == 1:
        return (ImagePlan(layout.images[0], old, unknown_keys, is_before=True),)
    reused = tuple(i for i in absent_columns[1] if i in layout.images[0] and (columns[i].in_value or columns[i].in_key))
    new = absent_values(absent_columns[1], lambda i: f"{{old_{i}}}" if i in reused else _text(absent[i].after))
    key = {i: f"{{key_{i}}}" if i in reused else None for i in context.keys if i in absent_columns[1]}
    json_columns = context.json_columns() if layout.partial else ()
    return (
        ImagePlan(layout.images[0], old, unknown_keys, is_before=True, saved=reused, json_columns=json_columns),
        ImagePlan(layout.images[1], new, key, reused=reused, json_columns=json_columns),
    )


class ImageCode:
    """Make the functions of one kind of image.

    Args:
        context: The table.
        plan: The image.
        json_changes: JSON columns of which the image holds changes only.
    """

    def __init__(self, context: ImageContext, plan: ImagePlan, json_changes: frozenset[int] = frozenset()) -> None:
        self._context, self._plan = context, plan
        self._namespace: dict[str, Any] = {"unavailable": UnavailableError}
        self.size = (len(plan.present) + 7) >> 3
        self._columns = tuple(self._column(i, i in json_changes) for i in plan.present)
        self.functions: NullBitmapFunctions = NullBitmapFunctions(self._make)

    def _column(self, index: int, changed: bool) -> ColumnCode:
        code, json_columns = self._context.columns[index], self._plan.json_columns
        if index not in json_columns:
            return code
        render, at = code.render, json_columns.index(index)
        if changed:
            hint, change = f"changed_{index}", partial(_apply_json_diff, code.name)

            def apply(emitter: Emitter, names: list[str]) -> str:
                emitter.line(f"{names[0]} = {emitter.bind(hint, change)}(documents[{at}], {names[0]})")
                return f'"{{{names[0]}}}"'

            return replace(code, render=apply)
        if not self._plan.is_before:
            return code

        def remember(emitter: Emitter, names: list[str]) -> str:
            emitter.line(f"document_{index} = {names[0]}")
            return render(emitter, names)

        return replace(code, render=remember)

    def _make(self, bitmap: bytes | None) -> DecodeImage:
        plan, context = self._plan, self._context
        emitter = Emitter(self._namespace)
        if not plan.is_before and (plan.reused or plan.json_columns):
            emitter.line("texts, documents = old")
        reused = self._saved_names(plan.reused)
        if reused:
            emitter.line(f"{', '.join(reused)}, = texts")
        if plan.is_before:
            for i in plan.json_columns:
                emitter.line(f"document_{i} = None")
        emitter.line(f"p += {self.size}")
        if bitmap is None:
            emitter.line(f"nulls = int.from_bytes(b[p - {self.size}:p], 'little')")
        nulls = None if bitmap is None else int.from_bytes(bitmap, "little")
        bodies, value_bodies = image_bodies(emitter, self._columns, nulls)
        in_key = {i: bodies.get(n) for n, i in enumerate(plan.present)} | plan.absent_keys
        in_value = {
            i: value_bodies.get(n) for n, i in enumerate(plan.present) if n in value_bodies
        } | plan.absent_values
        value = self._value(emitter, in_value)
        key = ""
        if context.keys:
            key_bodies = {i: self._body_or_raise(emitter, i, in_key[i]) for i in context.keys}
            key = object_body(context.columns, key_bodies, extra_members=context.extra_key_members)
        texts = [
            f"f'{in_value[i]}'" if name[0] == "o" else f"f'{in_key[i]}'" for name, i in self._saved_columns(plan.saved)
        ]
        saved_texts = f"({', '.join(texts)}{',' if texts else ''})"
        documents = "".join(f"document_{i}, " for i in plan.json_columns) if plan.is_before else ""
        emitter.line(f"return p, f'{key}', f'{value}', ({saved_texts}, ({documents}))")
        decode_image: DecodeImage = run_source(
            ["def run(b, t, p, old):", *(" " + x for x in emitter.lines)], self._namespace
        )
        return decode_image

    def _saved_columns(self, indexes: tuple[int, ...]) -> list[tuple[str, int]]:
        """Return the names of reused texts with their columns: ``old_N`` in the value, ``key_N`` in the key."""
        columns = self._context.columns
        return [(f"old_{i}", i) for i in indexes if columns[i].in_value] + [
            (f"key_{i}", i) for i in indexes if columns[i].in_key
        ]

    def _saved_names(self, indexes: tuple[int, ...]) -> list[str]:
        return [name for name, _ in self._saved_columns(indexes)]

    def _value(self, emitter: Emitter, bodies: Mapping[int, str | None]) -> str:
        if self._plan.is_before and None in bodies.values():
            return "null"
        return object_body(
            self._context.columns, {i: self._body_or_raise(emitter, i, bodies[i]) for i in sorted(bodies)}
        )

    def _body_or_raise(self, emitter: Emitter, index: int, body: str | None) -> str:
        if body is None:
            emitter.line(f"raise unavailable({self._context.columns[index].name!r}, {ABSENT_WHY!r})")
            return ""
        return body


def _apply_json_diff(column: str, before: bytes | None, changes: bytes) -> str:
    try:
        return escape_utf8(patched_text(before, changes))
    except ROW_ERRORS as error:
        raise UnavailableError(column, str(error)) from error


class RowImageDecoder:
    """Decode the row events of one pattern of present columns.

    Args:
        context: The table.
        layout: The pattern.
        write: Whether the rows are inserts.
    """

    def __init__(self, context: ImageContext, layout: RowLayout, write: bool) -> None:
        self._context, self._layout = context, layout
        self._plans = _image_plans(context, layout, write)
        self._first_image = ImageCode(context, self._plans[0])
        self._second_images: dict[frozenset[int], ImageCode] = {}
        self._json_columns = context.json_columns()
        self._partial_decoder = PartialRowDecoder(
            context.table, context.columns, context.keys, context.extra_key_members
        )

    def write_or_delete(self, op: str, data: bytes, ctx: EventContext, append: Callable[[RowRecord], None]) -> int:
        """Add the records of inserts or deletes; return the number of rows.

        Args:
            op: ``c`` or ``d``.
            data: Bytes of the rows.
            ctx: Text around the rows.
            append: Takes a record.

        Raises:
            ValueDecodeError: A value cannot be decoded, or is unknown.
        """
        context, text = self._context, data.decode("latin-1")
        prefix = context.value_wrapper[0] + ('{"before":null,"after":' if op == "c" else '{"before":')
        middle, tail = context.row_texts(ctx, op)
        images, size, tombstone = self._first_image.functions, self._first_image.size, op == "d" and context.tombstones
        pos, row = 0, ctx.first_row
        # The one row of defaults of an INSERT that names no column has no bytes (``header.check_rows``).
        defaults = not data and not self._layout.images[0]
        while pos < len(data) or defaults:
            start, defaults = pos, False
            try:
                pos, key, image, _ = images[data[pos : pos + size]](data, text, pos, None)
                self._require_end(start, pos, data)
            except ROW_ERRORS as error:
                raise self._failure(error, data, start, row, ctx) from error
            record_key = self._key(key)
            append((record_key, f"{prefix}{image}{middle}{row}{tail}".encode("latin-1"), row, CHANGE, None, None))
            if tombstone:
                append((record_key, None, row, TOMBSTONE, None, None))
            row += 1
        return row - ctx.first_row

    def update(self, data: bytes, ctx: EventContext, append: Callable[[RowRecord], None]) -> int:
        """Add the records of updates; arguments, errors and result as for ``single``."""
        context, text = self._context, data.decode("latin-1")
        prefix = context.value_wrapper[0] + '{"before":'
        middle, tail = context.row_texts(ctx, "u")
        first = self._first_image
        pos, row = 0, ctx.first_row
        while pos < len(data):
            start = pos
            try:
                pos, old_key, old, saved = first.functions[data[pos : pos + first.size]](data, text, pos, None)
                second, pos = self._after_image(data, pos)
                pos, new_key, new, _ = second.functions[data[pos : pos + second.size]](data, text, pos, saved)
                self._require_end(start, pos, data)
            except ROW_ERRORS as error:
                raise self._failure(error, data, start, row, ctx) from error
            if old_key == new_key:
                value = f'{prefix}{old},"after":{new}{middle}{row}{tail}'
                append((self._key(new_key), value.encode("latin-1"), row, CHANGE, None, None))
            else:
                context.key_change((old_key, old), (new_key, new), row, ctx, append)
            row += 1
        return row - ctx.first_row

    def _after_image(self, data: bytes, pos: int) -> tuple[ImageCode, int]:
        """Return the code of the after image at ``pos``, and where the image begins."""
        changed: frozenset[int] = frozenset()
        if self._layout.partial:
            changed, pos = partial_json_columns(data, pos, self._json_columns)
        second = self._second_images.get(changed)
        if second is None:
            if len(self._second_images) >= 256:
                self._second_images.clear()
            second = self._second_images[changed] = ImageCode(self._context, self._plans[1], changed)
        return second, pos

    def _require_end(self, start: int, pos: int, data: bytes) -> None:
        if pos == start and data:
            raise ValueError("the rows have no bytes")
        if pos > len(data):
            raise ValueError("the rows do not end where the event ends")

    def _key(self, key: str) -> bytes | None:
        before, after = self._context.key_wrapper
        return f"{before}{key}{after}".encode("latin-1") if self._context.keys else None

    def _failure(self, error: Exception, data: bytes, start: int, row: int, ctx: EventContext) -> CdcError:
        if isinstance(error, CdcError):
            return error
        key, failed = None, []
        try:
            partial_row = self._partial_decoder.row(data, start, self._layout)
            key, failed = partial_row.key, partial_row.failed
        except ROW_ERRORS:
            pass
        if isinstance(error, UnavailableError):
            failure = RowFailure(error.column, str(error), _REMEDY_ABSENT)
        elif isinstance(error, ConverterError):
            failure = RowFailure(error.column, f"{type(error).__name__}: {error}", CONVERTER_REMEDY)
        else:
            column, why = failed[0] if failed else ("", f"{type(error).__name__}: {error}")
            failure = RowFailure(column, why, _REMEDY_ROW)
        return row_error(self._context.table, failure, row, key, ctx)
