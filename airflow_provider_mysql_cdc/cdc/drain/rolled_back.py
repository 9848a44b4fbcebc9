"""Transactions that the binlog says were rolled back."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.errors import UnsupportedEventError


def require_no_rows(position: WriterPosition, sql: str, event: Event) -> None:
    """Refuse ``ROLLBACK`` and ``ROLLBACK TO`` behind row events.

    MySQL writes a transaction that it rolls back only where it changed tables without transactions as well: their rows
    stay, and those of the others do not (MySQL manual, "Replication and Transactions"). With row events each kind is
    written by itself, so neither statement is expected behind rows.

    Args:
        position: Where the writer is.
        sql: The statement.
        event: Its event.

    Raises:
        UnsupportedEventError: Rows came before it in its transaction.
    """
    if not position.events:
        return
    raise UnsupportedEventError(
        "a transaction with rows was rolled back in the binlog",
        where=f"{event.where()}: {sql[:200]}, transaction since {position.file}:{position.pos}",
        why=f"which of its {position.events} row events are valid depends on the engines of its tables",
        remedy="look at the transaction with mysqlbinlog; to go on behind it trigger mysql_cdc_reset_offset with the "
        "position after it (offset=file:position), and then mysql_cdc_verify with repair=yes",
    )
