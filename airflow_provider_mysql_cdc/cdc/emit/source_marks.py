"""The source block of events with marks in place of what differs from event to event, for the native kernel."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import COMMIT, NOW, Marked, mark
from airflow_provider_mysql_cdc.cdc.emit.source_block import SourceBlock


def marked(block: SourceBlock) -> Marked:
    """Return the texts around rows as ``source.fill`` makes them of an event without a statement.

    Args:
        block: The table's source block.
    """
    head = block.head(COMMIT, block.streamed, mark("server"), mark("gtid"), mark("file"), mark("position"))
    tail = block.tail(mark("thread"), "null", block.streamed)
    return Marked(EventContext(head, tail, block.op_tail(NOW)))  # type: ignore[arg-type]
