"""The decoder that writes TiCDC's flat rows at once, in Python.

A record says in place of its header, which flat rows do not have, to which partition it goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_binary as binary
from airflow_provider_mysql_cdc.cdc.avro.avro_row_decoder import DirectDecoder, NotDirect
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import Dialect
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.null_bitmap_functions import ROW_ERRORS
from airflow_provider_mysql_cdc.cdc.decode.row_functions import Buffer
from airflow_provider_mysql_cdc.cdc.formats.ticdc_row_partition import Spread
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.ticdc.flat_columns import flat_dialect
from airflow_provider_mysql_cdc.cdc.ticdc.tidb_types import TicdcModes

_OPERATIONS = {op: binary.text(op) for op in "cu"}


@dataclass(frozen=True, slots=True)
class FlatText:
    """Say how a table version's flat rows are put together.

    Args:
        options: From ``wiring.table_options``, with the key's columns in the table's order.
        envelope: From ``wiring.envelope_text``.
        modes: How values are written.
        heads: What keys and values begin with.
        spread: To which partitions rows go.
    """

    options: DecoderOptions
    envelope: EnvelopeText
    modes: TicdcModes
    heads: tuple[str, str]
    spread: Spread

    @property
    def dialect(self) -> Dialect:
        """Return how columns are written."""
        return flat_dialect(self.modes)


class FlatDecoder(DirectDecoder):
    """Decode complete row images whose keys stay the same; others raise ``NotDirect``.

    Attributes:
        flat: How rows are put together.
    """

    flat: FlatText

    def write(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[Any]) -> int:
        """Append the records of a WRITE_ROWS event; arguments as for ``RowDecoder.write``.

        Raises:
            NotDirect: It goes by way of JSON.
        """
        return self._each("c", 1, buf, pos, end, ctx, out)

    def update(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[Any]) -> int:
        """Append the records of an UPDATE_ROWS event; arguments and errors as for ``write``."""
        return self._each("u", 2, buf, pos, end, ctx, out)

    def delete(self, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[Any]) -> int:
        """Append the records of a DELETE_ROWS event; arguments and errors as for ``write``."""
        return self._each("d", 1, buf, pos, end, ctx, out)

    def _around(self, ctx: EventContext, op: str) -> tuple[str, str]:
        """Return what stands behind a value's columns: operation and commit time."""
        if not self.flat.modes.extension or op == "d":
            return "", ""
        return _OPERATIONS[op], ctx.tail

    def _each(self, op: str, images: int, buf: Buffer, pos: int, end: int, ctx: EventContext, out: list[Any]) -> int:
        if op in self._options.skipped_ops:
            return 0
        if not self._complete(buf, pos, images):
            raise NotDirect
        if ctx.stamp < 0:
            raise NotDirect
        data = bytes(buf[pos:end])
        made = len(out)
        try:
            self._rows(op, data, ctx, out)
        except ROW_ERRORS as error:
            raise NotDirect(error) from error
        return len(out) - made

    def _rows(self, op: str, data: bytes, ctx: EventContext, out: list[Any]) -> None:
        text, last, size, image = data.decode("latin-1"), len(data), self._size, self._images
        (key_head, _), head, tail = self._key_wrap, self._value_wrap[0], "".join(self._around(ctx, op))
        keyed, alive, update = bool(self._keys), op != "d", op == "u"
        spread, row, p = self.flat.spread, ctx.first_row, 0
        all_of_it = spread.of_event(ctx.stamp)
        while p < last:
            if update:
                p, old_key, _ = image[data[p : p + size]](data, text, p)
            at = p
            p, key, value = image[data[p : p + size]](data, text, p)
            if update and key != old_key:
                raise NotDirect
            part = spread.of_row(data, text, at) if all_of_it is None else all_of_it
            out.append(
                (
                    f"{key_head}{key}".encode("latin-1") if keyed else None,
                    f"{head}{value}{tail}".encode("latin-1") if alive else None,
                    row,
                    0,
                    part,
                )
            )
            row += 1
        if p != last:
            raise ValueError("the rows do not end where the event ends")


class PlainFlat(FlatDecoder):
    """Decode in Python alone.

    Args:
        table: The table.
        wires: Wire types of its columns.
        flat: How rows are put together.

    Raises:
        Declined: The dialect has no code for the table.
    """

    def __init__(self, table: Table, wires: tuple[WireType, ...], flat: FlatText) -> None:
        super().__init__(table, wires, flat.options, flat.envelope, flat.dialect, flat.heads)
        self.flat = flat
