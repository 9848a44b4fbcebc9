"""A ledger topic with records of others is never written to."""

from __future__ import annotations

import json

import pytest
from kit.cases import for_each
from kit.memory_kafka import MemoryKafka
from kit.memory_ledger import MemoryLedger

from airflow_provider_mysql_cdc.cdc.commit.ledger_cache import LedgerValues
from airflow_provider_mysql_cdc.cdc.commit.ledger_owner import claim_ledger, require_own_prefix, require_own_records
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.errors import ERROR_TYPES, ForeignLedgerError


def values(*keys: str, value: bytes | None = b"{}") -> LedgerValues:
    return LedgerValues(dict.fromkeys(keys, value), {key: n for n, key in enumerate(keys)})


OWN = ("plan", "plan/3", "snapshot-table/d.t", "writer/0", "chunk/d.t/0", "topic/t", "error/12", "told",
       "unchecked/d.t", "incremental/state", "signal/airflow/x", "signal-offset", "signals-taken",
       "owner/p")  # fmt: skip


def test_every_key_of_the_ledger_is_its_own() -> None:
    require_own_records("l", values(*OWN))
    require_own_records("l", values())


def test_an_unknown_key_beside_known_ones_is_for_the_check_of_versions() -> None:
    require_own_records("l", values("plan", "later", "later-thing/1"))
    with pytest.raises(ForeignLedgerError, match="offset 0"):
        require_own_records("l", values("later"))


@for_each(
    ("key", "whose"),
    [
        ("", "unknown program"),
        ("connector-shop", "Kafka Connect's configuration of connector shop"),
        (json.dumps(["shop", {"server": "x"}]), "an offset of Kafka Connect's connector shop"),
        (json.dumps({"id": 1}), "unknown program"),
    ],
)
def test_a_record_of_others_is_named_and_stays(key: str, whose: str) -> None:
    with pytest.raises(ForeignLedgerError, match=whose) as caught:
        require_own_records("l", values(*OWN, key))
    assert caught.value.where == f"topic l, offset {len(OWN)}" and "ledger.topic" in caught.value.remedy
    require_own_records("l", values(key, value=None))  # somebody has deleted it


def test_the_ledger_of_another_stream_is_named() -> None:
    assert ERROR_TYPES["ForeignLedgerError"] is ForeignLedgerError
    for prefix in ("", "shop"):
        require_own_prefix("l", "shop", LedgerState(owner=prefix))
    with pytest.raises(ForeignLedgerError, match=r"belongs to topic\.prefix=other, not to shop"):
        require_own_prefix("l", "shop", LedgerState(owner="other"))


@pytest.mark.req("TOPIC-08")
def test_the_first_stream_owns_a_ledger_before_anything_is_planned() -> None:
    kafka = MemoryKafka()
    first, second = MemoryLedger(kafka, "l", "first"), MemoryLedger(kafka, "l", "second")
    first.claim()
    assert not kafka.logs["l", 0]  # there is no topic yet
    first.ensure()
    first.claim(), first.claim()
    assert [r.key for r in kafka.committed("l")] == [b"owner/first"]
    for use in (second.claim, second.peek, second.read):
        with pytest.raises(ForeignLedgerError, match=r"belongs to topic\.prefix=first, not to second"):
            use()
    assert len(kafka.committed("l")) == 1 and first.peek().owner == "first"


@pytest.mark.req("TOPIC-08")
def test_of_two_streams_that_claim_at_the_same_moment_the_first_one_stays() -> None:
    kafka = MemoryKafka()
    first, second = MemoryLedger(kafka, "l", "first"), MemoryLedger(kafka, "l", "second")
    first.ensure()
    reads: list[LedgerState] = []

    def peek() -> LedgerState:
        reads.append(second.peek())
        if len(reads) == 1:
            first.claim()
        return reads[-1]

    with pytest.raises(ForeignLedgerError, match=r"belongs to topic\.prefix=first"):
        claim_ledger("second", peek, lambda key, value: kafka.append("l", key.encode(), value))
    assert [(r.key, r.value is None) for r in kafka.committed("l")] == [
        (b"owner/first", False),
        (b"owner/second", False),
        (b"owner/second", True),
    ]
    first.claim()
    assert first.peek().owner == "first" and len(kafka.committed("l")) == 3
