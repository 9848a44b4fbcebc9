"""Prepared XA transactions."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogFile
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record


@dataclass(frozen=True, slots=True)
class PreparedXa(Record):
    """Say where the binlog holds the rows of an XA transaction.

    Args:
        xid: The transaction's id as the binlog writes it: ``X'6f6e65',X'',1``.
        file: Binlog file; a transaction never spans two.
        start: Position of its first event (the GTID event).
        end: Position after its last one.
    """

    xid: str
    file: BinlogFile
    start: Count
    end: Count

    def __str__(self) -> str:
        return f"{self.xid} at {self.file}:{self.start}"
