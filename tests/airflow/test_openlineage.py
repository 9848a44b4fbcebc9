"""Lineage of tasks: what the real client of OpenLineage writes when its provider asks the operators."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from airflow.sdk import DAG, BaseOperator
from airflow_home import run_dag
from fake_driver import Driver
from fakes import KAFKA_PASSWORD, PASSWORD, FakeOutcome, FakePipeline, FakeStream, FakeSubmit, connections, install
from kit.verify_results import CUSTOMERS, ORDERS, verify_result
from lineage_events import by_name, events_of, lineage_events

from airflow_provider_mysql_cdc.assets.mysql_cdc import pipeline_asset, table_asset, verification_asset
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.plan import OTHERS_LABEL, encode
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.operate import data_flow, settle
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import verdict_values
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import NotCompared, TableVerdict, VerifyRequest
from airflow_provider_mysql_cdc.operators import detached_driver
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.incremental import MySqlCdcIncrementalSnapshotOperator
from airflow_provider_mysql_cdc.operators.snapshot import MySqlCdcSnapshotOperator
from airflow_provider_mysql_cdc.operators.verify import MySqlCdcVerifyOperator

pytestmark = pytest.mark.usefixtures("metadata_db")
ROOT = Path(__file__).resolve().parents[2]
MYSQL, KAFKA = "mysql://mysql.example:3307", "kafka://kafka.example:9092"
TALLY = RunTally(
    "run",
    epoch=5,
    batches=2,
    start=BinlogOffset("binlog.000001", 157),
    counts={"shop.db.orders": 42, "shop.db.items": 3, "shop": 1, "db.t (captured and never read)": 1, OTHERS_LABEL: 8},
    tables={"db.orders": 42, "db.items": 3, OTHERS_LABEL: 8},
)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeSubmit, FakePipeline]:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    no_structures: dict[TableId, Table] = {}
    monkeypatch.setattr(data_flow, "read_structures", lambda *_: no_structures)
    submit, pipeline = install(monkeypatch, tmp_path)
    pipeline.outcome = FakeOutcome(tally=TALLY, counts=dict(TALLY.counts))
    return submit, pipeline


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    with lineage_events(monkeypatch, tmp_path) as events:
        yield events


def drain(dag_id: str, **arguments: Any) -> Any:
    with DAG(dag_id, schedule=None) as dag:
        MySqlCdcDrainOperator(task_id="drain", retries=0, retry_delay=timedelta(0), **arguments)
    return run_dag(dag)


def validate(event: dict[str, Any], facet: str) -> dict[str, Any]:
    """Check one of the package's own facets against the schema that it names; return it."""
    content = event["run"]["facets"][facet]
    schema = ROOT / "docs" / "openlineage" / content["_schemaURL"].rsplit("/", 1)[1]
    jsonschema.validate(content, json.loads(schema.read_text()))
    return dict(content)


def test_a_drain_names_its_tables_and_topics_with_their_counts(fakes: Any, file: Path) -> None:
    assert drain("lineage_of_a_drain", properties={"table.include.list": r"db.orders,db\.it.*"}).state == "success"
    start, complete = events_of(file, "drain")
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert set(by_name(start["inputs"])) == {(MYSQL, "db.orders")}, "only what is named is known before"
    assert set(by_name(start["outputs"])) == {(KAFKA, "shop.db.orders")}
    inputs, outputs = by_name(complete["inputs"]), by_name(complete["outputs"])
    assert set(inputs) == {(MYSQL, "db.orders"), (MYSQL, "db.items")}
    assert inputs[MYSQL, "db.orders"]["inputFacets"]["inputStatistics"]["rowCount"] == 42
    written = {topic: output["outputFacets"]["outputStatistics"]["rowCount"] for (_, topic), output in outputs.items()}
    assert written == {"shop.db.orders": 42, "shop.db.items": 3, "shop": 1}
    batches = validate(complete, "mysqlCdc_batches")
    assert (batches["stream"], batches["batches"]) == ("shop", 2)
    assert (batches["file"], batches["position"]) == ("binlog.000002", 157)


def test_a_failure_says_what_the_error_says(fakes: Any, file: Path) -> None:
    _, pipeline = fakes
    pipeline.error = BinlogPurgedError(
        "the binlog was purged", where="binlog.000001", why="it is old", remedy="take a snapshot"
    )
    assert drain("lineage_of_a_failure", properties={"table.include.list": "db.orders"}).state == "failed"
    failed = events_of(file, "drain")[-1]
    assert failed["eventType"] == "FAIL"
    assert set(by_name(failed["outputs"])) == {(KAFKA, "shop.db.orders")}
    error = validate(failed, "mysqlCdc_error")
    assert (error["name"], error["where"], error["canRetry"]) == ("BinlogPurgedError", "binlog.000001", False)
    assert "take a snapshot" in error["remedy"]
    assert "the binlog was purged" in failed["run"]["facets"]["errorMessage"]["message"]


def test_a_configuration_that_cannot_be_read_fails_in_the_task_alone(fakes: Any, file: Path) -> None:
    assert drain("lineage_of_no_config", properties={"no.such.property": 1}).state == "failed"
    failed = events_of(file, "drain")[-1]
    assert (failed["inputs"], failed["outputs"]) == ([], [])
    assert validate(failed, "mysqlCdc_error")["name"] == "ConfigError"


def test_no_event_has_a_secret(fakes: Any, file: Path) -> None:
    _, pipeline = fakes
    assert drain("lineage_of_secrets").state == "success"
    pipeline.error = BinlogPurgedError("purged", where="here")
    assert drain("lineage_of_failed_secrets").state == "failed"
    text = file.read_text()
    assert PASSWORD not in text and KAFKA_PASSWORD not in text
    assert MYSQL in text and KAFKA in text


def test_a_deferred_task_is_described_when_its_driver_has_ended(
    fakes: Any, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(fakes[0], tmp_path)
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.operate.end_run.lock_connection", driver.holder_of)
    monkeypatch.setattr(detached_driver, "DRIVER_POLL_S", 0.1)
    assert drain("lineage_of_a_deferred_drain", deferrable=True, poll_interval=0.1).state == "success"
    assert driver.starts() == 1
    (complete,) = [event for event in events_of(file, "drain") if event["eventType"] == "COMPLETE"]
    assert set(by_name(complete["inputs"])) == {(MYSQL, "db.orders"), (MYSQL, "db.items")}
    assert (KAFKA, "shop.db.orders") in by_name(complete["outputs"])


def test_an_ad_hoc_snapshot_names_what_its_drains_wrote(
    fakes: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes[1].settled = FakeStream(monkeypatch, drains=1).drain
    with DAG("lineage_of_an_adhoc_snapshot", schedule=None) as dag:
        MySqlCdcIncrementalSnapshotOperator(task_id="again", tables=["db.orders", "db.it*"], retries=0)
    assert run_dag(dag).state == "success"
    start, complete = events_of(file, "again")
    assert set(by_name(start["inputs"])) == {(MYSQL, "db.orders")}
    assert set(by_name(complete["inputs"])) == {(MYSQL, "db.orders"), (MYSQL, "db.items")}
    assert (KAFKA, "shop.db.orders") in by_name(complete["outputs"])


def test_a_snapshot_names_what_it_read_and_which_values_are_hidden(
    fakes: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ddl = "CREATE TABLE orders (id INT PRIMARY KEY, card VARCHAR(20))"
    (table,) = apply_ddl(SchemaState(), ddl, DdlContext(default_db="db")).state.tables.values()
    monkeypatch.setattr(data_flow, "read_structures", lambda *_: {TableId("db", "orders"): table})
    masked = {"column.mask.with.4.chars": r"db\.orders\.card"}
    with DAG("lineage_of_a_snapshot", schedule=None) as dag:
        MySqlCdcSnapshotOperator(task_id="first", tables="db.orders", properties=masked, retries=0)
    assert run_dag(dag).state == "success"
    start, complete = events_of(file, "first")
    assert set(by_name(start["outputs"])) == {(KAFKA, "shop.db.orders")}
    topic = by_name(complete["outputs"])[KAFKA, "shop.db.orders"]
    assert topic["outputFacets"]["outputStatistics"]["rowCount"] == 42
    fields = topic["facets"]["columnLineage"]["fields"]
    steps = {name: field["inputFields"][0]["transformations"][0] for name, field in fields.items()}
    assert {name: (step["subtype"], step["masking"]) for name, step in steps.items()} == {
        **dict.fromkeys(("before.id", "after.id"), ("IDENTITY", False)),
        **dict.fromkeys(("before.card", "after.card"), ("TRANSFORMATION", True)),
    }


def test_a_verification_reads_tables_and_topics_and_says_which_are_equal(
    fakes: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, pipeline = fakes
    pipeline.outcome = FakeOutcome(counts={})
    unread = TableVerdict("shop.unread", "s.shop.unread", not_compared=NotCompared.UNREAD)

    def ledger(*_: Any) -> Any:
        spec = submit.record["spec"]
        request = VerifyRequest.from_json(spec["options"])
        result = verify_result(ORDERS, CUSTOMERS, unread, run=spec["run"], request=request)
        values = verdict_values(build_ledger_state({}), result)
        return build_ledger_state({key: None if value is None else encode(value) for key, value in values})

    monkeypatch.setattr(settle, "read_ledger", ledger)
    with DAG("lineage_of_a_verification", schedule=None) as dag:
        MySqlCdcVerifyOperator(task_id="verify", retries=0)
    assert run_dag(dag).state == "success"
    complete = events_of(file, "verify")[-1]
    inputs = by_name(complete["inputs"])
    assert set(inputs) == {
        (MYSQL, "shop.orders"),
        (MYSQL, "shop.customers"),
        (KAFKA, "shop.shop.orders"),
        (KAFKA, "shop.shop.customers"),
    }
    assertions = {
        name: inputs[KAFKA, name]["inputFacets"]["dataQualityAssertions"]["assertions"]
        for name in ("shop.shop.orders", "shop.shop.customers")
    }
    assert [entry["success"] for entry in assertions["shop.shop.customers"]] == [True]
    assert [entry["success"] for entry in assertions["shop.shop.orders"]] == [False]
    assert "1 missing" in assertions["shop.shop.orders"][0]["actual"]
    assert complete["outputs"] == []


WITHOUT = """
import sys
import airflow.configuration  # finds the provider by its entry point, which is not there otherwise
class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "openlineage" or name.startswith("airflow.providers.openlineage"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, NotInstalled())
from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline
made = cdc_pipeline("shop", mysql_cdc_conn_id="mysql_shop")
task = made["shop_drain"].get_task("drain")
try:
    task.get_openlineage_facets_on_complete(None)
except ModuleNotFoundError as error:
    print(len(made), error)
"""


def test_the_operators_work_where_openlineage_is_not_installed() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("7 No module named 'airflow.providers.openlineage")


class _Report(BaseOperator):  # type: ignore[misc]
    """A consumer, which says nothing of its lineage."""

    def execute(self, context: Any) -> None:
        """Do nothing."""


def test_assets_of_a_consumer_are_the_datasets_that_the_pipeline_s_tasks_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host, port = "MySQL.example", 3307
    inlets = [table_asset(host, "shop", "db", name, port) for name in ("orders", "o.dd é")]
    outlets = [pipeline_asset(host, "shop", port), verification_asset(host, "shop", port)]
    with lineage_events(monkeypatch, tmp_path) as file:
        with DAG("lineage_of_a_consumer", schedule=None) as dag:
            _Report(task_id="report", inlets=inlets, outlets=outlets)
        assert run_dag(dag).state == "success"
    complete = events_of(file, "report")[-1]
    assert set(by_name(complete["inputs"])) == {(MYSQL, "db.orders"), (MYSQL, "db.o.dd é")}
    pipeline = "mysql-cdc://mysql.example:3307"
    assert set(by_name(complete["outputs"])) == {(pipeline, "shop"), (pipeline, "shop/verification")}
