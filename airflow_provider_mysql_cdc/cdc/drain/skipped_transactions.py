"""Transactions of other servers that one has executed as empty ones of its own: somebody has skipped them there.

``SET gtid_next``, BEGIN, COMMIT lets a replica pass over a transaction. Such an empty one has the server's own id; what
is replicated, also what a filter has made empty, keeps that of the server that executed it first (MySQL 9.7.4).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_gtid, parse_query
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet, gtid_source

_BETWEEN = (c.PREVIOUS_GTIDS_LOG_EVENT, c.ROTATE_EVENT, c.STOP_EVENT)


@dataclass(slots=True)
class SkippedTransactions:
    """Look at the events of a server's binlog, one after the other.

    Args:
        server_uuid: Its server_uuid.
        server_id: Its server_id.

    Attributes:
        gtids: The transactions that were found.
    """

    server_uuid: str
    server_id: int
    gtids: GtidSet = field(default_factory=GtidSet)
    _empty: str | None = None

    def take(self, event: Event) -> None:
        """Take the next event."""
        if event.type in c.GTID_EVENTS:
            self.finish()
            gtid = parse_gtid(event).gtid
            if gtid is not None and event.server_id == self.server_id:
                self._empty = gtid if gtid_source(gtid).lower() != self.server_uuid.lower() else None
        elif self._empty is not None and event.type not in _BETWEEN:
            is_empty = event.type == c.QUERY_EVENT and parse_query(event).sql.upper() in ("BEGIN", "COMMIT")
            self._empty = self._empty if is_empty else None

    def finish(self) -> None:
        """Take the end of the last transaction."""
        if self._empty is not None:
            self.gtids, self._empty = self.gtids.add(self._empty), None
