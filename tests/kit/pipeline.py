"""What the tests of the pipeline share: run jobs, read topics, compare with the source."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prooflib.reading import READER

from airflow_provider_mysql_cdc.cdc.commit.offset_store import MemoryOffsetStore, OffsetStore
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job.task_runner import ThreadRunner
from airflow_provider_mysql_cdc.cdc.operate.job_lifecycle import PreparedJob, settle_offset
from airflow_provider_mysql_cdc.cdc.operate.job_outcome import JobOutcome
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts, existing_topics
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import run_snapshot

ROOT = Path(__file__).resolve().parents[2]
JOBS = {"drain": "drain_binlog.py", "snapshot": "snapshot_tables.py"}
# A test's Spark driver starts in about five seconds with these; the operator uses the same defaults.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MaxNewSize=32m"


@dataclass
class Pipeline:
    """Run jobs of one topic.prefix as the operators do, in this process or on Spark.

    Args:
        properties: Connector properties.
        store: The offset store.
        slots: Tasks at once.
        owner: The run's name.
    """

    properties: dict[str, str]
    store: OffsetStore = field(default_factory=MemoryOffsetStore)
    slots: int = 3
    owner: str = "test/run/task/-1"
    lines: list[str] = field(default_factory=list)

    @property
    def cfg(self) -> ConnectorConfig:
        return _checked(tuple(self.properties.items()))

    def log(self, line: str) -> None:
        self.lines.append(line)

    def snapshot(self, **kwargs: Any) -> JobOutcome:
        job = prepare_snapshot(self.cfg, self.store, self.owner, self.log, **kwargs)
        assert job is not None, self.lines
        run_snapshot(job.spec, ThreadRunner(self.slots), self.log)
        return settle_offset(self.cfg, self.store, self.log)

    def drain(self) -> JobOutcome | None:
        job = prepare_drain(self.cfg, self.store, self.owner, self.log)
        if job is None:
            return None
        run_drain(job.spec, ThreadRunner(self.slots), self.log)
        return settle_offset(self.cfg, self.store, self.log)

    def snapshot_is_refused(self) -> bool:
        """Return whether preparing a snapshot finds that none is needed."""
        return prepare_snapshot(self.cfg, self.store, self.owner, self.log) is None

    def prepare(self, kind: str) -> PreparedJob:
        prepare = prepare_drain if kind == "drain" else prepare_snapshot
        job = prepare(self.cfg, self.store, self.owner, self.log)
        assert job is not None, self.lines
        return job

    def on_spark(
        self, kind: str, tmp_path: Path, *, fault: dict[str, Any] | None = None, cores: int = 3, run_for_s: float = 0
    ) -> subprocess.CompletedProcess[str]:
        """Prepare a job, submit it with spark-submit, and return the finished process (settle is up to the caller)."""
        job = self.prepare(kind)
        return submit(replace(job.spec, run_for_s=run_for_s), tmp_path, fault=fault, cores=cores)

    def in_process(
        self, kind: str, tmp_path: Path, *, fault: dict[str, Any] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Prepare a job, run it without Spark in a process of its own, and return that (settle is up to the caller)."""
        child = start_process(self.prepare(kind).spec, tmp_path, fault=fault, slots=self.slots)
        output, _ = child.communicate(timeout=300)
        return subprocess.CompletedProcess(child.args, child.returncode, output, "")

    def settle(self) -> JobOutcome:
        return settle_offset(self.cfg, self.store, self.log)

    def topics(self) -> dict[str, int]:
        prefix = self.properties["topic.prefix"]
        counts = all_partition_counts(make_admin(self.cfg.kafka_settings()))
        return {t: n for t, n in counts.items() if t.startswith(prefix + ".")}

    def read(self, topic: str) -> list[TopicRecord]:
        return READER.read(self.cfg.kafka_settings(), topic)

    def table_topic(self, table: str) -> str:
        return f"{self.properties['topic.prefix']}.{self.properties['database.include.list']}.{table}"

    def records(self, table: str) -> list[TopicRecord]:
        return self.read(self.table_topic(table))


@functools.lru_cache(maxsize=64)
def _checked(properties: tuple[tuple[str, str], ...]) -> ConnectorConfig:
    """Return the configuration of properties, which a test asks for again and again."""
    return ConnectorConfig.from_properties(dict(properties))


def submit_command(spec: Any, tmp_path: Path, cores: int = 3) -> list[str]:
    """Write the spec file and return the spark-submit command for it."""
    path = tmp_path / f"spec-{os.urandom(4).hex()}.json"
    spec.write(path)
    return [
        str(spark_home() / "bin" / "spark-submit"),
        *("--master", f"local[{cores}]", "--conf", "spark.ui.enabled=false", "--conf", f"spark.local.dir={tmp_path}"),
        # What a killed driver leaves behind goes with the test's folder.
        *("--driver-java-options", f"{JVM} -Djava.io.tmpdir={tmp_path}"),
        str(ROOT / "spark_jobs" / JOBS[spec.mode]),
        str(path),
    ]


def spark_home() -> Path:
    """Return the folder of the installed pyspark."""
    import pyspark

    return Path(pyspark.__file__).parent


def submit_env(fault: dict[str, Any] | None = None) -> dict[str, str]:
    """Return the environment of a Spark driver, with a fault to set."""
    env = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "HOME": os.environ.get("HOME", "/tmp"),
        "SPARK_LAUNCHER_OPTS": JVM,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    env |= {name: os.environ[name] for name in ("JAVA_HOME", "SPARK_SUBMIT_OPTS") if name in os.environ}
    if fault is not None:
        env["MYSQL_CDC_FAULT"] = json.dumps(fault)
    return env


def submit(spec: Any, tmp_path: Path, *, fault: dict[str, Any] | None = None, cores: int = 3) -> Any:
    """Run spark-submit on a job spec and wait for it."""
    return subprocess.run(
        submit_command(spec, tmp_path, cores),
        env=submit_env(fault),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# A job without Spark: its tasks are threads of one process, which a fault kills as a whole.
PROCESS = """
import sys
from pathlib import Path
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.task_runner import ThreadRunner
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import run_snapshot
spec = JobSpec.read(Path(sys.argv[1]))
{"drain": run_drain, "snapshot": run_snapshot}[spec.mode](spec, ThreadRunner(int(sys.argv[2])), print)
"""


def start_process(
    spec: Any, tmp_path: Path, *, fault: dict[str, Any] | None = None, slots: int = 1
) -> subprocess.Popen[str]:
    """Start a job in a process of its own; its output is a pipe."""
    path = tmp_path / f"spec-{os.urandom(4).hex()}.json"
    spec.write(path)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    if fault is not None:
        env["MYSQL_CDC_FAULT"] = json.dumps(fault)
    command = [sys.executable, "-c", PROCESS, str(path), str(slots)]
    return subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def delete_topics(kafka_settings: Mapping[str, Any], *topics: str) -> None:
    """Delete topics, and wait until the broker no longer names them.

    The broker answers before it has heard of the deletion itself: asked at once it may say that the topic is there, and
    a moment later that it is not.
    """
    admin = make_admin(kafka_settings)
    for future in admin.delete_topics(list(topics)).values():
        future.result(30)
    while existing_topics(admin, topics):
        time.sleep(0.02)


def payload(data: bytes | None) -> Any:
    """Return the payload of a key or value written by the JSON converter, with or without schema."""
    if data is None:
        return None
    found = json.loads(data)
    return found["payload"] if isinstance(found, dict) and set(found) == {"schema", "payload"} else found


def compacted(records: list[TopicRecord]) -> dict[str, Any]:
    """Return the last value per key, tombstones removed."""
    state: dict[str, Any] = {}
    for record in records:
        key = json.dumps(payload(record.key), sort_keys=True)
        value = payload(record.value)
        if value is None or value["op"] == "d":
            state.pop(key, None)
        else:
            state[key] = value["after"]
    return state


def require_chain(records: list[TopicRecord]) -> None:
    """Fail unless each event of a key continues what the one before left, and no row was read twice.

    Rows of different structures are compared by the columns that both have.
    """
    last: dict[str, Any] = {}
    read: set[str] = set()
    for record in records:
        key, value = json.dumps(payload(record.key), sort_keys=True), payload(record.value)
        before = last.get(key)
        if value is None:
            assert before is None, (key, "a tombstone without a delete")
            continue
        if value["op"] == "r":
            assert key not in read, (key, "was read twice")
            read.add(key)
        row = value["before"]
        assert (row is None) == (before is None), (key, value["op"], before, row)
        if row is not None:
            common = row.keys() & before.keys()
            assert {n: row[n] for n in common} == {n: before[n] for n in common}, (key, value["op"])
        last[key] = value["after"]


def duplicates(records: list[TopicRecord]) -> list[bytes]:
    """Return the event identities that occur more than once (header cdc-id)."""
    ids = [dict(r.headers)["cdc-id"] for r in records]
    return [i for i, n in Counter(ids).items() if n > 1]


def rows(conn: Any, sql: str) -> list[tuple[Any, ...]]:
    """Return all rows of a query."""
    with conn.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def execute(conn: Any, *statements: str) -> None:
    """Run statements."""
    with conn.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
