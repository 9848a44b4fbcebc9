"""The driver of a fleet: many drain drivers in threads, each with its own log, error and share of the slots."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.cases import for_each
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    ConfigError,
    DamagedRecordError,
    SourceConnectionError,
    StateError,
)
from airflow_provider_mysql_cdc.cdc.fleet import fleet_driver
from airflow_provider_mysql_cdc.cdc.fleet.fleet_driver import reporting_fleet_error, run_fleet
from airflow_provider_mysql_cdc.cdc.fleet.fleet_spec import fleet_job, fleet_streams
from airflow_provider_mysql_cdc.cdc.job import job_error
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log

SECRET = "M4rked-s3cret"


def stream(name: str) -> JobSpec:
    properties = {"topic.prefix": name, "database.password": f"{SECRET}-{name}"}
    return JobSpec("drain", properties, {"epoch": 3}, "dag/run/task/-1", 0.0, "ab12", "dag/run/task/-1#0")


def named(error: BaseException) -> CdcError | None:
    return error if isinstance(error, CdcError) else None


def own_index(index: int, _: object) -> int:
    return index


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> dict[str, CdcError]:
    """Return what was written into the ledger of each stream."""
    found: dict[str, CdcError] = {}

    def write(spec: JobSpec, error: CdcError, log: Log) -> None:
        found[spec.properties["topic.prefix"]] = error

    monkeypatch.setattr(job_error, "write_job_error", write)
    monkeypatch.setattr(fleet_driver, "write_job_error", write)
    return found


def test_the_specs_of_the_streams_travel_encrypted_and_come_out_as_they_went_in(tmp_path: Path) -> None:
    streams = [stream("one"), stream("two")]
    job = fleet_job(streams)
    assert (job.mode, job.owner, job.run) == ("fleet", "dag/run/task/-1", "dag/run/task/-1#0")
    assert SECRET not in repr(job)
    path = tmp_path / "spec.json"
    key = job.write_encrypted(path)
    assert SECRET not in path.read_text()
    assert fleet_streams(JobSpec.read(path, lambda: key)) == streams
    assert fleet_streams(JobSpec.from_json(json.loads(json.dumps(job.to_json())))) == streams


@for_each("properties", [{}, {"stream.1": "{}"}, {"stream.0": "no JSON"}, {"stream.0": "[]"}])
def test_another_spec_is_refused_by_name(properties: dict[str, str]) -> None:
    with pytest.raises(DamagedRecordError):
        fleet_streams(JobSpec("fleet", properties, {}, "o"))
    with pytest.raises(DamagedRecordError):
        fleet_streams(stream("one"))


def test_an_error_ends_its_stream_alone_and_is_written_into_its_own_ledger(reported: dict[str, CdcError]) -> None:
    lines: list[str] = []
    all_run = threading.Barrier(4)

    def drain(spec: JobSpec, runner: TaskRunner, log: Log) -> None:
        name = spec.properties["topic.prefix"]
        all_run.wait(60)  # all streams run at the same time, whatever the number of slots
        log(f"drains {name}")
        assert runner.run(own_index, 2, 0, barrier=False) == [0, 1]
        if name == "dead":
            raise SourceConnectionError("gone", remedy="start it")
        if name == "odd":
            raise LookupError(f"{SECRET}-odd")

    job = fleet_job([stream(name) for name in ("one", "dead", "odd", "two")])
    assert run_fleet(job, ThreadRunner(2), lines.append, named, drain) == 2
    assert {name: type(error) for name, error in reported.items()} == {"dead": SourceConnectionError, "odd": StateError}
    assert {"one: drains one", "two: drains two", "dead: drains dead"} <= set(lines)
    assert "dead: SourceConnectionError: gone. What to do: start it. A retry can help." in lines
    assert lines[-1] == "2 of 4 streams were drained"
    assert SECRET not in "\n".join(lines) and SECRET not in str(reported["odd"])


def test_of_one_server_some_streams_work_at_a_time_and_those_of_another_do_not_wait(
    reported: dict[str, CdcError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server has a limit for the connections of all its clients."""
    monkeypatch.setattr(fleet_driver, "STREAMS_OF_SERVER", 2)
    lock, at_work, most = threading.Lock(), {"db1": 0, "db2": 0}, {"db1": 0, "db2": 0}
    begun = threading.Barrier(4)

    def drain(spec: JobSpec, runner: TaskRunner, log: Log) -> None:
        host = spec.properties["database.hostname"]
        with lock:
            at_work[host] += 1
            most[host] = max(most[host], at_work[host])
        if spec.properties["topic.prefix"] in ("s0", "s1", "s10", "s11"):
            begun.wait(60)  # two of each server
        threading.Event().wait(0.01)
        with lock:
            at_work[host] -= 1
        if spec.properties["topic.prefix"] == "s1":
            raise SourceConnectionError("gone", remedy="start it")

    specs = [stream(f"s{n}") for n in range(20)]
    streams = [
        replace(spec, properties={**spec.properties, "database.hostname": f"db{1 + n // 10}"})
        for n, spec in enumerate(specs)
    ]
    assert run_fleet(fleet_job(streams), ThreadRunner(2), lambda line: None, named, drain) == 19
    assert most == {"db1": 2, "db2": 2} and list(reported) == ["s1"]


def test_an_error_before_the_streams_is_in_the_ledger_of_each(reported: dict[str, CdcError]) -> None:
    job = fleet_job([stream("one"), stream("two")])
    with pytest.raises(ConfigError, match="no Spark"), reporting_fleet_error(job, print, named):
        raise ConfigError("no Spark")
    assert {name: error.what for name, error in reported.items()} == {"one": "no Spark", "two": "no Spark"}


def test_an_error_without_a_name_shows_no_secret_of_any_stream(reported: dict[str, CdcError]) -> None:
    job = fleet_job([stream("one"), stream("two")])
    with pytest.raises(StateError) as raised, reporting_fleet_error(job, print, named):
        raise LookupError(f"{SECRET}-two")
    assert "LookupError" in str(raised.value) and SECRET not in str(raised.value)
    assert raised.value.can_retry and set(reported) == {"one", "two"}


def test_lines_of_streams_come_one_at_a_time() -> None:
    inside, most = threading.Semaphore(0), [0]

    def log(line: str) -> None:
        most[0] = max(most[0], 1 + inside._value)
        inside.release()
        threading.Event().wait(0.001)
        inside.acquire()

    def drain(spec: JobSpec, runner: Any, log: Log) -> None:
        for _ in range(5):
            log("line")

    run_fleet(fleet_job([stream(str(n)) for n in range(8)]), ThreadRunner(), log, named, drain)
    assert most == [1]
