"""Find the first change in the binlog that a stream would write, without changing or registering anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.query import begin_thread_id
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.ddl.classify import CapturePredicate, classify_ddl, in_any_case
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import is_one_phase, parse_xa
from airflow_provider_mysql_cdc.cdc.model.gtid import gtid_source
from airflow_provider_mysql_cdc.cdc.model.table import TableId

MAX_EVENTS = 200_000
"""Events that a search reads; where none of them is a change, the transaction after them stands for the change."""


@dataclass(frozen=True, slots=True)
class FoundChange:
    """Say when the first change was committed.

    Args:
        committed_ms: When, milliseconds since 1970 by the server's clock.
        certain: Whether it is a change; otherwise the search ended before one, and the first is at most as old.
    """

    committed_ms: int
    certain: bool


def find_first_change(
    events: Iterable[Event], captures: CapturePredicate, counts_source: Callable[[str], bool] = lambda uuid: True
) -> FoundChange | None:
    """Return the first change of a captured table; None when there is none.

    Args:
        events: The events from a transaction boundary on.
        captures: Which tables matter.
        counts_source: Whether rows of a server's transactions become records, by its uuid.

    Raises:
        CdcError: The binlog cannot be read.
    """
    search = _ChangeSearch(captures, counts_source)
    for number, event in enumerate(events):
        if event.type in c.GTID_EVENTS:
            if number >= MAX_EVENTS:
                return FoundChange(search.committed_ms(event), certain=False)
            search.begin(event)
        elif (check := _CHECKS.get(event.type)) is not None and check(search, event):
            return FoundChange(search.committed_ms(event), certain=True)
    return None


@dataclass(slots=True)
class _ChangeSearch:
    """Remember the transaction that is being read."""

    captures: CapturePredicate
    counts_source: Callable[[str], bool]
    _counts: bool = True
    _commit_us: int = 0
    _in_xa: bool = False
    _xa_has_change: bool = False

    def begin(self, event: Event) -> None:
        parsed = ev.parse_gtid(event)
        self._counts = parsed.gtid is None or self.counts_source(gtid_source(parsed.gtid))
        self._commit_us = parsed.immediate_commit_us or parsed.commit_us

    def committed_ms(self, event: Event) -> int:
        """Return when the transaction of an event was committed; servers before 8.0 log no time of commits."""
        if event.type in c.GTID_EVENTS:
            self.begin(event)
        return self._commit_us // 1000 or event.timestamp * 1000

    def table_map(self, event: Event) -> bool:
        table_map = parse_table_map(event)
        captured = self._counts and self.captures(TableId(table_map.db, table_map.table))
        self._xa_has_change = self._xa_has_change or captured
        return captured and not self._in_xa

    def xa_prepare(self, event: Event) -> bool:
        """Rows of a transaction that is only prepared are no change yet."""
        changed = self._xa_has_change and is_one_phase(event)
        self._in_xa = self._xa_has_change = False
        return changed

    def query(self, event: Event) -> bool:
        if begin_thread_id(event) is not None:
            return False
        query = ev.parse_query(event)
        sql = query.sql.strip()
        if (statement := parse_xa(sql)) is not None:
            self._in_xa = statement[0] == "START"
            return statement[0] == "COMMIT"
        context = DdlContext(query.db or "", sql_mode=query.sql_mode or 0)
        return classify_ddl(sql, context, in_any_case(self.captures)).relevant


_CHECKS: dict[int, Callable[[_ChangeSearch, Event], bool]] = {
    c.TABLE_MAP_EVENT: _ChangeSearch.table_map,
    c.XA_PREPARE_LOG_EVENT: _ChangeSearch.xa_prepare,
    c.QUERY_EVENT: _ChangeSearch.query,
}
