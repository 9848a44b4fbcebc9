"""MySqlCdcVerifyOperator and its DAG: what reaches the job, what is reported, and how the task ends."""

from __future__ import annotations

import json
import runpy
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Param, task
from airflow.sdk.exceptions import TaskDeferred
from airflow_home import run_dag
from fakes import FakeOutcome, FakePipeline, FakeSubmit, connections, install
from kit.cases import for_each
from kit.verify_results import CUSTOMERS, ORDERS, verify_result

from airflow_provider_mysql_cdc.assets.mysql_cdc import verification_asset, verification_uri
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.operate import settle
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import IdleReason
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import verdict_values
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import bounded_json
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    MAX_EXAMPLES,
    DifferenceKind,
    RepairMode,
    TableVerdict,
    VerifyRequest,
    VerifyResult,
)
from airflow_provider_mysql_cdc.operators import dag_forms
from airflow_provider_mysql_cdc.operators.task_result import write_report_file
from airflow_provider_mysql_cdc.operators.verify import MAX_RESULT_TABLES, MySqlCdcVerifyOperator

pytestmark = pytest.mark.usefixtures("metadata_db")
Run = Callable[..., Any]
DAGS = Path(__file__).resolve().parents[2] / "airflow_provider_mysql_cdc" / "example_dags"
IS_RUNNING = "airflow_provider_mysql_cdc.operators.detached_driver._is_driver_running"
URI = "mysql-cdc://mysql.example:3307/shop/verification"


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeSubmit, FakePipeline]:
    connections(monkeypatch, kafka_conn_id="kafka_cdc", **{"column.mask.with.4.chars": "shop.orders.secret"})
    return install(monkeypatch, tmp_path)


class Verdicts:
    """The verdicts that a job writes: of the run that it was started for, unless a test says otherwise."""

    def __init__(self, submit: FakeSubmit) -> None:
        self.submit, self.tables, self.run = submit, (ORDERS, CUSTOMERS), ""

    def result(self) -> VerifyResult:
        spec = self.submit.record["spec"]  # type: ignore[index]
        return verify_result(
            *self.tables, run=self.run or spec["run"], request=VerifyRequest.from_json(spec["options"])
        )

    def ledger(self, *_: Any) -> Any:
        values = verdict_values(build_ledger_state({}), self.result())
        return build_ledger_state({key: None if value is None else encode(value) for key, value in values})


@pytest.fixture
def verdicts(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> Verdicts:
    found = Verdicts(fakes[0])
    monkeypatch.setattr(settle, "read_ledger", found.ledger)
    return found


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """Run one task in a DAG of its own and return the task instance."""

    def go(**more: Any) -> Any:
        name = "".join(c if c.isalnum() else "_" for c in request.node.name)
        with DAG(dag_id=name, schedule=None) as dag:
            MySqlCdcVerifyOperator(task_id="verify", **{"retries": 1, "retry_delay": timedelta(0)} | more)
        return run_dag(dag).get_task_instance("verify")

    return go


def log_of(capfd: pytest.CaptureFixture[str]) -> str:
    return "".join(capfd.readouterr())


def events(dag_run: str) -> dict[str, Any]:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(AssetEvent).filter_by(source_run_id=dag_run).all()
        return {event.asset.uri: event.extra for event in found}


def test_it_ships_the_request_reports_and_returns_counts(
    fakes: Any, verdicts: Verdicts, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, pipeline = fakes
    ti = run(tables=["shop.orders", "shop.customers"], sample_percent=12.5, repair="dry-run", examples=3)
    assert ti.state == "success"
    spec = submit.record["spec"]
    assert (spec["mode"], spec["run"]) == ("verify", f"{ti.dag_id}/{ti.run_id}/verify/-1#0")
    asked = VerifyRequest(("shop.orders", "shop.customers"), 12.5, RepairMode.DRY_RUN, 3)
    assert VerifyRequest.from_json(spec["options"]) == asked
    assert submit.record["argv"][-2].endswith("spark_jobs/verify_topics.py")
    assert [name for name, _ in pipeline.calls] == ["verify", "settle"]
    result = ti.xcom_pull(task_ids="verify")
    assert (result["complete"], result["counts"]) == (True, {"shop.db.orders": 42})
    told = result["verification"]
    assert (told["verdict"], told["tables_compared"], told["tables_different"]) == ("different", 2, 1)
    assert told["findings"] == {"missing": 1, "differing": 3, "duplicate": 2}
    assert told["tables"]["shop.customers"] == {
        "rows": 3,
        "records": 4,
        "findings": {},
        "repaired": {},
        "verdict": "equal",
    }
    assert "s3cret" not in json.dumps(result) and "new" not in json.dumps(result), "a result has no values"
    log = log_of(capfd)
    assert "1 of 2 tables of s differ from their topics." in log
    assert '{"id": 7}, differs in item' in log and "s3cret" not in log


def test_the_event_of_a_verification_has_the_verdict(fakes: Any, verdicts: Verdicts, run: Run) -> None:
    ti = run()
    extra = events(ti.run_id)[URI]
    assert (extra["equal"], extra["different"], extra["findings"]["missing"]) == (False, ["shop.orders"], 1)
    assert "tables" not in extra
    assert (
        verification_asset("mysql.example", "shop", 3307).uri == verification_uri("mysql.example", "shop", 3307) == URI
    )


def test_differences_fail_the_task_where_that_is_wanted(
    fakes: Any, verdicts: Verdicts, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    ti = run(fail_on_difference="True", repair="dry-run")
    assert (ti.state, ti.try_number) == ("failed", 1)
    log = log_of(capfd)
    assert "DifferencesFoundError: 1 of 2 tables differ from their topics. A retry will not help.\n" in log
    assert "Where: shop.orders: differing 3, duplicate 2\n" in log, "one missing row was repaired"
    assert "What to do: find out what has changed them" in log and "docs/verify.md" in log
    assert ti.xcom_pull(task_ids="verify")["verification"]["tables_different"] == 1
    assert events(ti.run_id) == {}


@pytest.mark.parametrize("repaired", [False, True])
def test_a_task_succeeds_where_nothing_is_left(fakes: Any, verdicts: Verdicts, run: Run, repaired: bool) -> None:
    verdicts.tables = (replace(ORDERS, repaired=ORDERS.findings) if repaired else CUSTOMERS,)
    assert run(fail_on_difference=True, repair="yes").state == "success"


@for_each(
    ("arguments", "state"),
    [
        ({}, "success"),
        ({"fail_on_difference": True}, "failed"),
        ({"fail_on_not_judged": "True"}, "failed"),
        ({"fail_on_difference": True, "fail_on_not_judged": False}, "success"),
    ],
)
def test_what_was_not_judged_fails_the_task_where_that_is_wanted(
    fakes: Any, verdicts: Verdicts, run: Run, arguments: dict[str, Any], state: str, capfd: pytest.CaptureFixture[str]
) -> None:
    verdicts.tables = (CUSTOMERS, replace(CUSTOMERS, table="shop.gone", unknown=("retention",), unjudged=3))
    ti = run(**arguments)
    assert ti.state == state, arguments
    log = log_of(capfd)
    assert "1 of 2 tables of s could not be judged in full; every other topic equals its table." in log, arguments
    assert ("NotJudgedError: 1 of 2 tables could not be judged in full." in log) is (state == "failed"), arguments
    if state == "success":
        extra = events(ti.run_id)[URI]
        assert (extra["verdict"], extra["different"], extra["not_judged"]) == ("not judged", [], ["shop.gone"])


def test_while_another_run_is_active_the_task_is_skipped_and_says_so(
    fakes: Any, verdicts: Verdicts, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, pipeline = fakes
    pipeline.nothing, pipeline.idle = 1, IdleReason("this verification gives way: a drain is active", gave_way=True)
    ti = run(fail_on_difference=True)
    assert (ti.state, ti.try_number, submit.record) == ("skipped", 1, None)
    result = ti.xcom_pull(task_ids="verify")
    assert result["reason"] == "this verification gives way: a drain is active" and "verification" not in result
    assert "gives way" in log_of(capfd)


def test_of_two_runs_that_begin_at_once_the_verification_plans_again(fakes: Any, verdicts: Verdicts, run: Run) -> None:
    submit, pipeline = fakes
    submit.set(code=75, body='print("[mysql-cdc] RunInProgressError: another run of this topic.prefix is active.")')
    pipeline.outcome = FakeOutcome(complete=False)

    def settled() -> None:
        if len(pipeline.planned()) > 1:
            pipeline.outcome = FakeOutcome()
        submit.set()

    pipeline.settled = settled
    ti = run()
    assert (ti.state, ti.try_number, len(pipeline.planned())) == ("success", 1, 2)


def test_a_job_without_verdicts_of_its_run_is_no_success(
    fakes: Any, verdicts: Verdicts, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    verdicts.run = "another/run#0"
    ti = run()
    assert (ti.state, ti.try_number) == ("failed", 2)
    assert "the verification ended without a result" in log_of(capfd)


def test_a_driver_that_died_is_no_success_although_verdicts_of_an_earlier_try_are_there(
    fakes: Any, verdicts: Verdicts, run: Run
) -> None:
    submit, _ = fakes
    submit.set(code=137)
    ti = run()
    assert (ti.state, ti.try_number, ti.xcom_pull(task_ids="verify")) == ("failed", 2, None)


@pytest.mark.parametrize(("repair", "deferred"), [("no", True), ("dry-run", False), ("yes", False)])
def test_the_task_is_deferred_only_where_nothing_is_repaired(
    fakes: Any, verdicts: Verdicts, run: Run, repair: str, deferred: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that waits for other runs before it repairs holds no lock, by which a trigger could follow it."""
    monkeypatch.setattr(
        "airflow_provider_mysql_cdc.operators.detached_driver.DetachedDriver.follow_earlier",
        lambda self: seen.append(True),
    )
    monkeypatch.setattr(
        "airflow_provider_mysql_cdc.operators.detached_driver.DetachedDriver.submit", lambda self, spec: None
    )
    verdicts.submit.set()
    seen: list[bool] = []
    run(repair=repair, deferrable=True, retries=0)
    assert bool(seen) is deferred


def test_the_verdict_is_read_also_after_a_deferral(
    fakes: Any, verdicts: Verdicts, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``resume`` settles in another process than the one that has started the driver."""
    execute = MySqlCdcVerifyOperator.execute
    monkeypatch.setattr(IS_RUNNING, lambda cfg, owner: False)

    def execute_and_resume(self: Any, context: Any) -> Any:
        first = execute(self, context)
        assert self.resume(context, {"status": "ended"}) == first
        return first

    monkeypatch.setattr(MySqlCdcVerifyOperator, "execute", execute_and_resume)
    assert run().xcom_pull(task_ids="verify")["verification"]["tables_compared"] == 2
    assert run(fail_on_difference=True).state == "failed"


def test_a_driver_that_goes_on_with_the_next_group_is_followed_on(
    fakes: Any, verdicts: Verdicts, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two groups its lock is free for a moment, by which a trigger takes it for ended."""
    execute, running = MySqlCdcVerifyOperator.execute, [True]
    monkeypatch.setattr(IS_RUNNING, lambda cfg, owner: running.pop())

    def execute_and_resume(self: Any, context: Any) -> Any:
        first = execute(self, context)
        with pytest.raises(TaskDeferred) as deferred:
            self.resume(context, {"status": "ended"})
        assert deferred.value.method_name == "resume" and not running
        return first

    monkeypatch.setattr(MySqlCdcVerifyOperator, "execute", execute_and_resume)
    assert run().state == "success" and not running


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"sample_percent": 0}, "the sample is out of range"),
        ({"fail_on_difference": "perhaps"}, "is neither true nor false"),
        ({"report_dir": "/proc/version/x"}, "the report of the verification cannot be written"),
    ],
    ids=str,
)
def test_wrong_values_end_the_task_before_anything_starts(
    fakes: Any, run: Run, arguments: dict[str, Any], what: str, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, pipeline = fakes
    ti = run(**arguments)
    assert (ti.state, ti.try_number) == ("failed", 1)
    assert (pipeline.calls, submit.record) == ([], None)
    assert what in log_of(capfd)


def test_run_for_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(TypeError, match="does not take run_for"):
        MySqlCdcVerifyOperator(task_id="verify", run_for=60)


def test_the_report_is_written_where_the_author_says(
    fakes: Any, verdicts: Verdicts, run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "reports" / "of this stream"
    assert run(report_dir=str(folder), fail_on_difference=True).state == "failed", "the report is written all the same"
    (document,) = folder.iterdir()
    assert document.name == "verify-s-20261126T133320.json"
    assert f"The report was written to {document}." in log_of(capfd)
    assert stat.S_IMODE(document.stat().st_mode) & 0o027 == 0
    written = VerifyResult.from_json(json.loads(document.read_text()))
    assert [verdict.table for verdict in written.tables] == ["shop.customers", "shop.orders"]
    assert "s3cret" not in document.read_text()


def test_a_report_that_cannot_be_written_fails_by_name(tmp_path: Path) -> None:
    (tmp_path / "verify-s-20261126T133320.json").mkdir()
    with pytest.raises(ConfigError, match="the report of the verification cannot be written"):
        write_report_file(str(tmp_path), verify_result(ORDERS))
    assert [path.name for path in tmp_path.iterdir()] == ["verify-s-20261126T133320.json"], "no part is left"


@task
def arguments_from_form(params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return arguments of a mapped task with what the form holds."""
    return [dict.fromkeys(("report_dir", "replica_conn_id"), (params or {})["p"])]


@pytest.mark.parametrize("way", ["template", "mapped"])
def test_a_run_chooses_neither_where_files_are_written_nor_a_replica(
    fakes: Any, tmp_path: Path, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, pipeline = fakes
    folder = tmp_path / "of-the-run"
    with DAG(f"folder_of_a_run_{way}", schedule=None, params={"p": Param("", type="string")}) as dag:
        if way == "template":
            MySqlCdcVerifyOperator(task_id="verify", report_dir="{{ params.p }}", replica_conn_id="{{ params.p }}")
        else:
            MySqlCdcVerifyOperator.partial(task_id="verify").expand_kwargs(arguments_from_form())
    assert run_dag(dag, {"p": str(folder)}).state == "failed"
    assert (pipeline.calls, submit.record, folder.exists()) == ([], None, False)
    log = log_of(capfd)
    assert "the run sets arguments of the operator that a run may not set" in log
    assert "Where: replica_conn_id, report_dir" in log


def test_a_variable_may_name_the_folder(
    fakes: Any, verdicts: Verdicts, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_REPORTS", str(tmp_path / "reports"))
    assert run(report_dir="{{ var.value.reports }}").state == "success"
    assert len(list((tmp_path / "reports").iterdir())) == 1


def test_a_result_stays_small_whatever_number_of_tables_differ() -> None:
    tables = [
        TableVerdict(f"d.t{n:05}", "t", findings={DifferenceKind.GHOST: 1} if n % 5 else {}) for n in range(5_000)
    ]
    summary = bounded_json(verify_result(*tables), MAX_RESULT_TABLES)
    assert (len(summary["tables"]), summary["tables_omitted"]) == (1_000, 4_000)
    assert all(counts["findings"] for counts in summary["tables"].values()), "those with differences come first"
    assert len(json.dumps(summary)) < 150_000
    error = settle.differences_error(verify_result(*tables))
    assert error is not None and error.what == "4,000 of 5,000 tables differ from their topics"
    assert error.where.endswith("and 3,995 more")


def shipped() -> DAG:
    scope = runpy.run_path(str(DAGS / "mysql_cdc_verify.py"))
    (dag,) = (value for value in scope.values() if isinstance(value, DAG))
    return dag


def test_the_form_untouched_compares_everything_and_repairs_nothing(fakes: Any, verdicts: Verdicts) -> None:
    submit, _ = fakes
    assert run_dag(shipped()).state == "success"
    assert VerifyRequest.from_json(submit.record["spec"]["options"]) == VerifyRequest()


def test_the_form_reaches_the_job(fakes: Any, verdicts: Verdicts) -> None:
    submit, _ = fakes
    form = {
        "tables": [r"shop\.orders_\d{4}", "shop.o'neil & <co>", '"{{ 1 }}"."x"'],
        "sample_percent": 2.5,
        "repair": "yes",
        "show_values": False,
        "history": True,
        "examples": 0,
        "properties": {"verify.rows.per.second": 1000, "repair.max.rows": 5},
    }
    assert run_dag(shipped(), form).state == "success"
    asked = VerifyRequest.from_json(submit.record["spec"]["options"])
    assert asked == VerifyRequest(tuple(form["tables"]), 2.5, RepairMode.YES, 0, show_values=False, history=True)  # type: ignore[arg-type]
    properties = submit.record["spec"]["properties"]
    assert (properties["verify.rows.per.second"], properties["repair.max.rows"]) == ("1000", "5")


def test_the_form_can_let_the_task_fail(fakes: Any, verdicts: Verdicts) -> None:
    assert run_dag(shipped(), {"fail_on_difference": True}).state == "failed"


@pytest.mark.parametrize(
    "form",
    [
        {"sample_percent": 0},
        {"sample_percent": 101},
        {"repair": "maybe"},
        {"repair": True},
        {"tables": [""]},
        {"examples": MAX_EXAMPLES + 1},
    ],
    ids=str,
)
def test_the_form_refuses_wrong_values(fakes: Any, form: dict[str, Any]) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises((ParamValidationError, ValueError)):
        run_dag(shipped(), form)
    assert fakes[1].calls == []


def test_the_form_s_limit_of_examples_is_the_request_s() -> None:
    assert dag_forms.MAX_EXAMPLES == MAX_EXAMPLES


@pytest.mark.parametrize(("value", "schedule"), [("@weekly", "0 0 * * 0"), ("none", None), ("", None)])
def test_the_schedule_is_an_option(monkeypatch: pytest.MonkeyPatch, value: str, schedule: str | None) -> None:
    monkeypatch.setenv("AIRFLOW__MYSQL_CDC__VERIFY_SCHEDULE", value)
    assert getattr(shipped().timetable, "expression", None) == schedule
