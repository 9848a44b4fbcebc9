"""What a task sends of the stream's metrics, with Airflow's own interface and a metadata database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.observability import stats
from airflow_home import run_dag
from fakes import FakeOutcome, FakePipeline, FakeSubmit, connections, install

from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError
from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import StreamLag
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamCounts, StreamMetrics
from airflow_provider_mysql_cdc.cdc.operate import stream_status
from airflow_provider_mysql_cdc.cdc.operate.stream_status import StreamStatus
from airflow_provider_mysql_cdc.cdc.sink import topics
from airflow_provider_mysql_cdc.operators import task_result
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator

pytestmark = pytest.mark.usefixtures("metadata_db")
METRICS = StreamMetrics(
    StreamCounts(created=5), streaming={"Connected": False, "BinlogFilename": "b.000001", "BinlogPosition": 9}, at_ms=7
)


class Backend(NoStatsLogger):
    """A backend of Airflow's metrics that keeps what it gets."""

    def __init__(self) -> None:
        self.gauges: dict[tuple[str, str], float] = {}

    def gauge(self, stat: str, value: float, *_: Any, tags: Any = None, **__: Any) -> None:
        self.gauges[stat, (tags or {}).get("server", "")] = value


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    found = Backend()
    stats.initialize(factory=lambda: found, export_legacy_names=False)
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    monkeypatch.setenv("AIRFLOW__METRICS__LEGACY_NAMES_ON", "True")
    yield found
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    monkeypatch.undo()
    stats.initialize(factory=get_stats_factory(), export_legacy_names=True)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeSubmit, FakePipeline]:
    connections(monkeypatch)
    monkeypatch.setattr(
        stream_status,
        "read_status",
        lambda cfg: StreamStatus(cfg.topic_prefix, 9_000, False, StreamLag(1_500, 70), METRICS),
    )
    return install(monkeypatch, tmp_path)


def run(name: str, **arguments: Any) -> Any:
    """Run one drain in a DAG of its own and return the task instance."""
    with DAG(dag_id=name, schedule=None) as dag:
        MySqlCdcDrainOperator(
            task_id="cdc", retries=0, retry_delay=timedelta(0), kafka_conn_id="kafka_cdc", **arguments
        )
    return run_dag(dag).get_task_instances()[0]


@pytest.mark.req("MET-58")
def test_numbers_go_out_through_airflows_metrics(fakes: Any, backend: Backend) -> None:
    assert run("metrics_sent").state == "success"
    ours = {name: value for name, value in backend.gauges.items() if name[0].startswith("mysql_cdc")}
    assert ours["mysql_cdc.streaming.TotalNumberOfCreateEventsSeen", "shop"] == 5
    assert ours["mysql_cdc.streaming.MilliSecondsBehindSource", "shop"] == 1_500
    assert ours["mysql_cdc.streaming.Connected", "shop"] == 0
    assert ours["mysql_cdc.lag.bytes", "shop"] == 70
    assert ours["mysql_cdc.shop.streaming.BinlogPosition", ""] == 9, "for servers without tags"
    assert not [name for name, _ in ours if "BinlogFilename" in name]


def test_a_file_is_written_whatever_the_task_ends_with(
    fakes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, pipeline = fakes
    path = tmp_path / "shop.prom"
    assert run("metrics_file_success", metrics_file=str(path)).state == "success"
    assert 'mysql_cdc_lag_seconds{server="shop"} 1.5' in path.read_text().splitlines()
    path.unlink()
    pipeline.outcome = FakeOutcome(complete=False, error=SinkConnectionError("Kafka is gone"))
    monkeypatch.setattr(topics, "accepts_clients", lambda settings, timeout_s: True)
    assert run("metrics_file_failure", metrics_file=str(path)).state == "failed"
    assert path.exists(), "Kafka is there again"


def test_a_try_that_ends_without_kafka_asks_shortly_whether_it_is_there_again(
    fakes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, pipeline = fakes
    pipeline.outcome = FakeOutcome(complete=False, error=SinkConnectionError("Kafka is gone"))
    asked = list[float]()
    monkeypatch.setattr(topics, "accepts_clients", lambda settings, timeout_s: asked.append(timeout_s))
    monkeypatch.setattr(stream_status, "read_status", lambda cfg: pytest.fail("it waits for Kafka"))
    ti = run("metrics_without_kafka", metrics_file=str(tmp_path / "shop.prom"))
    assert (ti.state, asked, list(tmp_path.glob("*.prom"))) == ("failed", [task_result.KAFKA_TIMEOUT_S], [])


def test_a_file_that_cannot_be_written_does_not_hide_how_the_task_ended(fakes: Any, tmp_path: Path) -> None:
    assert run("metrics_file_missing", metrics_file=str(tmp_path / "missing" / "shop.prom")).state == "success"


def test_nothing_is_read_where_nobody_gets_metrics(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_status, "read_status", lambda cfg: pytest.fail("the status is read"))
    assert run("metrics_off").state == "success"


def test_the_result_of_a_task_has_the_numbers(fakes: Any) -> None:
    _, pipeline = fakes
    pipeline.outcome = FakeOutcome(tally=RunTally("run", 3, 1, metrics=METRICS))
    found = run("metrics_in_result").xcom_pull(task_ids="cdc")["metrics"]
    assert found["streaming"]["TotalNumberOfCreateEventsSeen"] == 5 and found["streaming"]["Connected"] == 0
    assert "BinlogFilename" not in found["streaming"]
