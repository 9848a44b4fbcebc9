"""The operators, run by Airflow on a real metadata database, with a fake spark-submit and a fake pipeline."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow_home import run_dag
from fakes import KAFKA_PASSWORD, PASSWORD, FakeOutcome, FakePipeline, FakeSubmit, connections, install

from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, SinkConnectionError
from airflow_provider_mysql_cdc.cdc.job.run_lock import LOCK_LOST
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import IdleReason
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.snapshot import MySqlCdcSnapshotOperator
from airflow_provider_mysql_cdc.operators.spark_job_operator import MySqlCdcSparkOperator
from airflow_provider_mysql_cdc.operators.task_result import TaskResult

pytestmark = pytest.mark.usefixtures("metadata_db")
Run = Callable[..., Any]


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeSubmit, FakePipeline]:
    connections(monkeypatch)
    return install(monkeypatch, tmp_path)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """Run one task in a DAG of its own and return the task instance."""

    def go(kind: type[MySqlCdcSparkOperator] = MySqlCdcDrainOperator, **arguments: Any) -> Any:
        with DAG(dag_id=request.node.name.replace("[", "_").replace("]", "_"), schedule=None) as dag:
            kind(task_id="cdc", retries=1, retry_delay=timedelta(0), **{"kafka_conn_id": "kafka_cdc", **arguments})
        finished = run_dag(dag)
        return finished.get_task_instances()[0]

    return go


def rendered(ti: Any) -> str:
    """Return everything that Airflow stored of the task's rendered fields."""
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.utils.session import create_session

    with create_session() as session:
        rows = session.query(RenderedTaskInstanceFields).filter_by(dag_id=ti.dag_id, run_id=ti.run_id)
        return json.dumps([row.rendered_fields for row in rows])


def test_drain_hands_the_plan_to_spark_and_returns_what_was_done(fakes: Any, run: Run) -> None:
    submit, pipeline = fakes
    ti = run(run_for=timedelta(minutes=2), writers=3, properties={"table.include.list": "shop.orders"})
    assert ti.state == "success"
    assert ti.xcom_pull(task_ids="cdc") == {
        "complete": True,
        "offset": {"file": "binlog.000002", "pos": 157},
        "counts": {"shop.db.orders": 42},
    }
    spec = submit.record["spec"]
    assert spec["mode"] == "drain"
    assert spec["owner"] == f"{ti.dag_id}/{ti.run_id}/cdc/-1"
    assert 100 < spec["run_for_s"] <= 120
    assert spec["properties"]["database.hostname"] == "mysql.example"
    assert spec["properties"]["database.port"] == "3307"
    assert spec["properties"]["kafka.bootstrap.servers"] == "kafka.example:9092"
    assert spec["properties"]["table.include.list"] == "shop.orders"
    assert spec["properties"]["drain.writers"] == "3"
    assert submit.record["argv"][-2].endswith("spark_jobs/drain_binlog.py")
    assert [name for name, _ in pipeline.calls] == ["drain", "settle"]


@pytest.mark.parametrize("then", ["gives_way", "goes_on", "lost"])
def test_of_two_drains_that_begin_at_once_the_later_one_gives_way_or_goes_on(fakes: Any, run: Run, then: str) -> None:
    """Both plan before one of them holds the lock, so only the driver finds out."""
    submit, pipeline = fakes
    said = LOCK_LOST if then == "lost" else "another run of this topic.prefix is active"
    submit.set(code=75, body=f'print("[mysql-cdc] RunInProgressError: {said}.")')
    pipeline.outcome = FakeOutcome(complete=False)

    plan = pipeline.prepare_drain

    def planned(*given: Any, **more: Any) -> Any:
        if pipeline.calls:
            submit.set()
            pipeline.nothing, pipeline.outcome = int(then == "gives_way"), FakeOutcome()
            pipeline.idle = IdleReason("this drain gives way: another run is active", gave_way=True)
        return plan(*given, **more)

    pipeline.prepare_drain = planned  # type: ignore[method-assign]
    ti = run()
    state = "skipped" if then == "gives_way" else "success"
    assert (ti.state, ti.try_number) == (state, 2 if then == "lost" else 1)
    plans = [name for name, _ in pipeline.calls]
    assert plans == ["drain", "settle", "drain", *(["settle"] if then != "gives_way" else [])]


def test_snapshot_submits_its_own_application(fakes: Any, run: Run) -> None:
    submit, pipeline = fakes
    assert run(MySqlCdcSnapshotOperator, again="True").state == "success"
    assert submit.record["spec"]["mode"] == "snapshot"
    assert submit.record["argv"][-2].endswith("spark_jobs/snapshot_tables.py")
    assert pipeline.again is True


def test_no_secret_leaves_the_job_spec_file(fakes: Any, run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    submit, _ = fakes
    ti = run()
    record = submit.record
    assert record["spec"]["properties"]["database.password"] == PASSWORD
    assert record["spec"]["properties"]["kafka.sasl.password"] == KAFKA_PASSWORD
    assert (record["mode"], record["folder_mode"]) == (0o600, 0o700)
    assert not Path(record["argv"][-1]).exists()
    assert not Path(record["argv"][-1]).parent.exists()
    log = "".join(capfd.readouterr())
    assert "Spark-Submit cmd" in log
    assert "kafka_cdc" in rendered(ti)
    for secret in (PASSWORD, KAFKA_PASSWORD):
        for place in (*record["argv"], *record["env"].values(), rendered(ti), log, record["file"]):
            assert secret not in place


def test_the_spec_file_is_removed_when_the_job_fails(fakes: Any, run: Run) -> None:
    submit, pipeline = fakes
    submit.set(code=1)
    pipeline.outcome = FakeOutcome(complete=False)
    assert run().state == "failed"
    assert not Path(submit.record["argv"][-1]).exists()


def test_the_driver_gets_a_clean_environment(fakes: Any, run: Run) -> None:
    submit, _ = fakes
    run(env_vars={"MY_SETTING": "1"})
    env = submit.record["env"]
    assert not [name for name in env if name.startswith("AIRFLOW")]
    assert env["MY_SETTING"] == "1"
    assert env["PYTHONWARNINGS"] == "ignore:PySpark does not yet fully support pandas:FutureWarning"
    assert env["PYSPARK_PYTHON"]
    assert str(Path(__file__).resolve().parents[2]) in env["PYTHONPATH"].split(os.pathsep)


def test_the_driver_runs_in_a_process_group_of_its_own(fakes: Any, run: Run) -> None:
    submit, _ = fakes
    run()
    assert submit.record["pgid"] == submit.record["pid"]


def test_progress_lines_of_the_driver_go_to_the_task_log(
    fakes: Any, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    run()
    assert "[mysql-cdc] batch 1: 42 records" in "".join(capfd.readouterr())


def test_nothing_to_do_starts_no_spark(fakes: Any, run: Run) -> None:
    submit, pipeline = fakes
    pipeline.nothing = 1
    ti = run()
    assert ti.state == "success"
    assert submit.record is None
    result = ti.xcom_pull(task_ids="cdc")
    assert (result["counts"], result["reason"]) == ({}, "nothing new since binlog.000002:157")


@pytest.mark.parametrize("gave_way", [True, False])
def test_a_drain_that_gave_way_is_skipped_and_one_without_events_where_that_is_wanted(
    fakes: Any, run: Run, gave_way: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its result is there for who reads it."""
    submit, pipeline = fakes
    pipeline.nothing, pipeline.idle = 1, IdleReason("the reason", gave_way=gave_way)
    ti = run(skip_when_nothing_new=not gave_way)
    assert (ti.state, ti.try_number, submit.record) == ("skipped", 1, None)
    assert ti.xcom_pull(task_ids="cdc")["reason"] == "the reason"
    assert "the reason" in "".join(capfd.readouterr())


def test_a_drain_that_has_batches_to_report_is_not_skipped(
    fakes: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, pipeline = fakes
    pipeline.nothing, pipeline.idle = 1, IdleReason("the reason", gave_way=True)
    monkeypatch.setattr(TaskResult, "idle_result", lambda *_: {"batches": 1, "counts": {"shop.db.orders": 42}})
    ti = run()
    assert ti.state == "success"
    assert ti.xcom_pull(task_ids="cdc") == {"batches": 1, "counts": {"shop.db.orders": 42}, "reason": "the reason"}


def test_what_follows_a_skipped_drain_runs_where_its_trigger_rule_allows_it(fakes: Any) -> None:
    _, pipeline = fakes
    pipeline.nothing, pipeline.idle = 1, IdleReason("the reason", gave_way=True)
    with DAG(dag_id="after_a_skipped_drain", schedule=None) as dag:
        drain = MySqlCdcDrainOperator(task_id="cdc", kafka_conn_id="kafka_cdc")
        drain >> [EmptyOperator(task_id="needs_it"), EmptyOperator(task_id="any", trigger_rule="none_failed")]
    finished = run_dag(dag)
    states = {ti.task_id: str(ti.state) for ti in finished.get_task_instances()}
    assert (finished.state, states) == ("success", {"cdc": "skipped", "needs_it": "skipped", "any": "success"})


def test_run_for_waits_for_work_before_it_starts_spark(
    fakes: Any, run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, pipeline = fakes
    """It plans again when there may be something, and says nothing in between."""
    looks = [False, False, True, False, SinkConnectionError("no broker answers"), False, True]

    def worth_planning(*_: Any) -> bool:
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return bool(found)

    monkeypatch.setattr("airflow_provider_mysql_cdc.operators.job_run.IDLE_POLL_S", 0.01)
    monkeypatch.setattr(pipeline, "may_have_work", worth_planning)
    pipeline.nothing = 3
    assert run(run_for=60).state == "success"
    assert [name for name, _ in pipeline.calls] == ["drain"] * 4 + ["settle"]
    assert looks == []
    assert submit.record is not None
    assert "".join(capfd.readouterr()).count("planning a drain") == 4


@pytest.mark.parametrize(
    ("error", "tries"),
    [(BinlogPurgedError("binlog.000001 is gone"), 1), (SinkConnectionError("no broker answers"), 2)],
)
def test_the_ledger_s_error_decides_about_the_retry(
    fakes: Any, run: Run, capfd: pytest.CaptureFixture[str], error: Any, tries: int
) -> None:
    submit, pipeline = fakes
    line = f"[mysql-cdc] {type(error).__name__}: {error.message()}"
    submit.set(code=1, body=f"print({line!r})")
    pipeline.outcome = FakeOutcome(complete=False, error=error)
    assert run().state == "failed"
    assert len(pipeline.planned()) == tries
    log = "".join(capfd.readouterr())
    assert log.count(error.what) == log.count(f"{type(error).__name__}: {error.what}") == tries, "once in each try"
    assert log.count("[error ") == tries and "Traceback" not in log and "Error code is" not in log


@pytest.mark.parametrize(("code", "tries"), [(75, 2), (78, 1)])
def test_the_driver_s_last_words_decide_where_the_ledger_has_none(
    fakes: Any, run: Run, capfd: pytest.CaptureFixture[str], code: int, tries: int
) -> None:
    submit, pipeline = fakes
    submit.set(code=code, body='print("[mysql-cdc] SinkConnectionError: no broker answers.")')
    pipeline.outcome = FakeOutcome(complete=False)
    assert run().state == "failed"
    assert len(pipeline.planned()) == tries
    assert "SinkConnectionError: no broker answers." in "".join(capfd.readouterr())


def test_the_error_of_a_driver_is_found_however_much_its_jvm_logs_after_it(
    fakes: Any, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, pipeline = fakes
    body = 'print("[mysql-cdc] BinlogPurgedError: binlog.000001 is gone.")\nfor n in range(100): print("at java", n)'
    submit.set(code=78, body=body)
    pipeline.unsettled = SinkConnectionError("no broker answers")
    assert run().state == "failed"
    assert len(pipeline.planned()) == 1
    assert "BinlogPurgedError: binlog.000001 is gone." in "".join(capfd.readouterr())


@pytest.mark.parametrize(("code", "tries"), [(75, 2), (78, 1)])
def test_words_of_a_driver_stand_when_the_ledger_cannot_be_read(
    fakes: Any, run: Run, capfd: pytest.CaptureFixture[str], code: int, tries: int
) -> None:
    submit, pipeline = fakes
    submit.set(code=code, body='print("[mysql-cdc] BinlogPurgedError: binlog.000001 is gone.")')
    pipeline.unsettled = SinkConnectionError("no broker answers")
    assert run().state == "failed"
    assert len(pipeline.planned()) == tries
    assert "BinlogPurgedError: binlog.000001 is gone." in "".join(capfd.readouterr())


class Tracked(MySqlCdcDrainOperator):
    """End as the trackers of clusters do: with an error that is none of Airflow's."""

    ends_with: ClassVar[Exception]

    def submit_job(self, context: Any) -> Any:
        raise self.ends_with


@pytest.mark.parametrize("ended", [RuntimeError("ended with state FAILED"), OSError("/usr/bin/curl"), ValueError("x")])
@pytest.mark.parametrize(("error", "tries"), [(BinlogPurgedError("gone"), 1), (SinkConnectionError("no broker"), 2)])
def test_whatever_a_tracker_raises_the_job_s_own_error_decides(
    fakes: Any, run: Run, monkeypatch: pytest.MonkeyPatch, ended: Exception, error: Any, tries: int
) -> None:
    _, pipeline = fakes
    monkeypatch.setattr(Tracked, "ends_with", ended, raising=False)
    spark = {"conn_type": "spark", "host": "yarn", "extra": {"yarn_resourcemanager_webapp_address": "rm:8088"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CDC", json.dumps(spark))
    pipeline.outcome = FakeOutcome(complete=False, error=error)
    assert run(Tracked, deploy_mode="cluster", yarn_track_via_rm_api=True).state == "failed"
    assert [name for name, _ in pipeline.calls] == ["drain", "settle"] * tries


def test_a_job_that_is_done_although_its_tracker_failed_is_a_success(
    fakes: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tracked, "ends_with", RuntimeError("Giving up tracking"), raising=False)
    spark = {"conn_type": "spark", "host": "yarn", "extra": {"yarn_resourcemanager_webapp_address": "rm:8088"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CDC", json.dumps(spark))
    assert run(Tracked, deploy_mode="cluster", yarn_track_via_rm_api=True).state == "success"


def test_a_driver_that_dies_after_its_last_commit_is_a_success(fakes: Any, run: Run) -> None:
    submit, _ = fakes
    submit.set(code=137)
    assert run().state == "success"


def test_an_error_while_planning_is_raised_by_name_and_starts_no_spark(
    fakes: Any, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, pipeline = fakes
    pipeline.error = BinlogPurgedError("binlog.000001 is gone", remedy="take a new snapshot")
    assert run().state == "failed"
    assert submit.record is None
    assert "take a new snapshot" in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "connection",
    [None, '{"conn_type": "spark"}', '{"conn_type": "spark", "host": "somewhere"}', "spark://local[2]"],
    ids=["missing", "no_host", "no_port", "unescaped_uri"],
)
def test_a_spark_connection_without_a_usable_master_is_refused(
    fakes: Any, run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], connection: str | None
) -> None:
    submit, pipeline = fakes
    if connection is None:
        monkeypatch.delenv("AIRFLOW_CONN_SPARK_CDC")
    else:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_CDC", connection)
    assert run().state == "failed"
    assert submit.record is None
    assert pipeline.calls == []
    assert "the Spark connection has no usable master" in "".join(capfd.readouterr())


def test_a_task_that_is_ended_while_it_plans_starts_no_spark(fakes: Any, run: Run) -> None:
    submit, pipeline = fakes
    assert run(pipeline.kill_while_planning(MySqlCdcDrainOperator)).state == "failed"
    assert pipeline.planned()
    assert submit.record is None


def test_an_explicit_master_needs_no_connection(fakes: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, _ = fakes
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_CDC")
    assert run(master="local[1]").state == "success"
    argv = submit.record["argv"]
    assert argv[argv.index("--master") + 1] == "local[1]"


def test_in_cluster_mode_spark_ships_the_spec_file(fakes: Any, run: Run) -> None:
    submit, _ = fakes
    assert run(master="yarn", deploy_mode="cluster", files="/etc/hosts").state == "success"
    argv = submit.record["argv"]
    assert argv[-1] == "job-spec.json"
    shipped = argv[argv.index("--files") + 1].split(",")
    assert shipped[0] == "/etc/hosts"
    assert Path(shipped[1]).name == "job-spec.json"
    assert not Path(shipped[1]).exists()
    assert submit.record["spec"]["mode"] == "drain"
    assert not [name for name in submit.record["env"] if name.startswith("AIRFLOW")]


def test_a_secret_among_the_task_s_properties_is_refused(
    fakes: Any, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, _ = fakes
    assert run(properties='{"database.password": "oops"}').state == "failed"
    assert submit.record is None
    assert "the task's properties contain a secret" in "".join(capfd.readouterr())


def test_two_tries_of_a_task_have_the_same_owner(fakes: Any, run: Run) -> None:
    _, pipeline = fakes
    pipeline.outcome = FakeOutcome(complete=False)
    ti = run()
    assert pipeline.planned() == [f"{ti.dag_id}/{ti.run_id}/cdc/-1"] * 2
