"""A fleet with everything real: forty streams over four servers, one Spark application, Airflow's own retry."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from kit.private_mysql import PrivateServer, running_server
from kit.sql import execute
from kit.tcp_proxy import tcp_proxy
from pipelinelib.topics import READER
from real_servers import files_with

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.operators.fleet import MySqlCdcFleetDrainOperator
from airflow_provider_mysql_cdc.operators.fleet_outcome import DRAINED
from airflow_provider_mysql_cdc.operators.fleet_run import FleetRun

pytestmark = [
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.exhaustive,
    pytest.mark.usefixtures("metadata_db"),
]

SERVERS, SHARDS, ROWS = 4, 10, 30
HELD_AFTER = 8_000
"""Bytes after which a connection through a proxy falls silent: only those that read the binlog get so many."""


@dataclass
class Fleet:
    """Servers with shards, and a connection for each shard."""

    monkeypatch: pytest.MonkeyPatch
    name: str
    kafka: str
    conn_ids: list[str] = field(default_factory=list)

    def server(self, server: PrivateServer, number: int) -> None:
        """Make the shards of a server; their rows are the changes to drain."""
        conn = server.connect()
        for shard in range(SHARDS):
            database = f"shard_{number}_{shard}"
            values = ",".join(f"({row}, 'row {row}')" for row in range(ROWS))
            execute(
                conn,
                f"CREATE DATABASE {database}",
                f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, item VARCHAR(40))",
                f"INSERT INTO {database}.orders VALUES {values}",
            )
            self.connection(server, number, shard)
        conn.close()

    def connection(
        self, server: PrivateServer, number: int, shard: int, *, port: int = 0, login: str = "cdc", **more: str
    ) -> None:
        """Define the connection of a shard, again if it is there."""
        conn_id = f"shard_{number}_{shard}"
        extra = {
            "topic.prefix": f"{self.name}_{number}_{shard}",
            "database.include.list": conn_id,
            "database.ssl.mode": "disabled",
            "snapshot.mode": "never",
            "value.converter.schemas.enable": "false",
            "connect.max.attempts": "1",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
            "kafka_conn_id": "kafka_cdc",
        }
        conn = {
            "conn_type": "mysql_cdc",
            "host": "127.0.0.1",
            "port": port or server.port,
            "login": login,
            "password": server.password,
            "extra": {**extra, **more},
        }
        self.monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(conn))
        if conn_id not in self.conn_ids:
            self.conn_ids.append(conn_id)

    def committed(self, number: int, shard: int) -> int:
        """Return how many rows consumers see of a shard; fail where one is there twice."""
        ids = Counter(json.loads(r.value)["after"]["id"] for r in READER.read(self.settings, self.topic(number, shard)))
        assert set(ids.values()) <= {1}
        return len(ids)

    @property
    def settings(self) -> dict[str, str]:
        return {"bootstrap.servers": self.kafka}

    def run(self, **arguments: Any) -> Any:
        """Run one task that drains all; return the finished run."""
        self.others()
        with DAG(dag_id=self.name, schedule=None) as dag:
            MySqlCdcFleetDrainOperator(
                task_id="drain", mysql_cdc_conn_ids=self.conn_ids, retry_delay=timedelta(0), **arguments
            )
        return run_dag(dag)

    def others(self, **more: Any) -> None:
        """Define the connections that all shards have, and more."""
        kafka, spark = {"conn_type": "kafka", "extra": self.settings}, {"conn_type": "spark", "host": "local[4]"}
        for name, conn in {"KAFKA_CDC": kafka, "SPARK_CDC": spark, **more}.items():
            self.monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(conn))

    def stream(self, number: int, shard: int) -> str:
        return f"{self.name}_{number}_{shard}"

    def topic(self, number: int, shard: int) -> str:
        return f"{self.stream(number, shard)}.shard_{number}_{shard}.orders"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[PrivateServer]]:
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        made = [running_server(tmp_path_factory, "9.7") for _ in range(SERVERS)]
        yield list(pool.map(stack.enter_context, made))


class Accident:
    """Wait until all shards but the held ones are committed; then kill the first server, and let the slow one go on."""

    def __init__(self, fleet: Fleet, held: set[tuple[int, int]], kill: Callable[[], None]) -> None:
        self._fleet, self._held, self._kill = fleet, held, kill
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.others_committed = False

    def _run(self) -> None:
        others = [(n, s) for n in range(SERVERS) for s in range(SHARDS) if (n, s) not in self._held]
        deadline = time.monotonic() + 120
        while others and time.monotonic() < deadline:
            others = [shard for shard in others if self._committed(*shard) < ROWS]
            time.sleep(0.5)
        self.others_committed = not others and all(self._committed(*shard) == 0 for shard in self._held)
        self._kill()

    def _committed(self, number: int, shard: int) -> int:
        try:
            return self._fleet.committed(number, shard)
        except CdcError:  # the topic is not there yet
            return 0


def test_of_forty_streams_one_server_dies_one_refuses_and_one_is_slow(
    many: list[PrivateServer],
    monkeypatch: pytest.MonkeyPatch,
    stack: Any,
    unique: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """All others are committed before that; the retry drains what is left and nothing else."""
    fleet = Fleet(monkeypatch, unique, stack.kafka)
    for number, server in enumerate(many):
        fleet.server(server, number)
    refusing = many[1].connect()
    execute(refusing, f"CREATE USER lesser IDENTIFIED BY '{many[1].password}'", "GRANT SELECT ON *.* TO lesser")
    fleet.connection(many[1], 1, 0, login="lesser")
    with tcp_proxy("127.0.0.1", many[0].port) as dying, tcp_proxy("127.0.0.1", many[2].port) as slow:
        for shard in (0, 1):
            fleet.connection(many[0], 0, shard, port=dying.port)
        fleet.connection(many[2], 2, 0, port=slow.port)

        def kill() -> None:
            many[0].crash()
            dying.close()
            slow.thaw()

        accident = Accident(fleet, {(0, 0), (0, 1), (1, 0), (2, 0)}, kill)
        submit, submitted = FleetRun._submit, list[int]()

        def submit_held(self: FleetRun, jobs: Any, *more: Any) -> Any:
            submitted.append(len(jobs))
            if len(submitted) == 1:
                dying.freeze_after(HELD_AFTER)
                slow.freeze_after(HELD_AFTER)
                accident.thread.start()
            return submit(self, jobs, *more)

        def repair(context: Any) -> None:
            many[0].start()
            for shard in (0, 1):
                fleet.connection(many[0], 0, shard)
            execute(
                refusing, "SET sql_log_bin = 0", "GRANT REPLICATION SLAVE, REPLICATION CLIENT, RELOAD ON *.* TO lesser"
            )

        monkeypatch.setattr(FleetRun, "_submit", submit_held)
        run = fleet.run(retries=1, on_retry_callback=repair)
    (ti,) = run.get_task_instances()
    log = "".join(capfd.readouterr())
    assert (run.state, ti.try_number) == ("success", 2), log[-20_000:]
    assert accident.others_committed, "a stream waited for one of those that were held"
    # A server that starts begins another file of its binlog, to which the offset of each of its shards moves.
    assert submitted == [SERVERS * SHARDS - 1, SHARDS + 1]
    lines = log[log.rindex("StreamsFailedError: 3 of 40 streams were not drained. A retry can help.") :].splitlines()
    grouped = [line.split(": ", 1) for line in lines[1:4] if line.startswith(unique)]
    failed = {name: error for names, error in grouped for name in names.split(", ")}
    assert failed.keys() == {fleet.stream(0, 0), fleet.stream(0, 1), fleet.stream(1, 0)}
    assert failed[fleet.stream(1, 0)].startswith("SourcePrivilegeError: ")
    assert "What to do: " in failed[fleet.stream(1, 0)] and "A retry will not help." in failed[fleet.stream(1, 0)]
    assert failed[fleet.stream(0, 0)].startswith("SourceConnectionError: ") and "can help" in failed[fleet.stream(0, 0)]
    result = ti.xcom_pull(task_ids="drain")
    assert result["complete"] and {stream["state"] for stream in result["streams"].values()} == {DRAINED}
    for number, shard in ((n, s) for n in range(SERVERS) for s in range(SHARDS)):
        assert fleet.committed(number, shard) == ROWS
        assert result["counts"][fleet.topic(number, shard)] == ROWS
    one = ti.xcom_pull(task_ids="drain", key=f"stream_{fleet.stream(3, 3)}")
    assert one["tables"] == {"shard_3_3.orders": ROWS} and one["conn_id"] == "shard_3_3"
    home = Path(os.environ["AIRFLOW_HOME"])
    assert files_with(many[0].password, home) == [] and many[0].password not in log
