"""The operator of fleets, run by Airflow with a fake spark-submit and a fake pipeline for each stream."""

from __future__ import annotations

import json
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import DAG
from airflow_home import run_dag
from fake_driver import Driver
from fakes import KAFKA_PASSWORD, PASSWORD, FakeOutcome, FakePipeline, FakeSubmit, connections, install

from airflow_provider_mysql_cdc.cdc.errors import (
    NoOffsetError,
    RunInProgressError,
    SourceConnectionError,
    SourcePrivilegeError,
)
from airflow_provider_mysql_cdc.cdc.fleet.fleet_spec import fleet_streams
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.operate import stored_offset
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import IdleReason
from airflow_provider_mysql_cdc.operators import detached_driver, fleet_plans
from airflow_provider_mysql_cdc.operators.fleet import MySqlCdcFleetDrainOperator
from airflow_provider_mysql_cdc.operators.fleet_run import FleetRun
from airflow_provider_mysql_cdc.triggers.fleet import MySqlCdcFleetTrigger

pytestmark = pytest.mark.usefixtures("metadata_db")
STREAMS = ("north", "south", "east")


class Streams:
    """What happens to each stream, by topic.prefix."""

    def __init__(self, pipeline: FakePipeline) -> None:
        self.refused: dict[str, Exception] = {}
        self.idle: set[str] = set()
        self.silent: dict[str, threading.Event] = {}
        self.outcomes: dict[str, FakeOutcome] = {}
        self.planned: list[str] = []
        plan, self.pipeline = pipeline.prepare_drain, pipeline

        def prepare(cfg: Any, *given: Any, **more: Any) -> Any:
            self.planned.append(cfg.topic_prefix)
            if cfg.topic_prefix in self.silent:
                assert self.silent[cfg.topic_prefix].wait(60)
            if cfg.topic_prefix in self.refused:
                raise self.refused[cfg.topic_prefix]
            if cfg.topic_prefix in self.idle:
                more["on_idle"](IdleReason("nothing new"))
                return None
            return plan(cfg, *given, **more)

        def settle(cfg: Any, *given: Any) -> FakeOutcome:
            done = FakeOutcome(counts={f"{cfg.topic_prefix}.orders": 42})
            return self.outcomes.get(cfg.topic_prefix, done)

        pipeline.prepare_drain, pipeline.settle_offset = prepare, settle  # type: ignore[method-assign,assignment]


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeSubmit, Streams]:
    connections(monkeypatch)
    conn = json.loads(os.environ["AIRFLOW_CONN_MYSQL_CDC_DEFAULT"])
    for name in STREAMS:
        conn["extra"]["topic.prefix"] = name
        monkeypatch.setenv(f"AIRFLOW_CONN_MYSQL_{name.upper()}", json.dumps(conn))
    submit, pipeline = install(monkeypatch, tmp_path)
    return submit, Streams(pipeline)


def drain(dag_id: str, kind: Any = MySqlCdcFleetDrainOperator, **arguments: Any) -> Any:
    with DAG(dag_id, schedule=None) as dag:
        kind(
            task_id="drain",
            retries=1,
            retry_delay=timedelta(0),
            **{"mysql_cdc_conn_ids": [f"mysql_{n}" for n in STREAMS], "kafka_conn_id": "kafka_cdc", **arguments},
        )
    return run_dag(dag)


def streams_in(submit: FakeSubmit) -> list[str]:
    """Return the streams of the last job."""
    record = submit.record
    assert record is not None
    return [spec.properties["topic.prefix"] for spec in fleet_streams(JobSpec.from_json(record["spec"]))]


def test_one_application_gets_all_streams_and_no_secret_leaves_its_file(
    fakes: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, _ = fakes
    run = drain("fleet_whole", mysql_cdc_conn_ids='["mysql_north", "mysql_south"]')
    (ti,) = run.get_task_instances()
    assert run.state == "success"
    result = ti.xcom_pull(task_ids="drain")
    assert result["complete"] and result["counts"] == {"north.orders": 42, "south.orders": 42}
    assert ti.xcom_pull(task_ids="drain", key="stream_north")["counts"] == {"north.orders": 42}
    assert ti.xcom_pull(task_ids="drain", key="summary") == "2 streams: 2 drained. 84 records."
    record = submit.record
    specs = fleet_streams(JobSpec.from_json(record["spec"]))
    assert [(s.properties["topic.prefix"], s.mode, s.owner) for s in specs] == [
        (name, "drain", f"fleet_whole/{run.run_id}/drain/-1") for name in ("north", "south")
    ]
    assert all(spec.run_for_s == 0 and spec.run.endswith("#0") for spec in specs)
    assert {spec.id for spec in specs} == {record["spec"]["id"]}, "a deferred task knows one id"
    assert record["argv"][-2].endswith("spark_jobs/drain_fleet.py")
    log = "".join(capfd.readouterr())
    assert "north  drained" in log
    for secret in (PASSWORD, KAFKA_PASSWORD):
        for place in (*record["argv"], *record["env"].values(), log, record["file"]):
            assert secret not in place


def test_a_stream_that_cannot_be_planned_keeps_no_other_from_being_drained(
    fakes: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, streams = fakes
    streams.refused["south"] = SourcePrivilegeError("a grant is missing", remedy="GRANT it")
    run = drain("fleet_refused")
    (ti,) = run.get_task_instances()
    assert (run.state, ti.try_number) == ("failed", 1), "no retry helps"
    assert streams_in(submit) == ["north", "east"]
    log = "".join(capfd.readouterr())
    assert "StreamsFailedError: 1 of 3 streams were not drained. A retry will not help." in log
    assert "south: SourcePrivilegeError: a grant is missing. What to do: GRANT it." in log
    assert ti.xcom_pull(task_ids="drain", key="stream_south")["error"]["type"] == "SourcePrivilegeError"


def test_a_retry_has_only_the_streams_that_are_left(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, streams = fakes
    monkeypatch.setattr(stored_offset, "tally_of", lambda cfg, run: None)
    streams.outcomes["east"] = FakeOutcome(complete=False, error=SourceConnectionError("gone"))
    jobs: list[list[str]] = []

    def repair(context: Any) -> None:
        jobs.append(streams_in(submit))
        streams.outcomes.clear()
        streams.idle |= {"north", "south"}  # their offsets have moved

    run = drain("fleet_retried", on_retry_callback=repair)
    (ti,) = run.get_task_instances()
    assert (run.state, ti.try_number) == ("success", 2)
    assert [*jobs, streams_in(submit)] == [["north", "south", "east"], ["east"]]


def test_streams_that_are_planned_do_not_wait_for_one_whose_server_does_not_answer(
    fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan comes late, so it has a Spark application of its own after theirs."""
    _, streams = fakes
    monkeypatch.setattr(fleet_plans, "STALL_S", 2.0)
    monkeypatch.setattr(fleet_plans, "MORE_AFTER_S", 0.1)
    monkeypatch.setattr(fleet_plans, "MAX_THREADS", 1)  # which the silent one occupies
    submitted, jobs, given = threading.Event(), list[list[str]](), FleetRun._submit
    streams.silent["north"] = submitted

    def submit_and_tell(self: FleetRun, planned: Any, *more: Any) -> Any:
        jobs.append([stream.name for stream, _ in planned])
        try:
            return given(self, planned, *more)
        finally:
            submitted.set()

    monkeypatch.setattr(FleetRun, "_submit", submit_and_tell)
    run = drain("fleet_silent")
    assert run.state == "success"
    assert jobs == [["south", "east"], ["north"]]
    states = run.get_task_instances()[0].xcom_pull(task_ids="drain")["streams"]
    assert {name: stream["state"] for name, stream in states.items()} == dict.fromkeys(STREAMS, "drained")


@pytest.mark.parametrize("skips", [True, False])
def test_a_fleet_without_anything_new_starts_no_spark(fakes: Any, skips: bool) -> None:
    submit, streams = fakes
    streams.idle |= set(STREAMS)
    run = drain(f"fleet_idle_{skips}", skip_when_nothing_new=skips)
    (ti,) = run.get_task_instances()
    assert ti.state == ("skipped" if skips else "success") and submit.record is None
    states = {stream["state"] for stream in ti.xcom_pull(task_ids="drain")["streams"].values()}
    assert states == {"nothing new"}


def test_a_stream_that_another_run_drains_gives_way(fakes: Any) -> None:
    _, streams = fakes
    streams.outcomes["north"] = FakeOutcome(complete=False, error=RunInProgressError("another run is active"))
    run = drain("fleet_gave_way")
    (ti,) = run.get_task_instances()
    assert run.state == "success"
    assert ti.xcom_pull(task_ids="drain")["streams"]["north"]["state"] == "gave way"


@pytest.mark.parametrize(
    ("conn_ids", "said"),
    [
        ([], "not a list of different names"),
        ("mysql_north", "not a list of different names"),
        (["mysql_north", "mysql_north"], "not a list of different names"),
    ],
)
def test_wrong_connections_are_named(fakes: Any, conn_ids: Any, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert drain("fleet_wrong", mysql_cdc_conn_ids=conn_ids).state == "failed"
    assert said in "".join(capfd.readouterr()) and fakes[0].record is None


def test_connections_of_one_stream_fail_alone(
    fakes: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, _ = fakes
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_CDC_DEFAULT", os.environ["AIRFLOW_CONN_MYSQL_NORTH"])
    run = drain("fleet_same", mysql_cdc_conn_ids=["mysql_north", "mysql_south", "mysql_cdc_default"])
    assert run.state == "failed" and streams_in(submit) == ["south"]
    log = "".join(capfd.readouterr())
    assert "2 of 3 streams were not drained" in log
    same = "ConfigError: connections of the fleet have the same topic.prefix"
    assert f"mysql_north, mysql_cdc_default: {same}" in log


@pytest.mark.parametrize("name", ["ledger.topic", "schema.history.internal.kafka.topic"])
def test_streams_that_would_share_a_topic_of_their_own_are_refused(
    fakes: Any, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    own = {"mysql_east": {"properties": {name: "of_east"}}}
    run = drain("fleet_topics", properties={name: "of_all"}, stream_arguments=own)
    assert run.state == "failed" and streams_in(fakes[0]) == ["east"]
    assert f"connections of the fleet have the same {name} [of_all: mysql_north, mysql_south]" in "".join(
        capfd.readouterr()
    )


def test_a_connection_that_is_not_there_fails_its_stream_alone(fakes: Any) -> None:
    submit, _ = fakes
    run = drain("fleet_missing", mysql_cdc_conn_ids=["mysql_north", "mysql_nowhere"])
    assert run.state == "failed" and streams_in(submit) == ["north"]
    (ti,) = run.get_task_instances()
    assert ti.xcom_pull(task_ids="drain", key="stream_mysql_nowhere")["error"]["type"] == "ConfigError"


def test_arguments_of_a_single_stream_are_refused() -> None:
    with pytest.raises(TypeError, match="mysql_cdc_conn_ids"):
        MySqlCdcFleetDrainOperator(task_id="t", mysql_cdc_conn_ids=["a"], mysql_cdc_conn_id="b")
    with pytest.raises(TypeError, match="run_for"):
        MySqlCdcFleetDrainOperator(task_id="t", mysql_cdc_conn_ids=["a"], run_for=60)
    with pytest.raises(TypeError, match="stream"):
        MySqlCdcFleetDrainOperator(task_id="t", mysql_cdc_conn_ids=["a"], metrics_file="/tmp/a.prom")


def test_a_deferred_fleet_is_followed_and_remembers_what_was_not_in_the_job(
    fakes: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, streams = fakes
    driver = Driver(submit, tmp_path)
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.operate.end_run.lock_connection", driver.holder_of)
    monkeypatch.setattr(detached_driver, "DRIVER_POLL_S", 0.1)
    streams.refused["south"] = SourcePrivilegeError("a grant is missing")
    streams.idle.add("east")
    driver.is_seen(4)
    run = drain("fleet_deferred", deferrable=True, poll_interval=0.1)
    assert run.state == "failed" and driver.starts() == 1
    assert streams.planned == ["north", "south", "east"], "a deferred task does not plan again"
    log = "".join(capfd.readouterr())
    assert "The task is deferred until it has ended" in log
    assert "3 streams: 1 drained, 1 nothing new, 1 failed. 42 records." in log
    assert "1 of 3 streams were not drained" in log


class WorkerDies(MySqlCdcFleetDrainOperator):
    """The worker is gone between the driver's first step and the deferral."""

    def _defer(self, *args: Any, **more: Any) -> None:
        if type(self).died:
            super()._defer(*args, **more)
        type(self).died = True
        raise AirflowException("the worker is gone")

    died = False


def test_a_try_that_follows_a_driver_knows_what_was_not_in_its_job(
    fakes: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody else would tell: the ledger of a stream that was not planned says that its last batch is complete."""
    submit, streams = fakes
    driver = Driver(submit, tmp_path)
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.operate.end_run.lock_connection", driver.holder_of)
    monkeypatch.setattr(detached_driver, "DRIVER_POLL_S", 0.1)
    monkeypatch.setattr(stored_offset, "tally_of", lambda cfg, run: None)
    streams.refused["south"] = SourcePrivilegeError("a grant is missing")
    streams.idle.add("east")
    driver.is_seen(8)
    WorkerDies.died = False
    run = drain("fleet_worker_dies", WorkerDies, deferrable=True, poll_interval=0.1)
    assert WorkerDies.died and driver.starts() == 1 and run.state == "failed"
    assert "3 streams: 1 drained, 1 nothing new, 1 failed. 42 records." in "".join(capfd.readouterr())


def test_what_is_wrong_with_one_connection_keeps_no_driver_from_being_ended(
    fakes: Any,
) -> None:
    conn_ids = ["mysql_nowhere", "mysql_south"]
    task = MySqlCdcFleetDrainOperator(task_id="t", mysql_cdc_conn_ids=conn_ids, kafka_conn_id="kafka_cdc")
    assert [cfg.topic_prefix for cfg in task._all_configs()] == ["south"]


def test_each_stream_has_its_own_properties_and_its_own_asset(fakes: Any) -> None:
    submit, _ = fakes
    own = {
        "properties": {"decimal.handling.mode": "string"},
        "offset_asset": "offsets_of_north",
        "asset_alias": "events_of_north",
        "pipeline": "north",
    }
    with DAG("fleet_own", schedule=None) as dag:
        task = MySqlCdcFleetDrainOperator(
            task_id="drain",
            mysql_cdc_conn_ids=["mysql_north", "mysql_south"],
            kafka_conn_id="kafka_cdc",
            properties={"decimal.handling.mode": "double"},
            stream_arguments={"mysql_north": own},
        )
    assert {asset.name for asset in task.inlets} == {"mysql_cdc_offsets", "offsets_of_north"}
    assert {alias.name for alias in task.outlets} == {"mysql_cdc", "events_of_north"}
    assert run_dag(dag).state == "success"
    specs = fleet_streams(JobSpec.from_json(submit.record["spec"]))
    assert [spec.properties["decimal.handling.mode"] for spec in specs] == ["string", "double"]


def test_the_error_of_a_stream_names_the_dags_of_its_pipeline(fakes: Any, capfd: pytest.CaptureFixture[str]) -> None:
    _, streams = fakes
    for name in ("north", "south"):
        streams.refused[name] = NoOffsetError("none", remedy="run the snapshot first (DAG mysql_cdc_snapshot)")
    assert drain("fleet_names", stream_arguments={"mysql_north": {"pipeline": "eu"}}).state == "failed"
    log = "".join(capfd.readouterr())
    assert "north: NoOffsetError: none. What to do: run the snapshot first (DAG eu_snapshot)" in log
    assert "south: NoOffsetError: none. What to do: run the snapshot first (DAG mysql_cdc_snapshot)" in log


@pytest.mark.parametrize("own", [{"topics": 1}, {"offset_asset": ["a"]}, "mysql"])
def test_wrong_arguments_of_a_stream_are_refused_when_the_dag_is_read(own: Any) -> None:
    with pytest.raises(TypeError, match="stream_arguments of a"):
        MySqlCdcFleetDrainOperator(task_id="t", mysql_cdc_conn_ids=["a"], stream_arguments={"a": own})
    with pytest.raises(TypeError, match="stream_arguments of a"):
        MySqlCdcFleetDrainOperator.partial(task_id="t", stream_arguments={"a": own})


def test_no_run_sets_the_properties_of_a_stream(fakes: Any, capfd: pytest.CaptureFixture[str]) -> None:
    own = {"mysql_north": {"properties": {"kafka.bootstrap.servers": "{{ dag_run.conf.get('to', 'x:1') }}"}}}
    assert drain("fleet_taken", stream_arguments=own).state == "failed"
    assert "stream_arguments" in "".join(capfd.readouterr()) and fakes[0].record is None


def test_the_trigger_survives_serialisation_and_asks_all_servers(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = MySqlCdcFleetTrigger(
        mysql_cdc_conn_ids=["mysql_north", "mysql_south", "mysql_nowhere"],
        owner="d/r/t/-1",
        submission=None,
        kafka_conn_id="kafka_cdc",
        properties={},
        poll_interval=5.0,
    )
    path, arguments = trigger.serialize()
    assert path == "airflow_provider_mysql_cdc.triggers.fleet.MySqlCdcFleetTrigger"
    assert MySqlCdcFleetTrigger(**json.loads(json.dumps(arguments))).serialize() == (path, arguments)
    locks: dict[str, Any] = {"north": None, "south": 7}

    def holder(cfg: Any, owner: str) -> int | None:
        found = locks[cfg.topic_prefix]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.operate.end_run.lock_connection", holder)
    assert trigger._read() == 1
    locks["north"] = SourceConnectionError("gone")
    assert trigger._read() == 1
    locks["south"] = None
    assert trigger._read() == 0
    locks["south"] = SourceConnectionError("gone")
    assert trigger._read() is None
    ended: list[str] = []
    monkeypatch.setattr(
        "airflow_provider_mysql_cdc.cdc.operate.end_run.end_run", lambda cfg, *_: ended.append(cfg.topic_prefix)
    )
    trigger._end()
    assert sorted(ended) == ["north", "south"]
