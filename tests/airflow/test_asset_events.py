"""Asset events: of the offset, the pipeline and each table, only when something happened, and who they start."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.sdk import DAG, Asset
from airflow_home import run_dag
from fakes import FakeOutcome, FakePipeline

from airflow_provider_mysql_cdc.assets.mysql_cdc import create_asset, pipeline_asset, table_asset, table_uri
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import OTHERS_LABEL
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamMetrics
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.operators import job_run as following
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.state.asset_store import MetadataAccessor

pytestmark = pytest.mark.usefixtures("metadata_db")
PIPELINE = "mysql-cdc://mysql.example:3307/shop"
START = BinlogOffset("binlog.000001", 157)
OFFSET = {"file": "binlog.000002", "pos": 157}
TALLY = RunTally(
    "run",
    epoch=5,
    batches=2,
    start=START,
    counts={"shop.db.orders": 42, "shop.db.items": 1, "shop": 1},
    tables={"db.orders": 42, "db.it%2Eems": 1, OTHERS_LABEL: 9, "db.quiet": 0},
    metrics=StreamMetrics(
        streaming={"last_event_ms": 1_764_201_600_250, "MilliSecondsBehindSource": 250}, at_ms=1_764_201_601_000
    ),
    started_ms=1_764_201_599_000,
)
RANGE = {
    "stream": "shop",
    "from": START.to_json(),
    "offset": OFFSET,
    "batches": 2,
    "last_batch": 5,
    "started": "2025-11-26T23:59:59.000+00:00",
    "ended": "2025-11-27T00:00:01.000+00:00",
    "last_change": "2025-11-27T00:00:00.000+00:00",
}


def drain(dag_id: str, **arguments: Any) -> Any:
    with DAG(dag_id, schedule=None) as dag:
        MySqlCdcDrainOperator(task_id="drain", retries=1, retry_delay=timedelta(0), **arguments)
    return run_dag(dag)


def events(run: Any) -> dict[str, Any]:
    """Return the extra of each event that a run has made, by the asset's URI."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(AssetEvent).filter_by(source_run_id=run.run_id).all()
        told = {event.asset.uri: event.extra for event in found}
        assert len(told) == len(found)
        return told


def test_offset_pipeline_and_the_tables_that_were_written_have_events(fakes: Any) -> None:
    _, pipeline = fakes
    pipeline.outcome = FakeOutcome(tally=TALLY, counts=dict(TALLY.counts))
    run = drain("events_of_all")
    assert run.state == "success"
    told = events(run)
    assert set(told) == {"mysql_cdc_offsets", PIPELINE, f"{PIPELINE}/db.orders", f"{PIPELINE}/db.it%2Eems"}
    totals = {**RANGE, "counts": dict(TALLY.counts), "tables": dict(TALLY.tables)}
    assert told["mysql_cdc_offsets"] == told[PIPELINE] == totals
    names = {"database": "db", "table": "orders", "topic": "shop.db.orders"}
    assert told[f"{PIPELINE}/db.orders"] == {**RANGE, **names, "records": 42}
    names = {"database": "db", "table": "it.ems", "topic": "shop.db.it.ems"}
    assert told[f"{PIPELINE}/db.it%2Eems"] == {**RANGE, **names, "records": 1}
    result = run.get_task_instances()[0].xcom_pull(task_ids="drain")
    assert (result["batches"], result["counts"]) == (2, dict(TALLY.counts))
    assert result["tables"]["db.orders"] == 42
    assert pipeline.told == [(TALLY, f"events_of_all/{run.run_id}/drain/-1#0")]


def test_a_batch_without_records_moves_the_offset_only(fakes: Any) -> None:
    _, pipeline = fakes
    pipeline.outcome = FakeOutcome(tally=RunTally("run", 3, 1, START), counts={})
    told = events(drain("events_of_offset"))
    assert set(told) == {"mysql_cdc_offsets"}
    times = {name: told["mysql_cdc_offsets"][name] for name in ("started", "ended", "last_change")}
    assert times == dict.fromkeys(times), "times that are not known are not made up"


def test_an_event_follows_the_transforms_to_the_topic(fakes: Any) -> None:
    _, pipeline = fakes
    pipeline.outcome = FakeOutcome(tally=TALLY, counts=dict(TALLY.counts))
    router = {"type": "io.debezium.transforms.ByLogicalTableRouter", "topic.regex": ".*", "topic.replacement": "all"}
    transforms = {"transforms": "route", **{f"transforms.route.{name}": text for name, text in router.items()}}
    told = events(drain("events_of_a_router", properties=transforms))
    assert told[f"{PIPELINE}/db.orders"]["topic"] == "all"


def test_nothing_to_do_makes_no_event_but_a_point_of_the_lag(fakes: Any) -> None:
    _, pipeline = fakes
    pipeline.nothing = 1
    run = drain("events_of_nothing")
    assert run.state == "success"
    assert events(run) == {} and pipeline.told == []
    accessor = MetadataAccessor("mysql_cdc_offsets")
    # Streams of other tests have points in the same database.
    keys = accessor.keys()
    points = [accessor.get(key)["points"][-1] for key in keys if key.startswith("lag/")]
    point = max(points, key=lambda each: each["at_ms"])
    assert point["at_ms"] == point["until_ms"] >= run.start_date.timestamp() * 1000


def test_a_run_that_has_nothing_to_do_reports_what_a_run_that_was_ended_has_not(fakes: Any) -> None:
    """Otherwise who waits for a table's event would hear of its records when the next one comes, or never."""
    _, pipeline = fakes
    pipeline.nothing, pipeline.left = 1, TALLY
    store = SimpleNamespace(load=lambda: StoredState(committed=START))
    with mock.patch.object(MySqlCdcHook, "get_offset_store", return_value=store):
        run = drain("events_of_an_ended_run")
    assert f"{PIPELINE}/db.orders" in events(run)
    assert pipeline.told == [(TALLY, f"events_of_an_ended_run/{run.run_id}/drain/-1#0")]


def test_a_retry_that_has_nothing_to_do_reports_what_the_first_try_wrote(
    fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    def settle(self: FakePipeline, *_: Any) -> Any:
        self.nothing = 1
        raise SinkConnectionError("no broker answers")

    def tally_of(cfg: Any, run: str) -> RunTally:
        runs.append(run)
        return TALLY

    monkeypatch.setattr(FakePipeline, "settle_offset", settle)
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.operate.stored_offset.tally_of", tally_of)
    run = drain("events_of_a_retry")
    assert run.state == "success"
    assert runs == [f"events_of_a_retry/{run.run_id}/drain/-1#0"]
    assert f"{PIPELINE}/db.orders" in events(run)
    assert fakes[0].record["spec"]["run"] == runs[0]


def test_a_failed_task_makes_no_event(fakes: Any) -> None:
    submit, pipeline = fakes
    submit.set(code=1)
    pipeline.outcome = FakeOutcome(complete=False, tally=TALLY)
    run = drain("events_of_failure")
    assert run.state == "failed"
    assert events(run) == {} and pipeline.told == [], "the next run tells of it"


def queued(*dag_ids: str) -> list[str]:
    """Return which DAGs have an asset event waiting."""
    from airflow.models.asset import AssetDagRunQueue
    from airflow.utils.session import create_session

    with create_session() as session:
        return sorted({q.target_dag_id for q in session.query(AssetDagRunQueue) if q.target_dag_id in dag_ids})


def test_dags_are_scheduled_on_a_table_s_asset_under_any_name(fakes: Any) -> None:
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    _, pipeline = fakes
    pipeline.outcome = FakeOutcome(tally=TALLY, counts=dict(TALLY.counts))
    wanted = {
        "on_orders": table_asset("MySQL.example", "shop", "db", "orders", 3307),
        "on_items": Asset(name="items of the shop", uri=table_uri("mysql.example", "shop", "db", "it.ems", 3307)),
        "on_pipeline": pipeline_asset("mysql.example", "shop", 3307),
        "on_quiet": table_asset("mysql.example", "shop", "db", "quiet", 3307),
        "on_other_port": table_asset("mysql.example", "shop", "db", "orders"),
    }
    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(dag_folder=os.devnull)
    for dag_id, asset in wanted.items():
        bag.bag_dag(DAG(dag_id, schedule=asset))
    sync_bag_to_db(bag, "dags-folder", None)
    with create_session() as session:
        session.query(DagModel).filter(DagModel.dag_id.in_(wanted)).update({"is_paused": False})
    assert queued(*wanted) == []
    run = drain("events_for_consumers")
    assert run.state == "success"
    assert queued(*wanted) == ["on_items", "on_orders", "on_pipeline"]


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("mysql-cdc://DB.example/shop", "mysql-cdc://db.example:3306/shop"),
        ("MySQL-CDC://someone@db:3307/shop/", "mysql-cdc://db:3307/shop"),
        ("mysql-cdc://db:3306/a%2Fb/d.t?x=1#y", "mysql-cdc://db:3306/a%2Fb/d.t"),
        ("mysql-cdc://[::1]/shop/d.t", "mysql-cdc://[::1]:3306/shop/d.t"),
        ("mysql-cdc://db/shop/d.öl", "mysql-cdc://db:3306/shop/d.%C3%B6l"),
        ("mysql-cdc://db/shop/d.%c3%b6%2el", "mysql-cdc://db:3306/shop/d.%C3%B6%2El"),
    ],
)
def test_a_uri_has_one_form(written: str, normal: str) -> None:
    assert Asset(written).uri == normal
    assert Asset(normal).uri == normal


@pytest.mark.parametrize(
    "written", ["mysql-cdc://db", "mysql-cdc:///shop/a.b", "mysql-cdc://db/shop/t", "mysql-cdc://db/shop/a.b.c"]
)
def test_a_uri_that_names_no_pipeline_and_no_table_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"mysql-cdc://|db\.table"):
        Asset(written)


def test_names_of_tables_come_through_a_uri_as_they_are() -> None:
    odd = table_asset("::1", "sh op", "d.b", "t/a ble.ü")
    assert odd.uri == odd.name == "mysql-cdc://[::1]:3306/sh%20op/d%2Eb.t%2Fa%20ble%2E%C3%BC"
    assert create_asset(host="::1", prefix="sh op", db="d.b", table="t/a ble.ü").uri == odd.uri
    assert create_asset(host="h", prefix="p").uri == pipeline_asset("h", "p").uri


def test_the_offset_follows_while_spark_works_and_trouble_with_it_ends_no_job(
    fakes: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, _ = fakes
    seen = submit.folder / "followed"
    # It ends when it is seen twice; where nobody looks any more it ends all the same.
    wait = f"import time\nend = time.time() + 300\nwhile time.time() < end and not os.path.exists({str(seen)!r}):"
    submit.set(body=f"{wait} time.sleep(0.05)")
    looks: list[str] = []

    def follow(cfg: Any, store: Any, log: Any) -> None:
        looks.append(cfg.topic_prefix)
        assert store.load() is None  # the store can be used from the thread
        if len(looks) == 1:
            raise SinkConnectionError("no broker answers")
        seen.touch()

    monkeypatch.setattr(following, "LEDGER_POLL_S", 0.01)
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.operate.stored_offset.follow_ledger", follow)
    assert drain("following").state == "success"
    assert looks[:2] == ["shop", "shop"]
    assert "The stored offset could not be moved yet: SinkConnectionError" in "".join(capfd.readouterr())
    assert [t.name for t in threading.enumerate() if t.name == "cdc-follow"] == []
