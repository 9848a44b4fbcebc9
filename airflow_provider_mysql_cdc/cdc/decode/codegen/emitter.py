"""Source text of one row image, column by column, and functions by the bitmap of its NULL columns.

Source text of one row image, column by column.

A row image is a bitmap of NULL columns followed by the values of the others. For one given bitmap the positions of
all fixed-width values between two variable-length ones are known, so they are read with one ``struct`` call.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from struct import Struct, calcsize
from types import CodeType
from typing import Any, NamedTuple

_PREFIX = {1: (("", "B"),), 2: (("<", "H"),), 3: (("<", "H"), ("", "B")), 4: (("<", "I"),)}


@dataclass(frozen=True, slots=True)
class WireLayout:
    """Describe how a value is stored in a row image.

    Args:
        fields: Fixed parts as (byte order ``<`` ``>`` or empty when it does not matter, struct format).
        prefix: Bytes of the length before variable data, 0 for a fixed-width value.
        as_bytes: Whether variable data is wanted as bytes (else as byte text).
    """

    fields: tuple[tuple[str, str], ...] = ()
    prefix: int = 0
    as_bytes: bool = False


# Gets the emitter and the names that hold the raw parts (for variable data: the name of the data, and of its length);
# adds statements and returns the value as the body of an f-string in which only plain names are substituted.
Render = Callable[["Emitter", list[str]], str]
ColumnRenderer = tuple[WireLayout, Render]
"""How a column's value is stored in a row image, and the code that renders it."""


@dataclass(frozen=True, slots=True)
class ColumnCode:
    """Hold everything that the generator needs of a column.

    Args:
        name: Column name.
        label: ``"name":`` as byte text.
        wire: Its place in a row image.
        render: Makes the JSON text.
        null: JSON text of NULL, byte text.
        in_value: Whether it goes into the value.
        in_key: Whether it goes into the key.
        constant: JSON text that replaces every value of the column, byte text; or None.
        change: Turns the JSON text of a value into the one that is shown; not called for NULL, unless a converter
            handles the column; or None.
        convert: Turns what ``render`` makes into the JSON text (a custom converter, TYPE-65); or None.
        refuse_null: Raises, because the converter cannot convert NULL; or None.
    """

    name: str
    label: str
    wire: WireLayout
    render: Render
    null: str = "null"
    in_value: bool = True
    in_key: bool = False
    constant: str | None = None
    change: Callable[[str], str] | None = None
    convert: Callable[[str], str] | None = None
    refuse_null: Callable[[], str] | None = None


class ObjectDelimiters(NamedTuple):
    """Hold the texts before, between and after the members of an object."""

    opening: str
    separator: str
    closing: str


JSON_OBJECT = ObjectDelimiters("{", ",", "}")


def literal(text: str) -> str:
    """Return text as a literal part of a single-quoted f-string."""
    escaped = text.encode("unicode_escape").decode("ascii")
    return escaped.replace("'", "\\'").replace("{", "{{").replace("}", "}}")


class Emitter:
    """Collect statements and the objects that they name.

    Args:
        namespace: Names available to the generated code; ``bind`` adds to it.
        keys_first: Whether values that are no part of the key are rendered only when all have been read.

    Attributes:
        lines: The statements.
        read: Number of statements that read values and render those of the key.
    """

    def __init__(self, namespace: dict[str, Any], *, keys_first: bool = False) -> None:
        self.namespace = namespace
        self.lines: list[str] = []
        self.key_line_count = 0
        self._deferred: list[Callable[[], None]] | None = [] if keys_first else None
        self._offset = 0
        self._count = 0
        self._pending_parts: list[tuple[str, str, str]] = []
        self._pending_renders: list[Callable[[], None]] = []

    def line(self, text: str) -> None:
        """Add a statement (with leading blanks when it is inside another)."""
        self.lines.append(text)

    def bind(self, hint: str, value: Any) -> str:
        """Return the name under which the generated code sees an object; equal hints must mean equal objects."""
        self.namespace.setdefault(hint, value)
        return hint

    def name(self, stem: str) -> str:
        """Return a fresh name."""
        self._count += 1
        return f"{stem}{self._count}"

    def column(self, code: ColumnCode, on_body: Callable[[str], None]) -> None:
        """Add the reading of one value that is not NULL.

        Args:
            code: The column.
            on_body: Called with the f-string body of the value, when its parts have been read.
        """
        wire, is_used = code.wire, (code.in_value and code.constant is None) or code.in_key
        if wire.prefix:
            self._variable(code, is_used, on_body)
        elif not is_used:
            self._pending_parts.extend(("", f"{calcsize('<' + fmt)}x", "") for _, fmt in wire.fields)
        else:
            names = [self._add_part(order, fmt) for order, fmt in wire.fields]
            self._pending_renders.append(lambda: self._render_or_defer(code, names, on_body))

    def _add_part(self, order: str, fmt: str) -> str:
        name = self.name("v")
        self._pending_parts.append((order, fmt, name))
        return name

    def _variable(self, code: ColumnCode, is_used: bool, on_body: Callable[[str], None]) -> None:
        names = [self._add_part(order, fmt) for order, fmt in _PREFIX[code.wire.prefix]]
        self.flush()
        length = names[0]
        if len(names) == 2:
            self.line(f"{length} |= {names[1]} << 16")
        if not is_used:
            self.line(f"p += {self._take_offset()}{length}")
            return
        data = self.name("s")
        self.line(f"q = p + {self._offset}")
        self._take_offset()
        self.line(f"p = q + {length}")
        self.line(f"{data} = {'b' if code.wire.as_bytes else 't'}[q:p]")
        self._render_or_defer(code, [data, length], on_body)

    def _render_or_defer(self, code: ColumnCode, names: list[str], on_body: Callable[[str], None]) -> None:
        if self._deferred is None or code.in_key:
            on_body(self._rendered_body(code, names))
        else:
            self._deferred.append(lambda: on_body(self._rendered_body(code, names)))

    def render_deferred(self) -> None:
        """Render the deferred values."""
        self.key_line_count = len(self.lines)
        for render in self._deferred or ():
            render()

    def _rendered_body(self, code: ColumnCode, names: list[str]) -> str:
        body = code.render(self, names)
        if code.convert is None:
            return body
        value = self.name("v")
        self.line(f"{value} = {self.bind(f'convert_{code.name.encode().hex()}', code.convert)}(f'{body}')")
        return f"{{{value}}}"

    def null(self, code: ColumnCode) -> str | None:
        """Return the call that raises for a NULL which a converter cannot convert, or None."""
        if code.refuse_null is None or not ((code.in_value and code.constant is None) or code.in_key):
            return None
        return f"{self.bind(f'refuse_{code.name.encode().hex()}', code.refuse_null)}()"

    def _take_offset(self) -> str:
        offset, self._offset = self._offset, 0
        return f"{offset} + " if offset else ""

    def flush(self) -> None:
        """Read what is pending, then render it."""
        group: list[tuple[str, str]] = []
        order = ""
        for part_order, fmt, name in self._pending_parts:
            if order and part_order and part_order != order:
                self._read_group(order, group)
                group, order = [], ""
            order = order or part_order
            group.append((fmt, name))
        self._read_group(order, group)
        self._pending_parts.clear()
        for render in self._pending_renders:
            render()
        self._pending_renders.clear()

    def _read_group(self, order: str, group: list[tuple[str, str]]) -> None:
        if not group:
            return
        names = [name for _, name in group if name]
        fmt = "".join(fmt for fmt, _ in group)
        size = calcsize("<" + fmt)
        at = f"p + {self._offset}" if self._offset else "p"
        if fmt == "B" and names:
            self.line(f"{names[0]} = b[{at}]")
        elif names:
            prefix = {"<": "L", ">": "G", "": "L"}[order]
            unpack = self.bind(f"{prefix}_{fmt}", Struct((order or "<") + fmt).unpack_from)
            self.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {unpack}(b, {at})")
        self._offset += size

    def finish(self) -> None:
        """Read the remaining values and move ``p`` to the end of the image."""
        self.flush()
        if self._offset:
            self.line(f"p += {self._offset}")
            self._offset = 0


def image_bodies(
    emitter: Emitter, columns: tuple[ColumnCode, ...], nulls: int | None
) -> tuple[dict[int, str], dict[int, str]]:
    """Add the reading of one row image; return the f-string bodies of its columns in keys and in values, by index.

    Args:
        emitter: Gets the statements; the image's values begin at ``p``.
        columns: The image's columns in order.
        nulls: NULL columns, column 0 in bit 0; None makes code for every combination, which looks at the name
            ``nulls`` column by column.
    """
    bodies = _bodies_of_any_bitmap(emitter, columns) if nulls is None else _bodies_of_bitmap(emitter, columns, nulls)
    emitter.render_deferred()
    value_bodies = {
        i: _value_body(emitter, i, code, bodies[i], nulls) for i, code in enumerate(columns) if code.in_value
    }
    return bodies, value_bodies


def object_body(
    columns: tuple[ColumnCode, ...],
    bodies: dict[int, str],
    delimiters: ObjectDelimiters = JSON_OBJECT,
    extra_members: str = "",
) -> str:
    """Return the f-string body of an object.

    Args:
        columns: The table's columns.
        bodies: F-string bodies of its members, by column.
        delimiters: Text around them.
        extra_members: Members after them.
    """
    opening, separator, closing = map(literal, delimiters)
    return (
        opening
        + separator.join(literal(columns[i].label) + body for i, body in bodies.items())
        + literal(extra_members)
        + closing
    )


def _value_body(emitter: Emitter, index: int, code: ColumnCode, body: str, nulls: int | None) -> str:
    """Return the f-string body of a column in the value: constant, changed, or as it is."""
    if code.constant is not None:
        return literal(code.constant)
    plain_null = code.convert is None
    if code.change is None or (plain_null and nulls is not None and nulls >> index & 1):
        return body
    change = emitter.bind(f"change_{index}", code.change)
    call = f"{change}(f'{body}')"
    if nulls is None and plain_null:
        call = f"w{index} if nulls & {1 << index} else {call}"
    emitter.line(f"c{index} = {call}")
    return f"{{c{index}}}"


def _bodies_of_bitmap(emitter: Emitter, columns: tuple[ColumnCode, ...], nulls: int) -> dict[int, str]:
    bodies: dict[int, str] = {}
    for index, code in enumerate(columns):
        if nulls >> index & 1:
            bodies[index] = literal(code.null)
            if (refusal := emitter.null(code)) is not None:
                emitter.line(refusal)
        else:
            bodies[index] = ""  # stays empty when no record has the value
            emitter.column(code, partial(bodies.__setitem__, index))
    emitter.finish()
    return bodies


def _bodies_of_any_bitmap(emitter: Emitter, columns: tuple[ColumnCode, ...]) -> dict[int, str]:
    bodies: dict[int, str] = {}
    for index, code in enumerate(columns):
        inner_emitter = Emitter(emitter.namespace)
        inner_bodies: list[str] = []
        inner_emitter.column(code, inner_bodies.append)
        inner_emitter.finish()
        null = emitter.null(code) or f"f'{literal(code.null)}'"
        emitter.line(f"if nulls & {1 << index}: w{index} = {null}")
        emitter.line("else:")
        for line in inner_emitter.lines:
            emitter.line(" " + line)
        emitter.line(f" w{index} = f'{inner_bodies[0] if inner_bodies else ''}'")
        bodies[index] = f"{{w{index}}}"
    return bodies


# What a malformed row, or one that contradicts the schema, raises in generated code.
ROW_ERRORS = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, struct.error)
# So many combinations of NULLs get code of their own; the function for all others is about a fifth slower.
MAX_BITMAPS = 64


@lru_cache(maxsize=512)
def compiled(source: str) -> CodeType:
    """Return Python source, generated from a table's structure, as code that defines ``run``."""
    return compile(source, "<decoder>", "exec")


def run_function(code: CodeType, namespace: dict[str, Any]) -> Any:
    """Return the function ``run`` that some code defines.

    Args:
        code: From ``compiled``.
        namespace: Names that the function sees; tables of one shape share it, also in several threads at once.
    """
    defined: dict[str, Any] = {}
    exec(code, namespace, defined)  # generated here from the table
    return defined["run"]


def run_code(code: CodeType) -> CodeType:
    """Return the code of the function ``run`` itself.

    Args:
        code: From ``compiled``.
    """
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == "run")


def run_source(lines: list[str], namespace: dict[str, Any]) -> Any:
    """Return the function ``run`` that these lines define.

    Args:
        lines: Python source, generated from the table.
        namespace: Names it sees.
    """
    return run_function(compiled("\n".join(lines)), namespace)


class NullBitmapFunctions(dict[bytes, Any]):
    """Make the function of a bitmap when it is first seen; beyond ``MAX_BITMAPS`` one function serves all bitmaps.

    Args:
        make: Makes the function of one bitmap, or with None that of any bitmap.
    """

    def __init__(self, make: Callable[[bytes | None], Any]) -> None:
        super().__init__()
        self._make = make
        self._general: Any = None

    def __missing__(self, bitmap: bytes) -> Any:
        if len(self) < MAX_BITMAPS:
            function = self[bitmap] = self._make(bitmap)
            return function
        if self._general is None:
            self._general = self._make(None)
        return self._general
