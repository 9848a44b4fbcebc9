"""Transactions that a server has executed as empty ones which somebody made: they were skipped there.

``SET gtid_next``, BEGIN, COMMIT lets a replica pass over a transaction, and so does a statement in their place that is
about no captured table (FLUSH, CREATE DATABASE IF NOT EXISTS). Such a transaction has the id of the server on which
that was done, also where it is replicated from there; what a replication filter or ``replica_skip_errors`` has made
empty keeps the id of the server that executed the transaction first (MySQL 5.7.22, 8.0.15, 9.7.4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_gtid, parse_query
from airflow_provider_mysql_cdc.cdc.binlog.local_gtids import LocalGtids
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet, GtidTracker, gtid_source

_BETWEEN = (c.PREVIOUS_GTIDS_LOG_EVENT, c.ROTATE_EVENT, c.STOP_EVENT)


@dataclass(slots=True)
class SkippedTransactions:
    """Look at the events of a server's binlog, one after the other.

    A transaction that was skipped on a server in between is known by those of the former server only: administrators
    also make empty ones on a primary, for what a replica alone has executed, and there they were read empty.

    A server into which binlog files were replayed has executed whole transactions under other servers' GTIDs, also
    statements; one with rows shows it.

    Args:
        local_gtids: How it signs its own transactions.
        former_server: server_uuid of the server from which the stream has read them.
        is_relevant: Says of a QUERY event whether it may be about captured tables.
    """

    local_gtids: LocalGtids
    former_server: str
    is_relevant: Callable[[Event], bool]
    _last: tuple[str, int] | None = None
    _begun: bool = False
    _statements: dict[int, GtidTracker] = field(default_factory=dict)
    _replayed: set[str] = field(default_factory=set)
    _empty: dict[int, GtidTracker] = field(default_factory=dict)
    _former_ids: set[int] = field(default_factory=set)

    def take(self, event: Event) -> None:
        """Take the next event."""
        if event.type in c.GTID_EVENTS:
            self._end_transaction()
            gtid = parse_gtid(event).gtid
            if gtid is not None and gtid_source(gtid).lower() != self.local_gtids.server_uuid:
                self._last, self._begun = (gtid, event.server_id), False
        elif self._last is not None and event.type not in _BETWEEN:
            if _is_bracket(event):
                self._begun = True
                return
            (gtid, server_id), self._last = self._last, None
            if event.type == c.QUERY_EVENT and not self._begun:
                if server_id not in self._former_ids and not self.is_relevant(event):
                    self._statements.setdefault(server_id, GtidTracker("")).add(gtid)
            elif self.local_gtids.is_lent(gtid, server_id):
                self._replayed.add(gtid_source(gtid))
            elif self._is_former(gtid_source(gtid)):
                self._former_ids.add(server_id)

    def _end_transaction(self) -> None:
        if self._last is not None:
            gtid, server_id = self._last
            self._empty.setdefault(server_id, GtidTracker("")).add(gtid)
            self._last = None

    def found(self) -> GtidSet:
        """Return the transactions that were skipped."""
        self._end_transaction()
        own = self.local_gtids
        skipped = GtidSet() if own.server_id not in self._empty else self._empty[own.server_id].gtid_set()
        if own.server_id in self._statements:
            lent = self._statements[own.server_id].gtid_set()
            skipped = skipped.union(lent.of_sources(lambda u: u not in own.group_uuids and u not in self._replayed))
        for server_id, tracker in (*self._empty.items(), *self._statements.items()):
            if self._former_ids and server_id not in (own.server_id, *self._former_ids):
                skipped = skipped.union(tracker.gtid_set().of_sources(self._is_former))
        return skipped

    def emptied(self) -> GtidSet:
        """Return transactions of the former server that were replicated, and that something has made empty."""
        self._end_transaction()
        empty = GtidSet()
        for server_id, tracker in self._empty.items():
            if server_id != self.local_gtids.server_id:
                empty = empty.union(tracker.gtid_set().of_sources(self._is_former))
        return empty.subtract(self.found())

    def _is_former(self, uuid: str) -> bool:
        return uuid.lower() == self.former_server.lower()


def _is_bracket(event: Event) -> bool:
    return event.type == c.QUERY_EVENT and parse_query(event).sql.upper() in ("BEGIN", "COMMIT")
