"""The transaction's timestamp in flat rows, as a number and as the bytes after the columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import BINARY_MARK, MarkedContext, mark
from airflow_provider_mysql_cdc.cdc.emit import source_block
from airflow_provider_mysql_cdc.cdc.emit.source_block import SourceBlock
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitTs, commit_ts
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_encoder import commit_ts_text

UNREPRESENTABLE = -1
"""The timestamp of a transaction whose commit time does not fit: its rows go by way of JSON, which raises the error."""
NO_TIMESTAMP = "null"
"""The timestamp of a transaction without a GTID event."""


@dataclass(slots=True)
class TicdcSource:
    """Write the transaction's timestamp of a table's flat rows.

    Args:
        plain: The writer of the source block of the same rows in JSON.
        extension: Whether values end in operation and commit time.
    """

    plain: SourceBlock
    extension: bool
    _last_transaction: tuple[int, str] = (-1, "")
    _stamp: int = 0
    _text: str = field(default="")

    def timestamp(self, us: int, transaction: str) -> tuple[int, str]:
        """Return a transaction's timestamp as a number, and as byte text where values hold it.

        Args:
            us: Its commit time in microseconds.
            transaction: Its timestamp (``CommitClock``) as text, or ``NO_TIMESTAMP``.
        """
        if (us, transaction) != self._last_transaction:
            ts = transaction_ts(us, transaction)
            self._stamp, self._text = ts.value, ""
            if self.extension:
                try:
                    self._text = commit_ts_text(ts)
                except OverflowError:
                    self._stamp = UNREPRESENTABLE
            self._last_transaction = us, transaction
        return self._stamp, self._text


def transaction_ts(us: int, transaction: str) -> CommitTs:
    """Return a transaction's timestamp; arguments as for ``TicdcSource.timestamp``."""
    return commit_ts(us) if transaction == NO_TIMESTAMP else CommitTs(int(transaction))


def fill(
    ctx: Any, block: TicdcSource, event: source_block.RowEvent, transaction: source_block.SourceTransaction
) -> None:
    """Set the texts of the flat rows of one streamed row event; ``ctx.transaction`` is the transaction's.

    Args:
        ctx: The decoder's context; ``as_json`` returns the whole source block.
        block: The table's.
        event: The row event.
        transaction: The transaction around it.
    """
    ctx.stamp, ctx.tail = block.timestamp(transaction.commit_us or event.timestamp * 1_000_000, ctx.transaction)
    ctx.where = f"{event.file}:{event.start_pos}"
    ctx.plain = source_block.fill, block.plain, event, transaction


def json_context(ctx: EventContext) -> EventContext:
    """Return a context of the same event for rows that become JSON first.

    Args:
        ctx: From ``fill``.
    """
    if ctx.plain is None:
        return ctx
    json_ctx = EventContext(first_row=ctx.first_row, transaction=ctx.transaction)
    _, block, event, transaction = ctx.plain
    source_block.fill_time(json_ctx, block, event, transaction)
    return json_ctx


def marked_context(block: TicdcSource) -> MarkedContext:
    """Return the texts around rows with marks in place of what differs from event to event, for the native kernel.

    Args:
        block: The table's.
    """
    tail = mark("commit_ts", BINARY_MARK) + mark("millis", BINARY_MARK) if block.extension else ""
    return MarkedContext(EventContext("", "", tail), BINARY_MARK)
