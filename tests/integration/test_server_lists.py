"""Several servers in ``database.hostname``, and a proxy that leads to another one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kit.failover_rig import assert_exact, committed, insert
from kit.replication import Node, Pair
from kit.sql import execute, purge, rows
from kit.tcp_proxy import tcp_proxy
from kit.tiers import many
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain import committer
from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    RunInProgressError,
    ServerChangedError,
    SourceConnectionError,
)
from airflow_provider_mysql_cdc.cdc.job.run_lock import hold_run_lock
from airflow_provider_mysql_cdc.cdc.model.finding import WARNING
from airflow_provider_mysql_cdc.cdc.operate.check_setup import check_setup
from airflow_provider_mysql_cdc.cdc.operate.due_drain import read_stream_state
from airflow_provider_mysql_cdc.cdc.operate.end_run import driver_running, end_run
from airflow_provider_mysql_cdc.cdc.operate.lag import DrainedOffset, Thresholds, measure_lag, read_binlog_state
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import may_have_work
from airflow_provider_mysql_cdc.cdc.operate.schema_history import trim_history
from airflow_provider_mysql_cdc.cdc.operate.send_signal import checked_signal, send_signal
from airflow_provider_mysql_cdc.cdc.operate.stream_status import read_status

FLAT = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}


@pytest.fixture
def pair(servers: Pair, database: str) -> Pair:
    """Return a primary with a table of two rows, and its replica."""
    return servers.begin(
        f"CREATE DATABASE `{database}`",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(20))",
        f"INSERT INTO `{database}`.t VALUES (1, 'a'), (2, 'a')",
    )


def hosts(pair: Pair) -> dict[str, str]:
    """Return the properties of both servers, the primary first."""
    one, two = pair.primary.server.properties(), pair.replica.server.properties()
    return one | {"database.hostname": f"127.0.0.1,127.0.0.1:{two['database.port']}"}


def server_id(node: Node) -> str:
    """Return a running server's id, which it is to have again after a crash."""
    return str(rows(node.root, "SELECT @@server_id")[0][0])


def lines_about(pipeline: Pipeline, text: str) -> list[str]:
    return [line for line in pipeline.lines if text in line]


@pytest.mark.exhaustive
def test_the_server_that_the_stream_was_read_from_is_kept_until_it_does_not_answer(
    pair: Pair, properties: dict[str, str], database: str
) -> None:
    pipeline = Pipeline(properties | hosts(pair) | FLAT)
    pipeline.snapshot()
    pair.catch_up()
    first, second = pair.primary, pair.replica
    own_id = server_id(first)
    first.crash()
    second.promote()
    insert(second.root, database, 10)
    pipeline.drain()
    assert committed(pipeline).server_uuid == second.uuid
    (line,) = lines_about(pipeline, f"127.0.0.1:{second.server.port} (server {second.uuid}) answers")
    assert f"127.0.0.1:{first.server.port} does not: " in line
    first.restart(server_id=own_id)
    first.follow(second)
    insert(second.root, database, 11)
    pair.primary, pair.replica = second, first
    pair.catch_up()
    pipeline.drain()
    assert committed(pipeline).server_uuid == second.uuid, "it answers, although it is the second one"
    assert lines_about(pipeline, f"(server {second.uuid}), from which the stream was read, answers")
    assert len(lines_about(pipeline, "goes on at server")) == 1
    assert_exact(pipeline, second.root, database)


def test_everything_asks_the_server_that_the_stream_was_read_from(
    pair: Pair, properties: dict[str, str], database: str
) -> None:
    """The former primary comes back as the first of the list, and replicates nothing: it is stale."""
    first, second = pair.primary, pair.replica
    more = {"signal.data.collection": f"{database}.signals", "schema.history.description.statements": "2"}
    pipeline = Pipeline(properties | hosts(pair) | FLAT | more)
    execute(
        first.root,
        f"CREATE TABLE `{database}`.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32), data TEXT)",
        f"GRANT INSERT ON `{database}`.signals TO cdc",
    )
    pipeline.snapshot()
    pair.catch_up()
    own_id = server_id(first)
    first.crash()
    second.promote()
    execute(second.root, *(f"ALTER TABLE `{database}`.t ADD c{number} INT" for number in range(4)))
    insert(second.root, database, 30)
    pipeline.drain()
    first.restart(server_id=own_id)
    cfg, uuid = pipeline.cfg, second.uuid
    assert len(cfg.servers()) == 2

    drained = DrainedOffset.from_state(pipeline.store.load())
    lag = measure_lag(drained, read_binlog_state(cfg, drained), Thresholds())
    assert not lag.reached and lag.reason.startswith("nothing new"), lag
    assert read_stream_state(cfg).binlog.end_offset.server_uuid == uuid
    assert read_status(cfg).lag.bytes == 0
    assert not may_have_work(cfg, pipeline.store, pipeline.owner)
    send_signal(cfg, checked_signal(cfg, "log", {"message": "m"}, channel="source", id_="s"))
    assert [len(rows(node.root, f"SELECT 1 FROM `{database}`.signals")) for node in (first, second)] == [0, 1]
    settings = pipeline.cfg.at_server("127.0.0.1", second.server.port).connection_settings()
    with hold_run_lock(settings, cfg.topic_prefix, "another/run/task/-1"):
        assert read_status(cfg).active and driver_running(cfg, "another/run/task/-1")
        assert read_stream_state(cfg).running and not may_have_work(cfg, pipeline.store, pipeline.owner)
        with pytest.raises(RunInProgressError):
            trim_history(cfg, pipeline.store, pipeline.owner, pipeline.log)
        assert end_run(cfg, "another/run/task/-1", pipeline.log)
    pipeline.drain()  # the signal
    purge(second.root)
    kept = trim_history(cfg, pipeline.store, pipeline.owner, pipeline.log, dry_run=True)
    assert kept.kept > kept.first and kept.position.server_uuid == uuid
    insert(second.root, database, 31)
    assert read_status(cfg).lag.bytes and measure_lag(drained, read_binlog_state(cfg, drained), Thresholds()).reached
    pipeline.drain()
    assert_exact(pipeline, second.root, database)


def test_all_tasks_of_a_job_read_the_server_that_was_chosen_for_it(
    pair: Pair, properties: dict[str, str], database: str
) -> None:
    """The first server comes back between the choice and the tasks."""
    first, second = pair.primary, pair.replica
    pair.switch()
    own_id, uuid = server_id(first), first.uuid
    first.crash()
    # What an applier leaves that is killed while it begins; it would never begin again.
    (first.server.folder / "tmp" / f"SQL_LOAD-{uuid}").touch()
    pipeline = Pipeline(properties | first.server.properties() | FLAT)
    pipeline.properties["database.hostname"] = f"127.0.0.1,127.0.0.1:{second.server.port}"
    job = pipeline.prepare("snapshot")
    first.restart(server_id=own_id)
    first.follow(second)
    assert ConnectorConfig.from_properties(job.spec.properties).connection_settings().port == second.server.port
    pipeline.snapshot()
    assert committed(pipeline).server_uuid == second.uuid
    insert(second.root, database, 20)
    pipeline.drain()
    assert_exact(pipeline, second.root, database)
    first.catch_up(second.gtids)


def test_a_server_that_is_refused_is_not_passed_over(pair: Pair, properties: dict[str, str], database: str) -> None:
    first, second = pair.primary, pair.replica
    pipeline = Pipeline(properties | hosts(pair) | FLAT)
    pipeline.snapshot()
    execute(second.root, "STOP REPLICA")
    insert(first.root, database, 30)
    pipeline.drain()
    own_id = server_id(first)
    first.crash()
    with pytest.raises(ServerChangedError) as caught:
        pipeline.drain()
    assert "gtid_executed lacks" in caught.value.why
    first.restart(server_id=own_id)
    second.follow(first)


def test_a_server_that_was_left_behind_is_not_read(pair: Pair, properties: dict[str, str], database: str) -> None:
    """It was read from, and answers, behind the one that was promoted while it did not."""
    first, second = pair.primary, pair.replica
    pipeline = Pipeline(properties | hosts(pair) | FLAT)
    pipeline.snapshot()
    pair.catch_up()
    second.promote()
    insert(second.root, database, 10)
    drained = DrainedOffset.from_state(pipeline.store.load())
    looks: list[Callable[[], object]] = [
        pipeline.drain,
        lambda: read_binlog_state(pipeline.cfg, drained),
        lambda: read_stream_state(pipeline.cfg),
    ]
    for look in looks:
        with pytest.raises(ServerChangedError, match="left behind") as caught:
            look()
        assert first.uuid in caught.value.where and f"{second.uuid}) has executed" in caught.value.why
    first.follow(second)
    pair.primary, pair.replica = second, first
    pair.catch_up()
    pipeline.drain()
    assert_exact(pipeline, second.root, database)

    first.detach()
    insert(second.root, database, 11)
    with pytest.raises(ServerChangedError, match="left behind") as caught:
        pipeline.drain()
    assert "set database.hostname to it alone" in caught.value.remedy
    alone = dict(pipeline.properties)
    pipeline.properties.update(second.server.properties())
    pipeline.drain()
    assert committed(pipeline).server_uuid == second.uuid
    assert_exact(pipeline, second.root, database)
    pipeline.properties = alone
    first.follow(second)
    execute(first.root, "SET GLOBAL super_read_only=OFF")
    insert(first.root, database, 500)  # errant: an administrator's
    pipeline.drain()
    assert lines_about(pipeline, "by itself; if it is promoted")


@pytest.mark.exhaustive
def test_of_servers_without_gtids_none_is_read_unless_one_follows_the_other(
    pair: Pair, properties: dict[str, str], database: str
) -> None:
    pipeline = Pipeline(properties | hosts(pair) | FLAT)
    pipeline.snapshot()
    pair.catch_up()
    roots = pair.primary.root, pair.replica.root
    execute(pair.replica.root, "STOP REPLICA", "CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION=0", "START REPLICA")
    for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE"):
        for root in roots:
            execute(root, f"SET GLOBAL gtid_mode='{mode}'")
    pipeline.drain()
    execute(pair.replica.root, "STOP REPLICA")
    insert(pair.primary.root, database, 10)
    pipeline.drain()
    assert_exact(pipeline, pair.primary.root, database)
    execute(pair.replica.root, "SET GLOBAL read_only=OFF")
    with pytest.raises(ServerChangedError, match="left behind") as caught:
        pipeline.drain()
    assert "without GTIDs" in caught.value.why and "read_only" in caught.value.why
    pair.replica.detach()
    with pytest.raises(ServerChangedError, match="left behind"):
        pipeline.drain()
    for mode in ("ON_PERMISSIVE", "ON"):
        for root in roots:
            execute(root, f"SET GLOBAL gtid_mode='{mode}'")


def test_servers_none_of_which_answers_are_each_named(pair: Pair, properties: dict[str, str], database: str) -> None:
    pipeline = Pipeline(properties | hosts(pair) | FLAT)
    pipeline.properties["database.hostname"] = "127.0.0.1:1,127.0.0.1:2"
    with pytest.raises(SourceConnectionError, match="none of the servers") as caught:
        pipeline.drain()
    assert "127.0.0.1:1: " in caught.value.why and "127.0.0.1:2: " in caught.value.why and caught.value.can_retry
    reports = [report for report in check_setup(pipeline.cfg) if report.system.startswith("MySQL")]
    assert [report.ok for report in reports] == [False, False]


def test_a_preflight_checks_each_server(pair: Pair, properties: dict[str, str]) -> None:
    pipeline = Pipeline(properties | hosts(pair) | FLAT)
    pipeline.properties["database.hostname"] += ",127.0.0.1:1"
    reports = [report for report in check_setup(pipeline.cfg) if report.system.startswith("MySQL")]
    assert [report.ok for report in reports] == [True, True, True]
    assert all("reachable at" in report.reached for report in reports[:2])
    assert reports[2].system == "MySQL 127.0.0.1:1" and [f.level for f in reports[2].findings] == [WARNING]


@pytest.mark.parametrize("kind", ["drain", "snapshot"])
@pytest.mark.halves
def test_one_connection_that_another_server_answers_ends_the_job(
    pair: Pair, properties: dict[str, str], database: str, kind: str
) -> None:
    """Whichever connection it is: an address with two servers, of which the other one is stale."""
    first, second = pair.primary, pair.replica
    second.detach()
    with tcp_proxy("127.0.0.1", first.server.port) as proxy:
        pipeline = Pipeline(properties | first.server.properties() | FLAT)
        pipeline.properties["database.port"] = str(proxy.port)
        pipeline.snapshot()
        run = pipeline.drain if kind == "drain" else lambda: pipeline.snapshot(again=True)
        refusals = []
        step = many(5, 1)
        for number in range(0, 99, step):
            insert(first.root, database, 1000 + number)
            if kind == "snapshot":
                pipeline.drain()
            proxy.lead_one_to("127.0.0.1", second.server.port, number=number)
            try:
                run()
            except CdcError as error:
                refusals.append(number)
                text = error.message()
                assert error.can_retry and first.uuid in text and second.uuid in text, (number, text)
            if not proxy.led_one():
                proxy.lead_none()
                break
            run()
            pipeline.drain()
            assert committed(pipeline).server_uuid == first.uuid
        assert refusals == list(range(0, number, step)), "each connection asks who answers"
        assert pipeline.verify().equal


def test_a_proxy_that_leads_to_another_server_in_the_middle_of_a_batch(
    pair: Pair, properties: dict[str, str], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair.primary, pair.replica
    with tcp_proxy("127.0.0.1", first.server.port) as proxy:
        pipeline = Pipeline(properties | first.server.properties() | FLAT | {"commit.bytes": "2000"})
        pipeline.properties |= {"database.port": str(proxy.port), "connect.max.attempts": "3"}
        pipeline.snapshot()
        insert(first.root, database, *range(100, 400))
        pair.switch()
        insert(second.root, database, *range(400, 420))
        proxy.throttle(100_000)
        led = list[str]()

        def lead(point: str, writer: int) -> None:
            if point == "writer.after_commit" and not led:
                led.append(point)
                proxy.lead_to("127.0.0.1", second.server.port)

        monkeypatch.setattr(committer, "fault_point", lead)
        with pytest.raises((ServerChangedError, SourceConnectionError)) as caught:  # whichever connection is cut first
            pipeline.drain()
        assert caught.value.can_retry and led
        pipeline.drain()
        assert committed(pipeline).server_uuid == second.uuid
        assert lines_about(pipeline, "is moved there")
        pipeline.drain()
    assert_exact(pipeline, second.root, database)
