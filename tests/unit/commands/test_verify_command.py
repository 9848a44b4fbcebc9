"""``mysql-cdc verify`` over an in-memory ledger: what it prints, hides and returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.memory_job import PROPERTIES
from kit.verify_results import CUSTOMERS, ORDERS, verify_result

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import verdict_values
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import TableVerdict, VerifyResult
from airflow_provider_mysql_cdc.commands.program import main

pytestmark = pytest.mark.quick


class Ledger:
    """A ledger with the verdicts of these tables."""

    def __init__(self) -> None:
        self.tables: tuple[TableVerdict, ...] = ()

    def peek(self) -> Any:
        values = verdict_values(build_ledger_state({}), verify_result(*self.tables)) if self.tables else ()
        return build_ledger_state({key: None if value is None else encode(value) for key, value in values})


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    found = Ledger()
    monkeypatch.setattr(kafka_clients, "ledger", lambda cfg: found)
    return found


@pytest.fixture
def verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    path = tmp_path / "shop.json"
    path.write_text(json.dumps(PROPERTIES | {"column.mask.with.4.chars": "shop.orders.secret"}))

    def run(*options: str) -> tuple[int, str, str]:
        code = main(["verify", "--properties", str(path), *options])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def test_it_prints_the_last_report_and_its_exit_code_says_whether_anything_is_left(ledger: Ledger, verify: Any) -> None:
    ledger.tables = (ORDERS, CUSTOMERS)
    code, out, err = verify()
    assert (code, err) == (1, "")
    assert out.startswith("1 of 2 tables of s differ from their topics.\n")
    assert "not judged: the topic was compacted (shop.orders)\n" in out
    ledger.tables = (CUSTOMERS,)
    assert verify()[:2] == (0, verify()[1]) and "Every topic of s equals its table" in verify()[1]


def test_it_prints_json_without_values_of_masked_columns(ledger: Ledger, verify: Any) -> None:
    ledger.tables = (ORDERS,)
    _, document, _ = verify("--format", "json")
    assert [verdict.table for verdict in VerifyResult.from_json(json.loads(document)).tables] == ["shop.orders"]
    assert "s3cret" not in document and "***" in document


def test_a_stream_that_was_never_verified_is_said_so(ledger: Ledger, verify: Any) -> None:
    code, out, err = verify()
    assert (code, out) == (3, "") and "topic.prefix=p was never verified" in err and "mysql_cdc_verify" in err
