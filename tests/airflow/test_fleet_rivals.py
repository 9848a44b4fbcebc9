"""A fleet beside and after other runs of its streams: other fleets, operators of one, a second attempt of its task."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from airflow_home import run_dag
from kit.private_mysql import PrivateServer
from kit.sql import execute
from test_fleet_kills import server  # noqa: F401
from test_real_fleet import ROWS, SHARDS, Fleet

from airflow_provider_mysql_cdc.dag_factory import cdc_fleet, cdc_pipeline
from airflow_provider_mysql_cdc.operators.fleet_outcome import DRAINED, GAVE_WAY

pytestmark = [
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.exhaustive,
    pytest.mark.usefixtures("metadata_db"),
]
HERE, WAIT_S = Path(__file__).parent, 300


@dataclass
class Runs:
    """Tasks in processes of their own, each with an Airflow of its own and all with one database of offsets."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, operator: str, run_id: str, **arguments: Any) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a task; return its process, and the file of its result."""
        folder = self.folder / name
        shutil.copytree(os.environ["AIRFLOW_HOME"], folder)
        result = folder / "result.json"
        given = {"dag_id": self.folder.name, "operator": operator, "run_id": run_id, "result": str(result)}
        more = {"retries": 0, "offset_conn_id": "offsets", **arguments}
        (folder / "given.json").write_text(json.dumps({**given, "arguments": more}))
        environment = {**os.environ, "AIRFLOW_HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
        with (folder / "log").open("wb") as log:
            command = [sys.executable, str(HERE / "fleet_process.py"), str(folder / "given.json")]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.started.append(process)
        return process, result

    def ended(self, process: subprocess.Popen[bytes], result: Path) -> dict[str, Any]:
        """Wait for a task; return how it ended."""
        process.wait(WAIT_S)
        assert result.exists(), (result.parent / "log").read_text()[-10_000:]
        return dict(json.loads(result.read_text()))

    def end(self) -> None:
        """End what still runs."""
        for pid in (pid for process in self.started if process.poll() is None for pid in tree(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    yield made
    made.end()


def tree(pid: int) -> list[int]:
    """Return a process with all that it has started, and so on."""
    children: dict[int, list[int]] = {}
    for folder in (entry for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def states(fleet: Fleet, ended: dict[str, Any]) -> list[str]:
    """Return the states of all shards that a fleet had, in order."""
    streams = ended["result"]["streams"]
    return [streams[fleet.stream(0, n)]["state"] for n in range(SHARDS) if fleet.stream(0, n) in streams]


def test_each_row_is_there_once_whoever_else_drains_the_streams_of_a_fleet(
    server: PrivateServer,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    stack: Any,
    unique: str,
    tmp_path: Path,
    runs: Runs,
) -> None:
    """Its one slot is held, so that the drivers of all its streams hold their locks; later all of it is frozen."""
    fleet = Fleet(monkeypatch, unique, stack.kafka)
    fleet.server(server, 0)
    offsets = {"conn_type": "sqlite", "host": str(tmp_path / "offsets.db")}
    fleet.others(OFFSETS=offsets)
    fired, until = tmp_path / "fired", tmp_path / "until"
    fault = {"point": "writer.before_commit", "action": "wait", "fired": str(fired), "until": str(until)}
    ids, mine = fleet.conn_ids, {"run_id": "one", "mysql_cdc_conn_ids": fleet.conn_ids[:6], "master": "local[1]"}
    first, first_result = runs.start("first", "fleet", **mine, env_vars={"MYSQL_CDC_FAULT": json.dumps(fault)})
    deadline = time.monotonic() + WAIT_S
    while not fired.exists() and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert fired.exists(), (first_result.parent / "log").read_text()[-10_000:]

    other = runs.start("other", "fleet", "two", mysql_cdc_conn_ids=ids[4:])
    alone = runs.start("alone", "drain", "three", mysql_cdc_conn_id=ids[0])
    assert states(fleet, runs.ended(*other)) == [GAVE_WAY] * 2 + [DRAINED] * 4
    assert runs.ended(*alone)["state"] == "skipped" and first.poll() is None
    frozen = tree(first.pid)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    again = runs.ended(*runs.start("again", "fleet", **mine))
    assert again["state"] == "success" and states(fleet, again) == [DRAINED] * 6
    assert [fleet.committed(0, shard) for shard in range(SHARDS)] == [ROWS] * SHARDS
    until.touch()
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    first.wait(WAIT_S)
    assert [fleet.committed(0, shard) for shard in range(SHARDS)] == [ROWS] * SHARDS


def test_a_pipeline_becomes_a_stream_of_a_fleet_and_a_pipeline_again(
    server: PrivateServer,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    stack: Any,
    unique: str,
) -> None:
    """Each goes on at the offset of the one before, and tells of its own events alone."""
    fleet = Fleet(monkeypatch, unique, stack.kafka)
    fleet.server(server, 0)
    fleet.others()
    names = {f"{unique}_{shard}": f"shard_0_{shard}" for shard in range(2)}
    first = next(iter(names))
    alone = cdc_pipeline(first, mysql_cdc_conn_id=names[first], dags=["drain"])
    together = cdc_fleet(f"{unique}_all", names, dags=[])
    conn, table, topic = server.connect(), "shard_0_0.orders", fleet.topic(0, 0)
    counts = []
    for number, dag in enumerate((*alone.values(), *together.values(), *alone.values())):
        if number:
            execute(conn, f"INSERT INTO {table} VALUES ({1000 + number}, 'later')")
        run = run_dag(dag)
        assert run.state == "success"
        counts.append(run.get_task_instances()[0].xcom_pull(task_ids="drain")["counts"][topic])
    conn.close()
    assert counts == [ROWS, 1, 1]
    assert (fleet.committed(0, 0), fleet.committed(0, 1)) == (ROWS + 2, ROWS)
