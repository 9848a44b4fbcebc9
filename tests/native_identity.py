"""Decode each row event in Python and natively, and compare: records, errors and why the kernel declines.

``watch`` puts a decoder that does both in the place of the native one; with the kernel installed the whole suite runs
with it (``conftest``). A difference fails the test in which it appears, and so does a decline that is not listed here.
"""

from __future__ import annotations

import re
from typing import Any

from airflow_provider_mysql_cdc.cdc.decode import native_rows, native_text
from airflow_provider_mysql_cdc.cdc.decode.compile import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.dialect import Declined
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import INCOMPLETE, KEY_CHANGE, PANIC
from airflow_provider_mysql_cdc.cdc.job import native_avro

TABLES = re.compile(
    r"a converter handles column .*"
    r"|column .* is cut or hashed"
    r"|records are those of another protocol"
    r"|column .* is \w+ (big5|cp932|eucjpms|euckr|gb18030|gb2312|gbk|sjis|ujis)"
    # In Avro.
    r"|column .* is (GEOMETRY|POINT|LINESTRING|POLYGON|MULTI\w+|GEOMETRYCOLLECTION|VECTOR)"
    r"|column .* of the key is shown otherwise in the value",
    re.DOTALL,
)
"""Why a table is decoded in Python; anything else is a kind of column that the kernel should know."""


class Difference(AssertionError):
    """Say that both decoders do not agree."""


class _Both:
    """Decode in Python, and see that the kernel gives the same."""

    compared = 0
    natively: Any
    _native: Any
    _complete: Any

    def __init__(self, *given: Any, **named: Any) -> None:
        try:
            super().__init__(*given, **named)
        except Declined as reason:
            if TABLES.fullmatch(str(reason)) is None:
                raise Difference(f"the kernel declines a table: {reason}") from reason
            raise

    def write(self, *given: Any) -> int:
        return self._both("c", RowDecoder.write, *given)

    def update(self, *given: Any) -> int:
        return self._both("u", RowDecoder.update, *given)

    def delete(self, *given: Any) -> int:
        return self._both("d", RowDecoder.delete, *given)

    def _both(self, op: str, python: Any, buf: Any, pos: int, end: int, ctx: Any, out: list[Any]) -> int:
        natively: list[Any] = ["before"]
        rows = self.natively(op, bytes(buf), pos, end, ctx, natively)
        assert natively.pop(0) == "before"
        if rows == PANIC:
            raise Difference("the kernel panicked")
        if rows < 0 and natively:
            raise Difference(f"declined with {rows} and yet left {natively!r}")
        made = len(out)
        try:
            wanted = python(self, buf, pos, end, ctx, out)
        except Exception as error:
            if rows >= 0:
                raise Difference(f"Python says {error!r}, the kernel {natively!r}") from error
            raise
        if rows < 0:
            self._expected(op, rows, buf, pos, ctx, out[made:])
        elif (rows, natively) != (wanted, out[made:]):
            raise Difference(f"Python: {wanted} {out[made:]!r}\nkernel: {rows} {natively!r}")
        type(self).compared += 1
        return wanted

    def _expected(self, op: str, rows: int, buf: Any, pos: int, ctx: Any, records: list[Any]) -> None:
        asked = op in self._native and type(ctx.first_row) is int
        why = {
            KEY_CHANGE: lambda: any(record[3] == 2 for record in records),
            INCOMPLETE: lambda: not self._complete(buf, pos, 2 if op == "u" else 1),
        }.get(rows, lambda: not asked)
        if not why():
            raise Difference(f"the kernel declines rows that Python decodes ({rows}): {records!r}")


class BothDecoders(_Both, native_rows.NativeDecoder):
    """Compare records in JSON."""


class BothDirect(_Both, native_avro.NativeDirect):
    """Compare records in Avro."""


class BothTexts(native_text.NativeText):
    """Read rows of the text protocol in Python, and see that the kernel gives the same."""

    compared = 0
    sound = True

    def __init__(self, *given: Any, **named: Any) -> None:
        try:
            super().__init__(*given, **named)
        except Declined as reason:
            if TABLES.fullmatch(str(reason)) is None:
                raise Difference(f"the kernel declines a table: {reason}") from reason
            raise

    def __call__(self, packet: Any, pos: int, ctx: Any, out: list[Any]) -> None:
        natively: list[Any] = ["before"]
        rows = self.natively(bytes(packet), pos, ctx, natively)
        assert natively.pop(0) == "before"
        if rows == PANIC:
            raise Difference("the kernel panicked")
        made = len(out)
        try:
            self.plain(packet, pos, ctx, out)
        except Exception as error:
            if rows >= 0 or natively:
                raise Difference(f"Python says {error!r}, the kernel {natively!r}") from error
            raise
        # Of a damaged row Python reads more, such as a number with a blank.
        if rows < 0 and self.sound and type(ctx.first_row) is int:
            raise Difference(f"the kernel declines a row that Python reads ({rows}): {out[made:]!r}")
        if natively != (out[made:] if rows >= 0 else []):
            raise Difference(f"Python: {out[made:]!r}\nkernel: {rows} {natively!r}")
        BothTexts.compared += 1


def watch() -> None:
    """Put the decoders that compare in the place of the native ones."""
    native_rows.NativeDecoder = BothDecoders  # type: ignore[misc]
    native_text.NativeText = BothTexts  # type: ignore[misc]
    native_avro.NativeDirect = BothDirect  # type: ignore[misc]
