"""Jobs at a Spark Connect server, with a driver without a JVM; one server for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.connect_server import RunningServer
from kit.incremental_rig import ask_for, books, reads
from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from pipelinelib.submit import over_connect
from test_pipeline import PROPERTIES, check_table, churn, fill

from airflow_provider_mysql_cdc.cdc.operate.settle import settle_offset

pytestmark = [pytest.mark.stack, pytest.mark.spark]
__all__ = ["PROPERTIES"]
COUNT = 1000


class OverConnect:
    """Run the jobs of a pipeline at a server, and settle them as the operators do."""

    def __init__(self, pipeline: Pipeline, server: RunningServer, folder: Path) -> None:
        self.pipeline, self._server, self._folder = pipeline, server, folder

    def run(self, kind: str, **more: Any) -> str:
        """Run a job that must end well; return its output."""
        done = over_connect(self.pipeline.prepare(kind).spec, self._folder, self._server.address, **more)
        assert done.returncode == 0, done.stdout
        assert settle_offset(self.pipeline.cfg, self.pipeline.store, self.pipeline.log).complete
        return done.stdout


@pytest.fixture
def jobs(pipeline: Pipeline, connect_server: RunningServer, tmp_path: Path) -> OverConnect:
    pipeline.properties |= {
        "drain.writers": "2",
        "snapshot.parallelism": "3",
        "snapshot.chunk.rows": "100",
        "topic.creation.default.partitions": "2",
        "incremental.snapshot.chunk.size": "16",
    }
    return OverConnect(pipeline, connect_server, tmp_path)


def check(pipeline: Pipeline, root: Any, database: str) -> None:
    check_table(pipeline, root, database, "orders")
    check_table(pipeline, root, database, "lines", skip=("price",))
    check_table(pipeline, root, database, "names")


@pytest.mark.exhaustive
def test_snapshot_drain_rounds_and_verification(
    jobs: OverConnect, root: Any, database: str, tmp_path: Path, connect_server: RunningServer
) -> None:
    """Barrier tasks, writers, windows beside a drain, and the shuffle of a verification: all exact."""
    pipeline = jobs.pipeline
    fill(root, database, COUNT)
    execute(root, *(f"ANALYZE TABLE `{database}`.`{table}`" for table in ("orders", "lines")))
    output = jobs.run("snapshot")
    assert "with 3 task(s)" in output and f"Spark Connect server {connect_server.host_and_port}" in output
    churn(root, database)
    assert "2 writer(s)" in jobs.run("drain")
    check(pipeline, root, database)

    ask_for(pipeline, ["orders"])
    execute(root, f"UPDATE `{database}`.orders SET note = 'again' WHERE id % 7 = 0")
    jobs.run("drain")
    assert not books(pipeline).active_scans and set(reads(pipeline, "orders").values()) == {1}
    check(pipeline, root, database)

    spec = pipeline.verify_spec()
    done = over_connect(spec, tmp_path, connect_server.address)
    assert done.returncode == 0, done.stdout
    assert pipeline.verify_result(spec.run).verdict == "equal"
    # Neither the password nor what a task is called with: the pickled arguments name their class.
    assert connect_server.secrets_left(pipeline.properties["database.password"], "StageArguments") == []
