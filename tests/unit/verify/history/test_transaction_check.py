"""Of which tables transactions are compared with the transaction topic."""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each
from kit.table_records import TableRecords

from airflow_provider_mysql_cdc.cdc.verify.compared_table import compared_table
from airflow_provider_mysql_cdc.cdc.verify.history import transaction_check as module
from airflow_provider_mysql_cdc.cdc.verify.history.key_history import HistoryRules
from airflow_provider_mysql_cdc.cdc.verify.history.transaction_check import TransactionCheck, transaction_check
from airflow_provider_mysql_cdc.cdc.verify.report.verify_request import VerifyRequest

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
