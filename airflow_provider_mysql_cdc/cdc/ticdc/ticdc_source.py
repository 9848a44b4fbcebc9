"""What flat rows show of their transaction: its timestamp, as a number and as the bytes behind the columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import BINARY_MARK, Marked, mark
from airflow_provider_mysql_cdc.cdc.emit import source_block as source
from airflow_provider_mysql_cdc.cdc.emit.source_block import SourceBlock
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitTs, commit_ts
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_encoder import stamp_text

BEYOND = -1
"""The timestamp of a transaction whose commit time values cannot hold: its rows go by way of JSON, which says so."""
NO_ORDER = "null"
"""What stands for the number of a transaction in its file where it is not known."""


@dataclass(slots=True)
class FlatSource:
    """Write what a table's flat rows show of their transaction.

    Args:
        plain: What writes the source block of the same rows in JSON.
        extension: Whether values end in operation and commit time.
    """

    plain: SourceBlock
    extension: bool
    _last: tuple[int, str] = (-1, "")
    _stamp: int = 0
    _text: str = field(default="")

    def at(self, us: int, order: str) -> tuple[int, str]:
        """Return a transaction's timestamp as a number, and as byte text where values hold it.

        Args:
            us: Its commit time in microseconds.
            order: Its number in its file, or ``NO_ORDER``.
        """
        if (us, order) != self._last:
            found = transaction_ts(us, order)
            self._stamp, self._text = found.value, ""
            if self.extension:
                try:
                    self._text = stamp_text(found)
                except OverflowError:
                    self._stamp = BEYOND
            self._last = us, order
        return self._stamp, self._text


def transaction_ts(us: int, order: str) -> CommitTs:
    """Return a transaction's timestamp; arguments as for ``FlatSource.at``."""
    return commit_ts(us, 0 if order == NO_ORDER else int(order))


def fill(ctx: Any, block: FlatSource, event: source.RowEvent, at: source.Transaction) -> None:
    """Set what the flat rows of one streamed row event show; ``ctx.transaction`` has the transaction's number.

    Args:
        ctx: The decoder's context; ``as_json`` gives the whole source block.
        block: The table's.
        event: The row event.
        at: The transaction around it.
    """
    ctx.stamp, ctx.tail = block.at(at.commit_us or event.timestamp * 1_000_000, ctx.transaction)
    ctx.where = f"{event.file}:{event.start_pos}"
    ctx.plain = source.fill, block.plain, event, at


def in_json(ctx: EventContext) -> EventContext:
    """Return a context of the same event for rows that become JSON first.

    Args:
        ctx: From ``fill``.
    """
    if ctx.plain is None:
        return ctx
    found = EventContext(first_row=ctx.first_row, transaction=ctx.transaction)
    _, block, event, at = ctx.plain
    source.fill_time(found, block, event, at)
    return found


def marked(block: FlatSource) -> Marked:
    """Return the texts around rows with marks in place of what differs from event to event, for the native kernel.

    Args:
        block: The table's.
    """
    tail = mark("commit_ts", BINARY_MARK) + mark("millis", BINARY_MARK) if block.extension else ""
    return Marked(EventContext("", "", tail), BINARY_MARK)
