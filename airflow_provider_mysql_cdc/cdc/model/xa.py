"""Prepared XA transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.offset import binlog_file
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, as_members


@dataclass(frozen=True, slots=True)
class PreparedXa:
    """Say where the binlog holds the rows of an XA transaction.

    Args:
        xid: The transaction's id as the binlog writes it: ``X'6f6e65',X'',1``.
        file: Binlog file; a transaction never spans two.
        start: Position of its first event (the GTID event).
        end: Position after its last one.
    """

    xid: str
    file: str
    start: int
    end: int

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"xid": self.xid, "file": self.file, "start": self.start, "end": self.end}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> PreparedXa:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        record = as_members(data)
        return cls(record.text("xid"), binlog_file(record, "file"), record.integer("start"), record.integer("end"))

    def __str__(self) -> str:
        return f"{self.xid} at {self.file}:{self.start}"
