"""A spark-submit that only records what it was given, and a pipeline that needs no server."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec

OPERATE = "airflow_provider_mysql_cdc.cdc.operate.around_job"
PASSWORD = "pa55-of-mysql"
KAFKA_PASSWORD = "pa55-of-kafka"

SUBMIT = """#!{python}
import json, os, stat, sys
record = {{"argv": sys.argv, "env": dict(os.environ), "pgid": os.getpgid(0), "pid": os.getpid()}}
path = sys.argv[-1]
if "--files" in sys.argv:  # cluster mode: Spark would copy the file beside the driver
    path = sys.argv[sys.argv.index("--files") + 1].split(",")[-1]
record["spec"] = json.load(open(path))
record["mode"] = stat.S_IMODE(os.stat(path).st_mode)
record["folder_mode"] = stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode)
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
        """What it was given, or None when it did not run."""
        return json.loads(self._record.read_text()) if self._record.exists() else None


@dataclass
class FakeOutcome:
    complete: bool = True
    offset: dict[str, Any] | None = field(default_factory=lambda: {"file": "binlog.000002", "pos": 157})
    counts: dict[str, int] = field(default_factory=lambda: {"shop.db.orders": 42})
    error: CdcError | None = None


@dataclass
class FakeJob:
    spec: JobSpec


class FakePipeline(ModuleType):
    """Stand in for ``cdc.pipeline.operate``; set its attributes to choose what happens."""

    def __init__(self) -> None:
        super().__init__(OPERATE)
        self.outcome = FakeOutcome()
        self.nothing = 0
        self.error: CdcError | None = None
        self.calls: list[tuple[str, str]] = []
        self.cfg: ConnectorConfig | None = None
        self.store: Any = None
        self.again: bool | None = None

    def _job(self, mode: str, cfg: ConnectorConfig, store: Any, owner: str, run_for_s: float) -> FakeJob | None:
        self.calls.append((mode, owner))
        self.cfg, self.store = cfg, store
        if self.error:
            raise self.error
        if self.nothing:
            self.nothing -= 1
            return None
        return FakeJob(JobSpec(mode, cfg.properties(), {"epoch": 1}, owner, run_for_s))

    def prepare_drain(
        self, cfg: ConnectorConfig, store: Any, owner: str, log: Any, *, run_for_s: float = 0.0, **_: Any
    ) -> FakeJob | None:
        log("planning a drain")
        return self._job("drain", cfg, store, owner, run_for_s)

    def prepare_snapshot(
        self, cfg: ConnectorConfig, store: Any, owner: str, log: Any, *, again: bool = False
    ) -> FakeJob | None:
        self.again = again
        return self._job("snapshot", cfg, store, owner, 0.0)

    def planned(self) -> list[str]:
        """Return the owners of all plans asked for, one for each try."""
        return [owner for name, owner in self.calls if name != "settle"]

    def settle(self, cfg: ConnectorConfig, store: Any, log: Any) -> FakeOutcome:
        self.calls.append(("settle", ""))
        return self.outcome


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
    monkeypatch.setitem(sys.modules, OPERATE, pipeline)
    assert os.environ["SPARK_HOME"] == str(submit.folder)
    return submit, pipeline
