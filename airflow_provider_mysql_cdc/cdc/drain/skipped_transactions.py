"""Transactions that a server has executed as empty ones which somebody made: they were skipped there.

``SET gtid_next``, BEGIN, COMMIT lets a replica pass over a transaction. Such an empty one has the id of the server on
which that was done, also where it is replicated from there; what a filter has made empty keeps the id of the server
that executed the transaction first (MySQL 5.7.22, 8.0.15, 9.7.4).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_gtid, parse_query
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet, GtidTracker, gtid_source

_BETWEEN = (c.PREVIOUS_GTIDS_LOG_EVENT, c.ROTATE_EVENT, c.STOP_EVENT)


@dataclass(slots=True)
class SkippedTransactions:
    """Look at the events of a server's binlog, one after the other.

    A transaction that was skipped on a server in between is known by those of the former server only: administrators
    also make empty ones on a primary, for what a replica alone has executed, and there they were read empty.

    Args:
        server_uuid: Its server_uuid.
        server_id: Its server_id.
        former_server: server_uuid of the server from which the stream has read them.
    """

    server_uuid: str
    server_id: int
    former_server: str
    _last: tuple[str, int] | None = None
    _empty: dict[int, GtidTracker] = field(default_factory=dict)
    _former_ids: set[int] = field(default_factory=set)

    def take(self, event: Event) -> None:
        """Take the next event."""
        if event.type in c.GTID_EVENTS:
            self._end_transaction()
            gtid = parse_gtid(event).gtid
            if gtid is not None and gtid_source(gtid).lower() != self.server_uuid.lower():
                self._last = gtid, event.server_id
        elif self._last is not None and event.type not in _BETWEEN and not _is_bracket(event):
            gtid, server_id = self._last
            if self._is_former(gtid_source(gtid)):
                self._former_ids.add(server_id)
            self._last = None

    def _end_transaction(self) -> None:
        if self._last is not None:
            gtid, server_id = self._last
            self._empty.setdefault(server_id, GtidTracker("")).add(gtid)
            self._last = None

    def found(self) -> GtidSet:
        """Return the transactions that were skipped."""
        self._end_transaction()
        skipped = GtidSet()
        for server_id, tracker in self._empty.items():
            if server_id == self.server_id:
                skipped = skipped.union(tracker.gtid_set())
            elif self._former_ids and server_id not in self._former_ids:
                skipped = skipped.union(tracker.gtid_set().of_sources(self._is_former))
        return skipped

    def _is_former(self, uuid: str) -> bool:
        return uuid.lower() == self.former_server.lower()


def _is_bracket(event: Event) -> bool:
    return event.type == c.QUERY_EVENT and parse_query(event).sql.upper() in ("BEGIN", "COMMIT")
