"""A snapshot that is taken again while the primary dies goes on, or begins its tables again, on the other server."""

from __future__ import annotations

import pytest
from kit.failover_rig import follow
from kit.incremental_rig import unfinished_request
from kit.records import compacted
from kit.replication import Pair
from kit.sql import execute, rows
from kit.table_rig import FLAT, changes, filled
from kit.tcp_proxy import tcp_proxy
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ServerChangedError


@pytest.fixture
def pair(servers: Pair, database: str) -> Pair:
    """Return a primary with two filled tables, and its replica."""
    return servers.begin(
        f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4",
        *filled(database, "aa", "bb", count=50),
    )


def fail_over(pair: Pair) -> None:
    """Kill the primary once its replica has everything, and promote that one."""
    pair.catch_up()
    own_id = str(rows(pair.primary.root, "SELECT @@server_id")[0][0])
    pair.primary.crash()
    pair.replica.promote()
    pair.primary.restart(server_id=own_id)
    pair.primary.follow(pair.replica)
    pair.primary, pair.replica = pair.replica, pair.primary


@pytest.mark.exhaustive
@pytest.mark.parametrize("point", ["plan.after_store", "snapshot.view_open"])
def test_the_primary_dies_while_a_snapshot_is_taken_again(
    pair: Pair, properties: dict[str, str], database: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its view, and while it is open; it is tried again as Airflow does."""
    tried_by_airflow = {"connect.max.attempts": "0"}
    pipeline = Pipeline(properties | pair.primary.server.properties() | FLAT | tried_by_airflow, slots=1)
    assert pipeline.snapshot().complete
    execute(pair.primary.root, f"USE `{database}`", *changes("aa"))
    pipeline.drain()
    died: list[str] = []
    reach = faults.fault_point

    def die_at(reached: str, index: int | None = None) -> None:
        reach(reached, index)
        if reached == point and not died:
            died.append(reached)
            fail_over(pair)

    monkeypatch.setattr(faults, "fault_point", die_at)
    errors: list[CdcError] = []
    while len(errors) < 5:
        try:
            if pipeline.snapshot(again=True).complete and unfinished_request(pipeline.cfg) is None:
                break
        except CdcError as error:
            assert error.can_retry, error
            errors.append(error)
            follow(pipeline, pair)
    assert died and errors and len(errors) < 5, errors
    execute(pair.primary.root, f"USE `{database}`", *changes("aa"), *changes("bb"))
    pipeline.drain()
    for table in ("aa", "bb"):
        have = {r["id"]: r["v"] for r in compacted(pipeline.records(table)).values() if r is not None and "id" in r}
        assert have == dict(rows(pair.primary.root, f"SELECT id, v FROM `{database}`.{table}")), table
    assert pipeline.verify().equal


def test_a_switchover_between_the_tables_and_the_view_of_a_snapshot_again_is_one_to_retry(
    pair: Pair, properties: dict[str, str], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tcp_proxy("127.0.0.1", pair.primary.server.port) as proxy:
        mysql = {"database.hostname": "127.0.0.1", "database.port": str(proxy.port)}
        pipeline = Pipeline(properties | pair.primary.server.properties() | mysql | FLAT)
        assert pipeline.snapshot().complete
        passed: list[str] = []
        reach = faults.fault_point

        def switch_at(point: str, index: int | None = None) -> None:
            reach(point, index)
            if point == "plan.after_store" and not passed:
                passed.append(point)
                pair.switch()
                proxy.lead_new_to("127.0.0.1", pair.primary.server.port)

        monkeypatch.setattr(faults, "fault_point", switch_at)
        with pytest.raises(ServerChangedError, match="than the one that is read") as caught:
            pipeline.snapshot(again=True)
        assert passed and caught.value.can_retry
        assert pipeline.snapshot(again=True).complete
        execute(pair.primary.root, f"USE `{database}`", *changes("aa"))
        pipeline.drain()
        assert pipeline.verify().equal
