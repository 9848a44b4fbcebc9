"""The notifier as Airflow calls it: behind a task that failed, in a DAG that watches, and behind a deadline."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.sdk import DAG, BaseNotifier
from airflow.triggers.callback import CallbackTrigger
from airflow_home import run_dag
from fakes import PASSWORD

from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import StreamLag
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamMetrics
from airflow_provider_mysql_cdc.cdc.operate import stream_report
from airflow_provider_mysql_cdc.cdc.operate.stream_status import StreamStatus
from airflow_provider_mysql_cdc.notifications.stream_notifier import MySqlCdcStreamNotifier
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator

pytestmark = pytest.mark.usefixtures("metadata_db")
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "alarms" / "watch_streams.py"
NOTIFIER = f"{MySqlCdcStreamNotifier.__module__}.{MySqlCdcStreamNotifier.__qualname__}"


class Told(BaseNotifier):  # type: ignore[misc]
    """A notifier with a template, as those of Slack or e-mail have."""

    template_fields = ("text",)
    texts: ClassVar[list[str]] = []
    kinds: ClassVar[list[str]] = []

    def __init__(self, text: str = "{{ mysql_cdc_alarm_text }}", *, fails: bool = False) -> None:
        super().__init__()
        self.text, self.fails = text, fails

    def notify(self, context: Any) -> None:
        if self.fails:
            raise RuntimeError("no network")
        self.texts.append(self.text)
        self.kinds.extend(alarm["kind"] for alarm in context["mysql_cdc_alarms"])


TOLD = {"path": f"{__name__}.Told", "kwargs": {"text": "alarm: {{ mysql_cdc_alarm_text }}"}}


@pytest.fixture(autouse=True)
def nobody_told() -> None:
    Told.texts.clear()
    Told.kinds.clear()


@pytest.fixture
def lag(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Return the lags of streams in seconds, by ``topic.prefix``."""
    seconds: dict[str, float] = {}

    def read(cfg: Any) -> StreamStatus:
        lag_ms = int(seconds.get(cfg.topic_prefix, 0) * 1000)
        return StreamStatus(cfg.topic_prefix, 1, False, StreamLag(lag_ms, 1), StreamMetrics())

    monkeypatch.setattr(stream_report, "read_status", read)
    monkeypatch.setattr(stream_report, "check_setup", lambda cfg, state: [])
    return seconds


def drain(dag_id: str, **arguments: Any) -> Any:
    with DAG(dag_id, schedule=None) as dag:
        MySqlCdcDrainOperator(task_id="drain", retries=0, **arguments)
    return run_dag(dag)


def test_a_task_that_fails_tells_what_its_error_says(fakes: Any) -> None:
    _, pipeline = fakes
    notifier = MySqlCdcStreamNotifier(notifiers=[Told(fails=True), Told()])
    assert drain("told_of_success", on_failure_callback=notifier).state == "success"
    assert Told.texts == []
    pipeline.error = BinlogPurgedError("the binlog was purged", where="binlog.000001", remedy="take a new snapshot")
    assert drain("told_of_failure", on_failure_callback=notifier).state == "failed"
    (text,) = Told.texts
    assert text == (
        "mysql_cdc_default, task told_of_failure.drain: BinlogPurgedError: the binlog was purged [binlog.000001]. "
        "What to do: take a new snapshot."
    )
    assert Told.kinds == ["failure"]


def test_another_failure_is_told_without_its_text(fakes: Any, lag: dict[str, float]) -> None:
    notifier = MySqlCdcStreamNotifier(max_lag=900, notifiers=[Told()])
    lag["shop"] = 1_000
    notifier({"exception": RuntimeError(f"password={PASSWORD}")})
    assert Told.kinds == ["failure", "lag"]
    assert PASSWORD not in "".join(Told.texts)


def test_nobody_is_told_while_all_is_well(fakes: Any, lag: dict[str, float]) -> None:
    MySqlCdcStreamNotifier(max_lag=900, max_idle=900, settings=True, notifiers=[Told()])({})
    assert Told.texts == []


def test_a_connection_that_is_wrong_is_an_alarm(fakes: Any) -> None:
    MySqlCdcStreamNotifier("mysql_missing", max_lag=900, notifiers=[Told()])({})
    assert Told.kinds == ["unreachable"] and "mysql_missing" in Told.texts[0]


def test_the_triggerer_awaits_it_behind_a_deadline_with_arguments_that_airflow_stores(
    fakes: Any, lag: dict[str, float]
) -> None:
    lag["shop"] = 7_200
    kwargs = {"mysql_cdc_conn_id": "mysql_cdc_default", "max_lag": 900, "notifiers": [TOLD]}
    context = {"dag_run": {"dag_id": "shop_drain"}, "deadline": {"id": "1", "deadline_time": "2026-11-27"}}
    trigger = CallbackTrigger(NOTIFIER, {**kwargs, "context": context})

    async def run() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    assert asyncio.run(run())[-1]["state"] == "success"
    (text,) = Told.texts
    assert text.startswith("alarm: mysql_cdc_default: a run of shop_drain is late.")
    assert Told.kinds == ["deadline", "lag"]


def test_the_example_of_the_docs_watches_each_stream(
    fakes: Any, lag: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    for name in ("shop", "bank"):
        extra = {"topic.prefix": name, "kafka_conn_id": "kafka_cdc"}
        conn = {"conn_type": "mysql_cdc", "host": "h", "login": "u", "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_MYSQL_{name.upper()}", json.dumps(conn))
    folder = tmp_path / "dags"
    folder.mkdir()
    shutil.copy(EXAMPLE, folder)
    bag = DagBag(dag_folder=str(folder))
    assert bag.import_errors == {}
    assert set(bag.dags) == {"watch_streams", "shop_snapshot", "shop_drain"}
    (deadline,) = bag.dags["shop_drain"].deadline
    assert deadline.callback.path == NOTIFIER
    lag["bank"] = 7_200
    told: list[str] = []
    real = MySqlCdcStreamNotifier.alarms

    def alarms(self: MySqlCdcStreamNotifier, context: Any) -> Any:
        found = real(self, context)
        told.append(f"{self.mysql_cdc_conn_id} {[alarm.kind for alarm in found]}")
        return found

    monkeypatch.setattr(MySqlCdcStreamNotifier, "alarms", alarms)
    assert run_dag(bag.dags["watch_streams"]).state == "success"
    assert sorted(told) == ["mysql_bank ['lag']", "mysql_shop []"]
