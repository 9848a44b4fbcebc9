"""A ledger topic with records of others is never written to."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from kit.store_contract import plan

from airflow_provider_mysql_cdc.cdc.commit.ledger_cache import LedgerValues
from airflow_provider_mysql_cdc.cdc.commit.ledger_owner import require_own_prefix, require_own_records
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.errors import ERROR_TYPES, ForeignLedgerError


def values(*keys: str, value: bytes | None = b"{}") -> LedgerValues:
    return LedgerValues(dict.fromkeys(keys, value), {key: n for n, key in enumerate(keys)})


OWN = ("plan", "plan/3", "snapshot-table/d.t", "writer/0", "chunk/d.t/0", "topic/t", "error/12", "told",
       "unchecked/d.t", "incremental/state", "signal/airflow/x", "signal-offset", "signals-taken")  # fmt: skip


def test_every_key_of_the_ledger_is_its_own() -> None:
    require_own_records("l", values(*OWN))
    require_own_records("l", values())


def test_a_key_of_a_later_version_is_left_alone_beside_known_ones() -> None:
    require_own_records("l", values("plan", "later", "later-thing/1"))
    with pytest.raises(ForeignLedgerError, match="offset 0"):
        require_own_records("l", values("later"))


@pytest.mark.parametrize(
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


def test_the_plan_of_another_stream_is_named() -> None:
    assert ERROR_TYPES["ForeignLedgerError"] is ForeignLedgerError
    for prefix in ("", "shop"):
        require_own_prefix("l", "shop", LedgerState(plan=replace(plan(), prefix=prefix)))
    with pytest.raises(ForeignLedgerError, match=r"belongs to topic\.prefix=other, not to shop"):
        require_own_prefix("l", "shop", LedgerState(plan=replace(plan(), prefix="other")))
