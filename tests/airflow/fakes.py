"""A spark-submit that only records what it was given, and a pipeline that needs no server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState, state_changes
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import SnapshotRequest, queue_scans
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec, decrypt_properties
from airflow_provider_mysql_cdc.cdc.model.job_names import KEY_VARIABLE
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate import interrupted_snapshot, send_signal, snapshot_again, source_server
from airflow_provider_mysql_cdc.cdc.operate import send_signal as asked_snapshot
from airflow_provider_mysql_cdc.cdc.operate import stored_offset as follow
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import IdleReason
from airflow_provider_mysql_cdc.cdc.operate.snapshot_again import RepeatedSnapshot
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyRequest

OPERATE = "airflow_provider_mysql_cdc.cdc.operate"
AROUND_JOB = ("settle", "prepare_drain", "prepare_snapshot", "prepare_verify")
PASSWORD = "pa55-of-mysql"
KAFKA_PASSWORD = "pa55-of-kafka"

SUBMIT = """#!{python}
import json, os, stat, sys
record = {{"argv": sys.argv, "env": dict(os.environ), "pgid": os.getpgid(0), "pid": os.getpid()}}
path = sys.argv[-1]
if "--files" in sys.argv:  # cluster mode: Spark would copy the file beside the driver
    path = sys.argv[sys.argv.index("--files") + 1].split(",")[-1]
if os.path.isabs(path) and os.path.exists(path):
    record["file"] = open(path).read()
    record["mode"] = stat.S_IMODE(os.stat(path).st_mode)
    record["folder_mode"] = stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode)
if "--properties-file" in sys.argv:
    record["settings"] = open(sys.argv[sys.argv.index("--properties-file") + 1]).read()
if "HADOOP_TOKEN_FILE_LOCATION" in os.environ:
    record["credentials"] = open(os.environ["HADOOP_TOKEN_FILE_LOCATION"].split(",")[-1], "rb").read().hex()
json.dump(record, open({record!r}, "w"))
print("[mysql-cdc] batch 1: 42 records", flush=True)
{body}
sys.exit({code})
"""


class FakeSubmit:
    """Stand in for spark-submit.

    Args:
        folder: Where its files go; becomes SPARK_HOME.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._record = folder / "record.json"
        (folder / "bin").mkdir(parents=True)
        self.set()

    def set(self, code: int = 0, body: str = "") -> None:
        """Say how it ends and what else it does."""
        script = self.folder / "bin" / "spark-submit"
        text = SUBMIT.format(python=sys.executable, record=str(self._record), body=body, code=code)
        script.write_text(text)
        script.chmod(0o755)
        java = self.folder / "bin" / "java"
        java.write_text("#!/bin/sh\n")
        java.chmod(0o755)

    @property
    def record(self) -> dict[str, Any] | None:
        """What it was given, or None when it did not run; the job spec as a driver would read it."""
        if not self._record.exists():
            return None
        record: dict[str, Any] = json.loads(self._record.read_text())
        if "file" in record and "sealed" in (spec := json.loads(record["file"])):
            key = record["env"].get(KEY_VARIABLE) or bytes.fromhex(record["credentials"]).decode("latin1")[-44:]
            record["spec"] = {**spec, "properties": decrypt_properties(spec["sealed"], key)}
        return record


@dataclass
class FakeOutcome:
    complete: bool = True
    offset: dict[str, Any] | None = field(default_factory=lambda: {"file": "binlog.000002", "pos": 157})
    counts: dict[str, int] = field(default_factory=lambda: {"shop.db.orders": 42})
    error: CdcError | None = None
    tally: RunTally | None = None


@dataclass
class FakeJob:
    spec: JobSpec


class FakePipeline(ModuleType):
    """Stand in for what an operator does around a job; set its attributes to choose what happens."""

    def __init__(self) -> None:
        super().__init__(OPERATE)
        self.outcome = FakeOutcome()
        self.nothing = 0
        self.idle = IdleReason("nothing new since binlog.000002:157")
        self.error: CdcError | None = None
        self.unsettled: CdcError | None = None
        self.calls: list[tuple[str, str]] = []
        self.cfg: ConnectorConfig | None = None
        self.store: Any = None
        self.again: bool | None = None
        self.even_empty: list[bool] = []
        self.settled: Callable[[], None] = lambda: None
        self.planning: Callable[[], None] = lambda: None
        self.left: Any = None
        self.told: list[tuple[Any, str]] = []

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a method as it is at this moment: a test may have given another one."""
        return getattr(self, name)(*arguments, **named)

    def _job(self, mode: str, cfg: ConnectorConfig, store: Any, owner: str, run_for_s: float) -> FakeJob | None:
        self.calls.append((mode, owner))
        self.cfg, self.store = cfg, store
        self.planning()
        if self.error:
            raise self.error
        if self.nothing:
            self.nothing -= 1
            return None
        return FakeJob(JobSpec(mode, cfg.properties(), {"epoch": 1}, owner, run_for_s, "0123456789abcdef"))

    def prepare_drain(
        self,
        cfg: ConnectorConfig,
        store: Any,
        owner: str,
        log: Any,
        *,
        run_for_s: float = 0.0,
        even_empty: bool = False,
        on_idle: Callable[[IdleReason], None] = lambda reason: None,
        **_: Any,
    ) -> FakeJob | None:
        log("planning a drain")
        self.even_empty.append(even_empty)
        job = self._job("drain", cfg, store, owner, run_for_s)
        if job is None:
            on_idle(self.idle)
        return job

    def prepare_snapshot(
        self, cfg: ConnectorConfig, store: Any, owner: str, log: Any, *, again: bool = False, **_: Any
    ) -> FakeJob | None:
        self.again = again
        return self._job("snapshot", cfg, store, owner, 0.0)

    def prepare_verify(
        self,
        cfg: ConnectorConfig,
        store: Any,
        owner: str,
        log: Any,
        request: VerifyRequest,
        *,
        on_idle: Callable[[IdleReason], None],
    ) -> FakeJob | None:
        job = self._job("verify", cfg, store, owner, 0.0)
        if job is None:
            on_idle(self.idle)
            return None
        return FakeJob(replace(job.spec, options=request.to_json()))

    def may_have_work(self, *_: Any) -> bool:
        """Have the next plan asked for at once."""
        return True

    def kill_while_planning(self, kind: Any) -> Any:
        """Return an operator that is killed while it plans a job."""
        pipeline = self

        class KilledWhilePlanning(kind):  # type: ignore[misc]
            def execute(self, context: Any) -> Any:
                pipeline.planning = self.on_kill
                return super().execute(context)

        return KilledWhilePlanning

    def planned(self) -> list[str]:
        """Return the owners of all plans asked for, one for each try."""
        return [owner for name, owner in self.calls if name != "settle"]

    def settle_verification(self, cfg: ConnectorConfig, store: Any, log: Any, spec: JobSpec) -> FakeOutcome:
        return self.settle_offset(cfg, store, log, spec)

    def settle_offset(self, cfg: ConnectorConfig, store: Any, log: Any, spec: JobSpec) -> FakeOutcome:
        self.calls.append(("settle", ""))
        self.settled()
        if self.unsettled:
            raise self.unsettled
        return self.outcome


class FakeStream:
    """Stand in for the ledger of a stream: signals that wait, and the books of a drain that takes them.

    Args:
        monkeypatch: Puts it in place.
        drains: Drains until a snapshot is done; the first one takes the signal.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, drains: int = 2) -> None:
        self.sent: list[Signal] = []
        self.books, self.drains = IncrementalState(), drains
        self.busy: list[CdcError] = []
        self.unknown: set[str] = set()
        self.chosen: str | None = None
        for channel in send_signal.CHANNELS:
            monkeypatch.setitem(send_signal._SENDERS, channel, lambda cfg, signal: self.sent.append(signal))
        monkeypatch.setattr(asked_snapshot, "peek_ledger", lambda cfg: self.ledger())
        monkeypatch.setattr(asked_snapshot, "require_captured", lambda cfg, entries: self.look(entries))
        monkeypatch.setattr(snapshot_again, "plan_repeated_snapshot", self._beside)
        monkeypatch.setattr(source_server, "at_one_server", lambda cfg, *_: cfg)
        monkeypatch.setattr(run_lock, "require_sole_run", lambda *_: self.require_nobody_else())

    def look(self, entries: Sequence[str]) -> None:
        """Refuse tables that a test calls unknown."""
        if self.unknown.intersection(entries):
            raise ConfigError("a table is not captured", where=f"tables: {self.unknown}")

    def _beside(self, cfg: ConnectorConfig, chosen: ConnectorConfig, *_: Any, again: bool) -> RepeatedSnapshot | None:
        self.chosen = chosen.texts.get("table.include.list")
        return RepeatedSnapshot(("shop.orders",)) if again else None

    def ledger(self) -> LedgerState:
        """Return what the ledger says."""
        others = {key: value for key, value in state_changes(IncrementalState(), self.books) if value is not None}
        waiting = [signal for signal in self.sent if signal.id not in self.books.requests]
        return LedgerState(other_records=others, signals={f"airflow/{s.id}": s.to_json() for s in waiting})

    def require_nobody_else(self) -> None:
        """Raise what another active run leads to, as often as a test says."""
        if self.busy:
            raise self.busy.pop(0)

    def drain(self) -> None:
        """Take the signals that wait, and read on: seven rows of each table in its last drain."""
        self.drains -= 1
        for signal in self.sent:
            tables = [TableId(*name.split(".")) for name in json.loads(signal.data)["data-collections"]]
            self.books = queue_scans(self.books, SnapshotRequest(signal.id, "incremental", tables, {}), 1)
        if self.drains <= 0:
            self.books = self.books.with_scans(replace(scan, rows=7).finish() for scan in self.books.active_scans)


def connections(monkeypatch: pytest.MonkeyPatch, **extra: Any) -> None:
    """Define the connections that a complete installation has."""
    mysql = {
        "conn_type": "mysql_cdc",
        "host": "mysql.example",
        "port": 3307,
        "login": "cdc",
        "password": PASSWORD,
        "extra": {"topic.prefix": "shop", "snapshot.mode": None, "table.include.list": "", **extra},
    }
    kafka = {
        "conn_type": "kafka",
        "extra": {
            "bootstrap.servers": "kafka.example:9092",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "cdc",
            "sasl.password": KAFKA_PASSWORD,
            "group.id": "airflow",
        },
    }
    spark = {"conn_type": "spark", "host": "local[2]"}
    for name, value in (("MYSQL_CDC_DEFAULT", mysql), ("KAFKA_CDC", kafka), ("SPARK_CDC", spark)):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(value))


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[FakeSubmit, FakePipeline]:
    """Put both fakes in place."""
    submit, pipeline = FakeSubmit(folder / "spark"), FakePipeline()
    monkeypatch.setenv("SPARK_HOME", str(submit.folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("AIRFLOW__SECRETS_OF_THE_TASK", "not for the driver")
    for name in AROUND_JOB:
        real = import_module(f"{OPERATE}.{name}")
        for replaced in vars(FakePipeline).keys() & vars(real).keys() - set(dir(ModuleType)):
            monkeypatch.setattr(real, replaced, partial(pipeline.call, replaced))
    monkeypatch.setattr(snapshot_again, "plan_repeated_snapshot", lambda *_, **__: None)
    monkeypatch.setattr(interrupted_snapshot, "finish_interrupted", lambda *_, **__: None)
    monkeypatch.setattr(follow, "tally_of_ended_run", lambda cfg, owner: pipeline.left)
    monkeypatch.setattr(follow, "mark_reported", lambda cfg, tally, run, log: pipeline.told.append((tally, run)))
    monkeypatch.setattr(f"{OPERATE}.end_run.server_time", lambda cfg: 1_700_000_000.0)
    assert os.environ["SPARK_HOME"] == str(submit.folder)
    return submit, pipeline
