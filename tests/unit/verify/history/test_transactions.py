"""Transactions against the transaction topic: of which tables they are compared, and what is torn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from kit.cases import for_each
from kit.table_records import TableRecords

from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_entries import MARK
from airflow_provider_mysql_cdc.cdc.verify.history import transactions as module
from airflow_provider_mysql_cdc.cdc.verify.history.key_history import HistoryRules
from airflow_provider_mysql_cdc.cdc.verify.history.transactions import (
    SKEW_MS,
    TRANSACTION_TOPIC,
    TransactionCheck,
    TransactionFold,
    boundary_entry,
    event_entry,
    transaction_check,
)
from airflow_provider_mysql_cdc.cdc.verify.read.entries import EntryBlocks, EntryKind, FoldEntry, read_entries
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import compared_table

pytestmark = pytest.mark.quick

HISTORY = VerifyRequest(history=True)
METADATA = {"provide.transaction.metadata": "true"}
SKIP = {"event.processing.failure.handling.mode": "skip"}
BOUNDS = {"p.transaction": {0: (0, 9)}, "p.shop.t": {0: (0, 9), 1: (0, 0)}}


def check(
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str] | None = None,
    request: VerifyRequest = HISTORY,
    bounds: dict[str, dict[int, tuple[int, int]]] | None = None,
    config: dict[str, str] | None = None,
    **rules: Any,
) -> TransactionCheck:
    settings = {"cleanup.policy": "delete"} if config is None else config
    monkeypatch.setattr(module, "make_admin", lambda settings: None)
    monkeypatch.setattr(module, "topic_config", lambda admin, topic: settings)
    records = TableRecords("CREATE TABLE t (id INT PRIMARY KEY)", METADATA if properties is None else properties)
    known = BOUNDS if bounds is None else bounds
    tables = [compared_table(records.cfg, 0, records.table)]
    history = {0: HistoryRules(True, rules.get("complete", True))}
    return transaction_check(records.cfg, request, tables, history, lambda topic: known.get(topic, {}))


def test_they_are_compared_with_histories_and_where_events_carry_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(monkeypatch) == TransactionCheck("p.transaction", frozenset({0}))
    assert check(monkeypatch, {}) == TransactionCheck()
    assert check(monkeypatch, request=VerifyRequest()) == TransactionCheck()
    assert check(monkeypatch, bounds={}) == TransactionCheck(), "the stream has written none yet"


@for_each(
    ("given", "reason"),
    [
        ({"request": VerifyRequest(history=True, sample_percent=5)}, "not all keys were compared"),
        ({"properties": METADATA | SKIP}, "END records count events that were left out"),
        ({"properties": METADATA | {"topic.transaction": "shop.t"}}, "events of tables are in the transaction topic"),
        ({"config": {"cleanup.policy": "compact,delete"}}, "p.transaction is compacted"),
        ({"complete": False}, "its topic is compacted"),
        ({"bounds": BOUNDS | {"p.transaction": {0: (9, 9)}}}, "all records of partition 0 are gone"),
        ({"bounds": BOUNDS | {"p.shop.t": {0: (0, 9), 1: (9, 9)}}}, "all records of partition 1 are gone"),
    ],
)
def test_where_they_cannot_be_compared_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], reason: str
) -> None:
    found = check(monkeypatch, **given)
    assert found.tables == frozenset() and found.reasons[0].startswith("whether transactions are whole is not known")
    assert reason in found.reasons[0]


NOW = 1_700_000_000_000
TABLES = {"shop.a": 0, "shop.b": 1}


def event(number: int, table: int = 0, at: int = NOW, id_: str = "g:1", offset: int = 0) -> FoldEntry:
    block = {"id": id_, "total_order": 99, "data_collection_order": number}
    return event_entry(table, (2, offset or number), at, block)


def begin(id_: str = "g:1", at: int = NOW) -> FoldEntry:
    payload = {"status": "BEGIN", "id": id_, "event_count": None, "data_collections": None}
    return boundary_entry(TABLES, (0, 1), at, payload)


def end(id_: str = "g:1", at: int = NOW, **counts: int) -> FoldEntry:
    collections = [{"data_collection": f"shop.{name}", "event_count": n} for name, n in counts.items()]
    payload = {"status": "END", "id": id_, "event_count": sum(counts.values()), "data_collections": collections}
    return boundary_entry(TABLES, (0, 2), at, payload)


def start(table: int, at: int = NOW, offset: int = 0, partition: int = 0) -> FoldEntry:
    return FoldEntry(table, EntryKind.TOPIC_START, partition, offset, at, b"", b"")


STARTS = [start(0), start(1), start(TRANSACTION_TOPIC)]
ADD = {
    EntryKind.TRANSACTION_EVENT: TransactionFold.add_event,
    EntryKind.TRANSACTION_BOUNDARY: TransactionFold.add_boundary,
    EntryKind.TOPIC_START: TransactionFold.add_start,
}


def torn(
    entries: Sequence[FoldEntry], starts: Sequence[FoldEntry] = STARTS, tables: frozenset[int] = frozenset({0, 1})
) -> tuple[list[tuple[int, str, str]], dict[int, int]]:
    """Return what is torn, and what is not judged; the same in any order, and through blocks of bytes."""
    found = []
    for seed in range(3):
        shuffled = [*entries, *starts]
        random.Random(seed).shuffle(shuffled)
        blocks, fold = EntryBlocks(1), TransactionFold(tables)
        for entry in shuffled:
            blocks.add(entry)
        for entry in (entry for _, block in blocks.take_rest() for entry in read_entries(block)):
            ADD[entry.kind](fold, entry)
        of_this = sorted((t.table, t.transaction, t.reason) for t in fold.torn())
        found.append((of_this, fold.unjudged))
    assert found[0] == found[1] == found[2]
    return found[0]


WHOLE = [begin(), event(1), event(2), event(1, 1), end(a=2, b=1, elsewhere=7)]


@for_each(
    "entries",
    [
        WHOLE,
        [*WHOLE, *WHOLE],  # the stream was moved back
        [*WHOLE, begin(), end(a=2)],  # and captures less
        [begin(), end()],
        [begin(), end(elsewhere=3)],
        [begin(), *(event(n) for n in range(1, 1001)), end(a=1000)],
    ],
)
def test_what_may_happen_is_not_torn(entries: list[FoldEntry]) -> None:
    assert torn(entries) == ([], {})


@for_each(
    ("entries", "wrong"),
    [
        ([begin(), event(1), end(a=2)], [(0, "g:1", "1 of the 2 events that END counts")]),
        ([begin(), end(a=2)], [(0, "g:1", "0 of the 2 events that END counts")]),
        ([begin(), event(1), event(1, offset=9), end(a=2)], [(0, "g:1", "1 of the 2 events that END counts")]),
        ([begin(), event(1), event(2), end(a=1)], [(0, "g:1", "2 of the 1 events that END counts")]),
        ([begin(), event(1), event(1, 1), end(a=1)], [(1, "g:1", "1 of the 0 events that END counts")]),
        ([begin(), event(1)], [(0, "g:1", "1 events of a transaction without END")]),
        ([event(1), end(a=1)], [(0, "g:1", "1 events of a transaction without BEGIN")]),
        ([event(1), event(1, 1)], [(n, "g:1", "1 events of a transaction without END") for n in (0, 1)]),
        ([*WHOLE, begin("g:2"), end("g:2", b=1)], [(1, "g:2", "0 of the 1 events that END counts")]),
    ],
)
def test_events_that_are_missing_or_not_counted_are_found(
    entries: list[FoldEntry], wrong: list[tuple[int, str, str]]
) -> None:
    assert torn(entries) == (wrong, {})


def test_no_block_begins_as_those_of_checksums_do() -> None:
    blocks = EntryBlocks(1)
    blocks.add(start(TRANSACTION_TOPIC))
    ((_, block),) = blocks.take_rest()
    assert not block.startswith(MARK)


MISSING = [begin(), event(1), end(a=2)]


def test_what_has_lost_its_first_records_is_not_judged_before_them() -> None:
    assert torn(MISSING, [start(0, NOW, offset=5), *STARTS[1:]]) == ([], {0: 1})
    assert torn(MISSING, [start(0, NOW - SKEW_MS, offset=5), *STARTS[1:]])[0] != []
    # Parts of one partition: the first one counts.
    assert torn(MISSING, [start(0, NOW - 9), start(0, NOW + 9, offset=5), *STARTS[1:]])[0] != []
    assert torn(MISSING, [start(0, NOW - 9), start(0, NOW, 5, partition=1), *STARTS[1:]]) == ([], {0: 1})
    # A topic that was created again has nothing of earlier transactions.
    assert torn(MISSING, [start(0, NOW + 1), *STARTS[1:]]) == ([], {0: 1})
    assert torn([event(1)], [*STARTS[:2], start(TRANSACTION_TOPIC, NOW, offset=5)]) == ([], {0: 1})
    assert torn(MISSING, STARTS[1:]) == ([], {0: 1})
    assert torn(MISSING, tables=frozenset({1})) == ([], {})
