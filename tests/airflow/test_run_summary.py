"""What a task says of its work in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from fakes import FakeOutcome, connections, install

from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.task_result import NAMED_TABLES, summary_text

OFFSET = {"file": "binlog.000002", "pos": 157}


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (
            {
                "counts": {"s.a": 40, "s.b": 2_000},
                "batches": 2,
                "tables": {"d.a": 40, "d.b%3A": 2_000},
                "offset": OFFSET,
            },
            "2,040 records in 2 batches: d.b: 2,000, d.a 40. The stream is at binlog.000002:157.",
        ),
        ({"counts": {"s.a": 1}, "batches": 1, "tables": {}, "offset": None}, "1 record in 1 batch."),
        (
            {"counts": {}, "reason": "nothing new since binlog.000002:157", "offset": OFFSET},
            "Nothing was written: nothing new since binlog.000002:157. The stream is at binlog.000002:157.",
        ),
        (
            {"counts": {}, "verification": {"tables_compared": 3, "tables_different": 1, "tables_not_compared": 2}},
            "Nothing was written. 3 tables were compared; 1 of them differs. 2 tables were not.",
        ),
        (
            {"counts": {}, "verification": {"tables_compared": 1, "tables_different": 0, "tables_not_compared": 0}},
            "Nothing was written. 1 table was compared; none differs.",
        ),
        (
            {
                "counts": {},
                "verification": {"tables_compared": 2, "tables_not_compared": 1, "tables_not_judged": 2},
            },
            "Nothing was written. 2 tables were compared; none differs. 1 table was not. "
            "1 could not be judged in full.",
        ),
    ],
)
def test_a_result_in_a_sentence(result: dict[str, Any], told: str) -> None:
    assert summary_text(result) == told


def test_thousands_of_tables_are_not_all_named() -> None:
    tables = {f"d.t{n}": n for n in range(5000)}
    text = summary_text({"counts": {"t": 9}, "batches": 1, "tables": tables})
    assert text.count("d.t") == NAMED_TABLES and text.endswith(", and 4,995 more tables.") and "d.t4999 4,999" in text


@pytest.mark.usefixtures("metadata_db")
@pytest.mark.parametrize("pushes", [True, False])
def test_the_summary_is_an_xcom_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pushes: bool) -> None:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    _, pipeline = install(monkeypatch, tmp_path)
    tally = RunTally("a", epoch=2, batches=1, tables={"db.orders": 42})
    pipeline.outcome = FakeOutcome(tally=tally)
    with DAG(f"summary_of_a_drain_{pushes}", schedule=None) as dag:
        MySqlCdcDrainOperator(task_id="drain", retries=0, do_xcom_push=pushes)
    run = run_dag(dag)
    assert run.state == "success"
    found = run.get_task_instances()[0].xcom_pull(task_ids="drain", key="summary")
    assert found == ("42 records in 1 batch: db.orders 42. The stream is at binlog.000002:157." if pushes else None)
