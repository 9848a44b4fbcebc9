"""What sensors and triggers send while they wait, as a StatsD server and an OpenTelemetry collector receive it."""

from __future__ import annotations

import asyncio
import atexit
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk._shared.observability.metrics import otel_logger
from airflow.sdk._shared.observability.metrics import stats as shared
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from airflow_home import run_dag
from fakes import connections
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import SnapshotStatus, TableStatus
from airflow_provider_mysql_cdc.cdc.metrics.metric_table import WAIT_METRICS
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate import lag
from airflow_provider_mysql_cdc.cdc.operate.due_drain import StreamState
from airflow_provider_mysql_cdc.cdc.operate.lag import BinlogState, DrainedOffset
from airflow_provider_mysql_cdc.hooks import airflow_metrics
from airflow_provider_mysql_cdc.hooks.airflow_metrics import send_gauges, snapshot_gauges
from airflow_provider_mysql_cdc.sensors.binlog import MySqlBinlogSensor
from airflow_provider_mysql_cdc.triggers.binlog import MySqlBinlogTrigger
from airflow_provider_mysql_cdc.triggers.watch import MySqlBinlogWatchTrigger

pytestmark = pytest.mark.usefixtures("metadata_db")
SERVER = "aaaaaaaa-0000-0000-0000-000000000001"


def at(pos: int) -> BinlogOffset:
    return BinlogOffset("binlog.000004", pos, f"{SERVER}:1-{pos}", SERVER)


BINLOG = BinlogState(at(300), (("binlog.000004", 300),), "ON", 90_000)
STREAM = StreamState(DrainedOffset(at(100), 30_000), BINLOG, frozenset({"one", "two"}))


class Datagrams:
    """A StatsD server on loopback."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(3)
        self.port = self.socket.getsockname()[1]

    def until(self, wanted: str) -> dict[str, str]:
        """Return what has come, by name, once a metric is there."""
        found: dict[str, str] = {}
        while wanted not in found:
            try:
                name, _, value = self.socket.recv(65_535).decode().partition(":")
            except TimeoutError:
                raise AssertionError(f"{wanted} is not among {sorted(found)}") from None
            found[name] = value
        return found


@pytest.fixture
def triggerer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Airflow's metrics of the task SDK be as in a triggerer: nobody has initialised them."""
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    for name in ("_factory", "_backend"):
        monkeypatch.setattr(shared, name, None)
    yield
    monkeypatch.undo()
    shared.initialize(factory=get_stats_factory(), export_legacy_names=True)


@pytest.fixture
def statsd(triggerer: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Datagrams]:
    server = Datagrams()
    settings = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(server.port)}
    for name, value in {**settings, "STATSD_PREFIX": "airflow", "LEGACY_NAMES_ON": "True"}.items():
        monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", value)
    yield server
    server.socket.close()


def watch(looks: Callable[[], StreamState], events: int) -> None:
    """Run a watcher's trigger until it has yielded so many events, or has failed once when none is wanted."""

    async def watched() -> None:
        trigger = MySqlBinlogWatchTrigger(mysql_cdc_conn_id="mysql_cdc_default", poll_interval=0.01)
        trigger.read = lambda cfg: looks()  # type: ignore[method-assign]
        stream = aiter(trigger.run())
        try:
            for _ in range(events):
                await asyncio.wait_for(anext(stream), 20)
            if not events:
                await asyncio.wait_for(anext(stream), 1)
        except TimeoutError:
            pass
        finally:
            await stream.aclose()

    asyncio.run(watched())


def test_a_statsd_server_gets_the_lag_of_a_watched_stream_from_the_triggerer(statsd: Datagrams) -> None:
    watch(lambda: STREAM, 1)
    found = statsd.until("airflow.mysql_cdc.watch.requests")
    assert found["airflow.mysql_cdc.lag.bytes"] == "200|g"
    assert found["airflow.mysql_cdc.lag.transactions"] == "200|g"
    assert float(found["airflow.mysql_cdc.lag.batch_age_seconds"].removesuffix("|g")) == 60
    assert found["airflow.mysql_cdc.signals.waiting"] == "2|g"
    assert found["airflow.mysql_cdc.shop.lag.bytes"] == "200|g", "for servers without tags"
    assert found["airflow.mysql_cdc.watch.requests"] == "1|c"
    ours = {name.removeprefix("airflow.mysql_cdc.") for name in found if "shop" not in name}
    assert ours <= set(WAIT_METRICS)


def test_polls_that_fail_are_counted(statsd: Datagrams) -> None:
    def fail() -> StreamState:
        raise SinkError("Kafka does not answer")

    watch(fail, 0)
    assert statsd.until("airflow.mysql_cdc.watch.poll_failures")["airflow.mysql_cdc.watch.poll_failures"] == "1|c"


def test_a_sensor_and_its_trigger_send_the_lag(statsd: Datagrams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "read_binlog_state", lambda cfg, drained: BINLOG)
    trigger = MySqlBinlogTrigger(
        drained=DrainedOffset(at(300), 30_000).to_json(),
        thresholds=lag.Thresholds().to_json(),
        mysql_cdc_conn_id="mysql_cdc_default",
        kafka_conn_id=None,
        properties={},
        poll_interval=1,
    )
    assert trigger.evaluate(trigger._read()) is None
    assert statsd.until("airflow.mysql_cdc.lag.batch_age_seconds")["airflow.mysql_cdc.lag.bytes"] == "0|g"
    monkeypatch.setattr(DrainedOffset, "from_state", classmethod(lambda cls, state: cls(at(100), 30_000)))
    with DAG("lag_of_a_sensor", schedule=None) as dag:
        MySqlBinlogSensor(task_id="wait", retries=0)
    assert run_dag(dag).state == "success"
    assert statsd.until("airflow.mysql_cdc.lag.batch_age_seconds")["airflow.mysql_cdc.lag.bytes"] == "200|g"


def test_an_ad_hoc_snapshot_shows_what_is_left(statsd: Datagrams) -> None:
    tables = {"a.b": TableStatus("running", 5), "a.c": TableStatus("done", 7), "a.d": TableStatus("waiting", 0)}
    send_gauges("shop", lambda: snapshot_gauges(SnapshotStatus("running", tables)))
    found = statsd.until("airflow.mysql_cdc.adhoc.rows")
    assert (found["airflow.mysql_cdc.adhoc.tables_left"], found["airflow.mysql_cdc.adhoc.rows"]) == ("2|g", "12|g")


def test_nothing_is_computed_where_nobody_gets_metrics_and_errors_stay_inside(
    triggerer: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_gauges("shop", lambda: pytest.fail("computed"))
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    monkeypatch.setattr(airflow_metrics, "airflow_stats", lambda: 1 / 0)
    send_gauges("shop", lambda: [])
    airflow_metrics.count("watch.requests", "shop")


class Collector(BaseHTTPRequestHandler):
    """Keep what an exporter of OpenTelemetry posts."""

    received: list[Any]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        self.received.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_a_collector_of_opentelemetry_gets_the_same(triggerer: None, monkeypatch: pytest.MonkeyPatch) -> None:
    Collector.received = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, value in {
        "OTEL_ON": "True",
        "OTEL_HOST": "127.0.0.1",
        "OTEL_PORT": str(server.server_port),
        "OTEL_INTERVAL_MILLISECONDS": "60000",
        "OTEL_PREFIX": "airflow",
    }.items():
        monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", value)
    watch(lambda: STREAM, 1)
    from opentelemetry.metrics import get_meter_provider

    provider: Any = get_meter_provider()
    provider.force_flush()
    provider.shutdown()
    atexit.unregister(otel_logger.flush_otel_metrics)
    server.shutdown()
    points = {}
    for request in Collector.received:
        for metric in (m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics):
            for point in (*metric.gauge.data_points, *metric.sum.data_points):
                tags = {attribute.key: attribute.value.string_value for attribute in point.attributes}
                points[metric.name, tags.get("server") or tags.get("connection")] = point.as_double or point.as_int
    assert points["airflow.mysql_cdc.lag.bytes", "shop"] == 200
    assert points["airflow.mysql_cdc.signals.waiting", "shop"] == 2
    assert points["airflow.mysql_cdc.watch.requests", "mysql_cdc_default"] == 1
