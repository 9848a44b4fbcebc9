"""A fleet whose worker or driver is killed: the others are exact, and Airflow's retry does the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.private_mysql import PrivateServer, running_server
from test_real_fleet import ROWS, SHARDS, Fleet

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.usefixtures("metadata_db")]


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    with running_server(tmp_path_factory, "9.7") as made:
        yield made


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("point", "action"),
    [
        ("writer.before_commit", "kill-self"),
        ("writer.after_commit", "kill-self"),
        ("driver.before_outcome", "kill-driver"),
    ],
)
def test_each_row_is_there_once_where_a_process_of_a_fleet_is_killed(
    server: PrivateServer,
    monkeypatch: pytest.MonkeyPatch,
    stack: Any,
    unique: str,
    tmp_path: Path,
    point: str,
    action: str,
) -> None:
    fleet = Fleet(monkeypatch, unique, stack.kafka)
    fleet.server(server, 0)
    fired = tmp_path / "fired"
    fault = {"point": point, "action": action, "nth": 2, "fired": str(fired)}
    run = fleet.run(retries=1, env_vars={"MYSQL_CDC_FAULT": json.dumps(fault)})
    (ti,) = run.get_task_instances()
    assert fired.exists()
    # All streams may have committed before the driver dies; then the task succeeds at once.
    tries = {2} if action == "kill-self" else {1, 2}
    assert run.state == "success" and ti.try_number in tries
    assert [fleet.committed(0, shard) for shard in range(SHARDS)] == [ROWS] * SHARDS
    result = ti.xcom_pull(task_ids="drain")
    assert [result["counts"][fleet.topic(0, shard)] for shard in range(SHARDS)] == [ROWS] * SHARDS
