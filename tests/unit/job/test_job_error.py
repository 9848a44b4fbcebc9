"""The error that a job ends with, told in the ledger and bound to the submission that asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogPurgedError,
    CdcError,
    ConfigError,
    SinkConnectionError,
    StateError,
)
from airflow_provider_mysql_cdc.cdc.job import job_error as last_words
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.spark import main as spark_main
from airflow_provider_mysql_cdc.spark.errors import ERROR_MARK, named_error

pytestmark = pytest.mark.quick

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
OWNER = "dag/run/task/-1"


def spec_of(id_: str = "one", owner: str = OWNER, **properties: str) -> JobSpec:
    return JobSpec("drain", {**BASE, "database.password": "pa55", **properties}, {}, owner, id=id_)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes | None]:
    """Return the ledger's records as a job leaves them."""
    records: dict[str, bytes | None] = {}

    def write(settings: Any, given: Any, *, timeout_s: float) -> None:
        for topic, key, value, _ in given:
            assert topic == "ledger.p" and timeout_s == last_words.WRITE_TIMEOUT_S
            records[key.decode()] = value

    monkeypatch.setattr(last_words, "write_plain", write)
    monkeypatch.setattr(last_words.kafka_clients, "ledger", lambda cfg: Mock())
    return records


def end(spec: JobSpec, error: BaseException, lines: list[str] | None = None) -> CdcError:
    """Let a job end with an error, and return what comes out."""
    with (
        pytest.raises(CdcError) as caught,
        last_words.reporting_job_error(spec, ([] if lines is None else lines).append, named_error),
    ):
        raise error
    return caught.value


def told(records: dict[str, bytes | None], id_: str = "one", owner: str = OWNER) -> CdcError | None:
    return last_words.read_job_error(build_ledger_state(records), owner, id_)


def test_an_error_before_the_first_batch_is_reported(kafka: dict[str, bytes | None]) -> None:
    given = BinlogPurgedError("gone", where="binlog.000001", remedy="take a new snapshot")
    assert end(spec_of(), given) is given
    found = told(kafka)
    assert type(found) is BinlogPurgedError and found.to_json() == given.to_json()


def test_only_the_submission_that_ended_with_it_has_said_it(kafka: dict[str, bytes | None]) -> None:
    end(spec_of("one"), BinlogPurgedError("gone"))
    assert told(kafka, "two") is None and told(kafka, "") is None
    assert told(kafka, "one", "other/run/task/-1") is None
    end(spec_of("two"), SinkConnectionError("no broker"))
    assert told(kafka, "one") is None
    assert type(told(kafka, "two")) is SinkConnectionError


def test_a_job_that_nobody_asks_about_writes_nothing(kafka: dict[str, bytes | None]) -> None:
    end(spec_of(""), BinlogPurgedError("gone"))
    assert kafka == {}


def test_the_error_of_a_task_on_an_executor_is_reported_by_its_name(kafka: dict[str, bytes | None]) -> None:
    text = (
        "Py4JJavaError: RuntimeError: " + ERROR_MARK + '{"type": "BinlogPurgedError", "what": "gone"}\n\tat org.apache'
    )
    assert type(end(spec_of(), RuntimeError(text))) is BinlogPurgedError
    assert type(told(kafka)) is BinlogPurgedError


def test_an_unexpected_error_is_reported_without_secrets_and_is_retriable(kafka: dict[str, bytes | None]) -> None:
    lines: list[str] = []
    error = end(spec_of(), KeyError("executor 3 lost, password=pa55"), lines)
    found = told(kafka)
    assert type(error) is StateError and error.can_retry
    assert found is not None and "KeyError" in found.why and "executor 3 lost" in found.why
    assert "Traceback" in lines[0]
    assert "pa55" not in f"{error} {found} {lines}"


def test_the_frames_of_a_java_exception_stay_in_the_log(kafka: dict[str, bytes | None]) -> None:
    java = "An error occurred.\n: X: why it failed\n\tat org.apache.A$.b(A.scala:1)\n\tat c.d(E.java)\nCaused by: y"
    end(spec_of(), RuntimeError(java))
    found = told(kafka)
    assert found is not None and "why it failed\nCaused by: y" in found.why and "A.scala" not in found.why


def test_an_error_that_cannot_be_reported_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise SinkConnectionError("no broker answers")

    monkeypatch.setattr(last_words, "write_plain", refuse)
    monkeypatch.setattr(last_words.kafka_clients, "ledger", lambda cfg: Mock())
    lines: list[str] = []
    assert type(end(spec_of(), BinlogPurgedError("gone"), lines)) is BinlogPurgedError
    assert "no broker answers" in lines[0]


def test_a_configuration_that_this_host_cannot_read_still_leads_to_the_ledger(kafka: dict[str, bytes | None]) -> None:
    spec = spec_of(converters="c", **{"c.type": "not.on.this.host"})
    end(spec, ConfigError("no module named not"))
    assert type(told(kafka)) is ConfigError


def test_the_ledger_does_not_grow_with_the_runs_that_failed(kafka: dict[str, bytes | None]) -> None:
    for n in range(500):
        last_words.write_job_error(spec_of("x", f"dag/run{n}/task/-1"), BinlogPurgedError("gone"), print)
    assert len(kafka) <= last_words.JOB_ERROR_KEYS
    assert not build_ledger_state(kafka).has_commits()


@pytest.mark.parametrize(("error", "code"), [(BinlogPurgedError("gone"), 78), (SinkConnectionError("x"), 75)])
def test_a_driver_ends_with_the_error_s_line_and_exit_code(
    kafka: dict[str, bytes | None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    error: CdcError,
    code: int,
) -> None:
    def fail(run: Any, spec: JobSpec) -> None:
        raise error

    monkeypatch.setattr(spark_main, "_on_spark", fail)
    spec_of().write(tmp_path / "job-spec.json")
    with pytest.raises(SystemExit) as caught:
        spark_main.main(print, [str(tmp_path / "job-spec.json")])
    assert caught.value.code == code
    assert f"[mysql-cdc] {type(error).__name__}: {error.message()}" in capsys.readouterr().out
    assert type(told(kafka)) is type(error)


def test_a_long_error_is_one_line_of_the_driver_s_output(
    kafka: dict[str, bytes | None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What is found by its beginning must not be cut off behind it."""

    def fail(run: Any, spec: JobSpec) -> None:
        raise ConfigError("The configuration has 2 problems", why="\n  1. the first\n  2. the second\n")

    monkeypatch.setattr(spark_main, "_on_spark", fail)
    spec_of().write(tmp_path / "job-spec.json")
    with pytest.raises(SystemExit):
        spark_main.main(print, [str(tmp_path / "job-spec.json")])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "ConfigError" in line]
    assert "Why: 1. the first 2. the second" in line


def test_a_context_that_spark_has_stopped_is_named(
    kafka: dict[str, bytes | None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(run: Any, spec: JobSpec) -> None:
        raise RuntimeError(
            "o20.broadcast\n: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext"
        )

    monkeypatch.setattr(spark_main, "_on_spark", fail)
    spec_of().write(tmp_path / "job-spec.json")
    with pytest.raises(SystemExit) as caught:
        spark_main.main(print, [str(tmp_path / "job-spec.json")])
    assert caught.value.code == 75
    assert "StateError: Spark has ended the application of this job" in capsys.readouterr().out


def test_a_spec_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        spark_main.main(print, [str(tmp_path / "job-spec.json")])
    assert caught.value.code == 75, "the task's next try writes another one"
    assert "StateError: the job spec is missing" in capsys.readouterr().out
