"""The source block of events with marks in place of what differs from event to event, for the native kernel."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import COMMIT_TIME, CURRENT_TIME, MarkedContext, mark
from airflow_provider_mysql_cdc.cdc.emit.source_block import SourceBlock


def marked_context(block: SourceBlock) -> MarkedContext | None:
    """Return the texts around rows as ``source.fill`` makes them of an event without a statement.

    Args:
        block: The table's source block.

    Returns:
        None for contract 1.9, whose rows do not have the time of the commit, as the kernel writes it.
    """
    if not block.layout.recent:
        return None
    head = block.head(COMMIT_TIME, block.streamed_marker, mark("server"), mark("gtid"), mark("file"), mark("position"))
    tail = block.tail(mark("thread"), "null", block.streamed_marker)
    return MarkedContext(EventContext(head, tail, block.op_tail(CURRENT_TIME)))  # type: ignore[arg-type]
