"""Binlog files with seven-digit numbers and of another base name: each is read once, in the order of the server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from kit.private_mysql import PrivateServer, running_server
from kit.records import compacted
from kit.sql import execute, rows
from kit.table_rig import FLAT, check_chain, filled
from kit.tiers import many
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, SourceSettingError
from airflow_provider_mysql_cdc.cdc.operate.lag import DrainedOffset, Thresholds, measure_lag, read_binlog_state
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset


@pytest.fixture(params=many(["9.7"], ["9.7", "8.0.15"]))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    with running_server(tmp_path_factory, request.param) as made:
        yield made


def number_files(server: PrivateServer, number: int) -> None:
    """Let the last file of a stopped server be one with this number, and the only one."""
    data = server.folder / "data"
    for file in data.glob("binlog.*"):
        file.unlink()
    (data / f"binlog.{number:06d}").write_bytes(b"\xfebin")
    (data / "binlog.index").write_text(f"./binlog.{number:06d}\n")


def names(conn: Any) -> list[str]:
    return [row[0] for row in rows(conn, "SHOW BINARY LOGS")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("more", [{}, {"max.batch.bytes": "1000", "drain.writers": "2"}])
def test_files_around_the_seventh_digit(
    server: PrivateServer, properties: dict[str, str], database: str, more: dict[str, str]
) -> None:
    with server.connect() as conn:
        execute(conn, "FLUSH BINARY LOGS")
    server.stop()
    number_files(server, 999_997)
    server.start()
    with server.connect() as conn:
        execute(conn, f"CREATE DATABASE `{database}`", f"USE `{database}`", *filled(database, "aa"))
        pipeline = Pipeline(properties | FLAT | server.properties() | more)
        pipeline.snapshot()
        for n in range(6):
            execute(conn, f"UPDATE aa SET v = v + 1 WHERE id < {10 + n}", "FLUSH BINARY LOGS")
            execute(conn, f"INSERT INTO aa VALUES ({1000 + n}, 0)")
            if n % 2:
                while pipeline.drain() is not None:
                    pass
        assert {"binlog.999999", "binlog.1000000"} <= set(names(conn)), names(conn)
        check_chain(pipeline, conn, database, "aa")


@pytest.fixture
def drained(server: PrivateServer, properties: dict[str, str], database: str) -> Pipeline:
    """Return a stream that has drained files up to the sixth; changes behind them are not drained."""
    with server.connect() as conn:
        execute(conn, f"CREATE DATABASE `{database}`", f"USE `{database}`", *filled(database, "aa"))
        pipeline = Pipeline(properties | FLAT | server.properties())
        pipeline.snapshot()
        for n in range(4):
            execute(conn, f"UPDATE aa SET v = v + 1 WHERE id < {10 + n}", "FLUSH BINARY LOGS")
        pipeline.drain()
        execute(conn, "UPDATE aa SET v = v + 1", "FLUSH BINARY LOGS", "INSERT INTO aa VALUES (500, 1)")
    return pipeline


def drain_all(pipeline: Pipeline) -> None:
    while pipeline.drain() is not None:
        pass


@pytest.mark.parametrize("more", [{}, {"max.batch.bytes": "300"}])
@pytest.mark.exhaustive(but="more1")
def test_another_base_name_in_the_same_index(
    server: PrivateServer, drained: Pipeline, database: str, more: dict[str, str]
) -> None:
    """Files of the new name begin with number 1, so by their numbers they would all be drained already."""
    drained.properties |= more
    server.stop()
    server.start(log_bin="other", log_bin_index="binlog.index")
    with server.connect() as conn:
        execute(conn, f"USE `{database}`", "UPDATE aa SET v = v + 1 WHERE id < 7", "FLUSH BINARY LOGS")
        execute(conn, "UPDATE aa SET v = v + 1 WHERE id < 3")
        assert {"binlog.000005", "other.000001", "other.000002"} <= set(names(conn))
        with pytest.raises(SourceSettingError, match="another base name") as caught:
            drain_all(drained)
        assert not caught.value.can_retry
        place = re.search(r"offset=(\S+),", caught.value.remedy)
        assert place is not None and place[1] == "other.000001:4"
        drained.lines.clear()
        assert {v["id"]: v["v"] for v in compacted(drained.records("aa")).values()}[500] == 1  # behind the offset
        reset_offset(drained.cfg, drained.store, drained.owner, drained.log, to=place[1])
        drain_all(drained)
        check_chain(drained, conn, database, "aa")
        execute(conn, "UPDATE aa SET v = v + 1 WHERE id < 5")
        drain_all(drained)
        check_chain(drained, conn, database, "aa")
        result = drained.verify()
        assert result.tables and not any(verdict.findings for verdict in result.tables), result


@pytest.mark.exhaustive
def test_another_base_name_is_lag(server: PrivateServer, drained: Pipeline) -> None:
    server.stop()
    server.start(log_bin="other", log_bin_index="binlog.index")
    stored = DrainedOffset.from_state(drained.store.load())
    lag = measure_lag(stored, read_binlog_state(drained.cfg, stored), Thresholds())
    assert lag.reached and "binlog ends at other.000001" in lag.reason


@pytest.mark.exhaustive
def test_an_unfinished_batch_behind_which_the_base_name_changes(
    server: PrivateServer, drained: Pipeline, database: str
) -> None:
    drained.prepare("drain")
    server.stop()
    server.start(log_bin="other", log_bin_index="binlog.index")
    with pytest.raises(SourceSettingError, match="another base name"):
        drain_all(drained)
    with server.connect() as conn:
        check_chain(drained, conn, database, "aa")


@pytest.mark.exhaustive
def test_another_base_name_with_another_index_is_refused(
    server: PrivateServer, drained: Pipeline, database: str
) -> None:
    """The former files are not listed any more."""
    drain_all(drained)
    server.stop()
    server.start(log_bin="other")
    with server.connect() as conn:
        execute(conn, *["FLUSH BINARY LOGS"] * 8)
        with pytest.raises(BinlogPurgedError, match=r"no longer holds the start position.*other.000001"):
            drained.drain()
        reset_offset(drained.cfg, drained.store, drained.owner, drained.log, to="current")
        execute(conn, f"UPDATE `{database}`.aa SET v = v + 1")
        drain_all(drained)
        check_chain(drained, conn, database, "aa")
