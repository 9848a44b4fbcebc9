"""Where a writer of a drain stands in the binlog."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset


@dataclass(slots=True)
class Position:
    """Track where in the binlog the writer stands.

    Args:
        boundary: The last transaction boundary passed.
        events: Row events seen in the transaction after it, of all tables.
        thread: Thread id of the transaction's session.
        gtid: GTID of the transaction, or None.
        commit_us: Commit time of the transaction in microseconds since the epoch, 0 when the server does not tell.
        query: The statement that caused the rows, when the server logs it.
        begun: Whether the transaction's BEGIN has passed; DDL inside it belongs to CREATE TABLE ... SELECT.
    """

    boundary: BinlogOffset
    events: int = 0
    thread: int = 0
    gtid: str | None = None
    commit_us: int = 0
    query: str | None = None
    begun: bool = False
