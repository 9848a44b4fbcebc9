"""Transactions that a server has executed without the changes that the stream has read: they were skipped there.

``SET gtid_next``, BEGIN, COMMIT lets a replica pass over a transaction, and so does anything in their place that
changes no captured table: a statement (FLUSH, CREATE DATABASE IF NOT EXISTS), or rows of another table. Such a
transaction has the id of the server on which that was done, also where it is replicated from there; what a replication
filter or ``replica_skip_errors`` has made empty keeps the id of the server that executed the transaction first (MySQL
5.7.22, 8.0.15, 9.7.4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import GtidEvent, parse_gtid, parse_query
from airflow_provider_mysql_cdc.cdc.binlog.local_gtids import LocalGtids
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet, GtidTracker, gtid_source

_BETWEEN = (c.PREVIOUS_GTIDS_LOG_EVENT, c.ROTATE_EVENT, c.STOP_EVENT)


class _Content(IntEnum):
    EMPTY, OTHER, CAPTURED = range(3)


@dataclass(slots=True)
class SkippedTransactions:
    """Look at the events of a server's binlog, one after the other.

    A transaction that was skipped on a server in between is known by those of the former server only: administrators
    also make empty ones on a primary, for what a replica alone has executed, and there they were read empty.

    A server into which binlog files were replayed has executed whole transactions under other servers' GTIDs, with the
    time of their first commit; where that is not logged, one with rows of a captured table shows it.

    Args:
        local_gtids: How it signs its own transactions.
        former_server: server_uuid of the server from which the stream has read them.
        is_change: Says of an event whether it changes captured tables, or may.
    """

    local_gtids: LocalGtids
    former_server: str
    is_change: Callable[[Event], bool]
    _last: tuple[str, int] | None = None
    _content: _Content = _Content.EMPTY
    _skipped: dict[tuple[_Content, int], GtidTracker] = field(default_factory=dict)
    _replayed: set[str] = field(default_factory=set)
    _signed: dict[int, set[str]] = field(default_factory=dict)
    _other_ids: Counter[int] = field(default_factory=Counter)

    def take(self, event: Event) -> None:
        """Take the next event."""
        if event.type in c.GTID_EVENTS:
            self._end_transaction()
            parsed = parse_gtid(event)
            if parsed.gtid is not None and not self._is_own(parsed, event.server_id):
                self._last, self._content = (parsed.gtid, event.server_id), _Content.EMPTY
        elif self._last is not None and self._content is not _Content.CAPTURED and not _is_around(event):
            self._content = _Content.CAPTURED if self.is_change(event) else _Content.OTHER

    def _is_own(self, parsed: GtidEvent, server_id: int) -> bool:
        """Return whether a transaction is one of the server itself, or was replayed with the time of its commit."""
        is_replayed = server_id == self.local_gtids.server_id and parsed.commit_us != parsed.immediate_commit_us
        return is_replayed or gtid_source(parsed.gtid or "").lower() == self.local_gtids.server_uuid

    def _end_transaction(self) -> None:
        if self._last is None:
            return
        (gtid, server_id), self._last = self._last, None
        is_lent, is_former = self.local_gtids.is_lent(gtid, server_id), self._is_former(gtid_source(gtid))
        if self._content is not _Content.CAPTURED:
            self._skipped.setdefault((self._content, server_id), GtidTracker("")).add(gtid)
            self._other_ids[server_id] += is_former and not is_lent and self._content is _Content.OTHER
        elif is_lent:
            self._replayed.add(gtid_source(gtid))
        else:
            self._signed.setdefault(server_id, set()).add(gtid_source(gtid).lower())

    def found(self) -> GtidSet:
        """Return the transactions that were skipped."""
        self._end_transaction()
        own, skipped = self.local_gtids, GtidSet()
        former_ids = {server_id for server_id, uuids in self._signed.items() if any(map(self._is_former, uuids))}
        former_ids = former_ids or {server_id for server_id, _ in (+self._other_ids).most_common(1)}
        for (content, server_id), tracker in self._skipped.items():
            if server_id == own.server_id and content is _Content.EMPTY:
                skipped = skipped.union(tracker.gtid_set())
            elif server_id == own.server_id:
                is_lent = lambda uuid: uuid not in own.group_uuids and uuid not in self._replayed  # noqa: E731
                skipped = skipped.union(tracker.gtid_set().of_sources(is_lent))
            elif former_ids and server_id not in former_ids:
                skipped = skipped.union(tracker.gtid_set().of_sources(self._is_former))
        return skipped

    def emptied(self) -> GtidSet:
        """Return transactions that were replicated and that something has made empty.

        Of the former server, and of those whose other transactions have changes of captured tables: the stream has read
        them there, or at another one.
        """
        self._end_transaction()
        empty = GtidSet()
        for (content, server_id), tracker in self._skipped.items():
            if content is _Content.EMPTY and server_id != self.local_gtids.server_id:
                sources = {self.former_server.lower(), *self._signed.get(server_id, ())}
                empty = empty.union(tracker.gtid_set().of_sources(sources.__contains__))
        return empty.subtract(self.found())

    def _is_former(self, uuid: str) -> bool:
        return uuid.lower() == self.former_server.lower()


def _is_around(event: Event) -> bool:
    """Return whether an event stands between transactions, or begins or ends one."""
    if event.type == c.QUERY_EVENT:
        return parse_query(event).sql.upper() in ("BEGIN", "COMMIT")
    return event.type == c.XID_EVENT or event.type in _BETWEEN
