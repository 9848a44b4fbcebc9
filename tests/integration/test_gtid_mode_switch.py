"""GTIDs switched on and off while the server runs, at moments when the stream has drained everything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from kit.native_identity import BothWalks
from kit.private_mysql import Pool, PrivateServer
from kit.records import compacted, require_chain
from kit.sql import execute, purge, rows
from kit.table_rig import FLAT, check_chain, filled
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.operate.lag import DrainedOffset, Thresholds, measure_lag, read_binlog_state
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

ON = ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
OFF = ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")


@pytest.fixture
def server(pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent(gtid_mode="OFF") as made:
        yield made


@pytest.fixture
def source(server: PrivateServer) -> Iterator[Any]:
    with server.connect() as conn:
        yield conn


def switch(conn: Any, modes: tuple[str, ...]) -> None:
    execute(conn, *(f"SET GLOBAL gtid_mode = {mode}" for mode in modes))


def test_a_drained_stream_goes_on(
    properties: dict[str, str], server: PrivateServer, source: Any, database: str
) -> None:
    """The stored position stands in a file that begins with transactions which the server refuses to send now."""
    pipeline = Pipeline(properties | FLAT | server.properties())
    execute(source, f"CREATE DATABASE `{database}`", f"USE `{database}`", *filled(database, "aa"))
    pipeline.snapshot()
    for modes in (ON, OFF):
        execute(source, "UPDATE aa SET v = v + 1")
        assert pipeline.drain() is not None
        switch(source, modes)
        execute(source, "UPDATE aa SET v = v + 1 WHERE id < 10")
        assert pipeline.drain() is not None
    check_chain(pipeline, source, database, "aa")


def drained_with_gtids(pipeline: Pipeline, source: Any, database: str) -> None:
    """Let the stored offset stand at the end of a file in which each transaction has a GTID."""
    execute(source, f"CREATE DATABASE `{database}`", f"USE `{database}`", *filled(database, "aa"))
    switch(source, ON)
    # The second in which the mode was set tells nothing.
    execute(source, "DO SLEEP(1.1)", "FLUSH BINARY LOGS", "DO SLEEP(1.1)")
    pipeline.snapshot()
    execute(source, "UPDATE aa SET v = v + 1")
    assert pipeline.drain() is not None


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-04")
@pytest.mark.parametrize("restart", [False, True])
def test_a_purge_of_transactions_without_gtids_is_not_taken_for_one_without_loss(
    properties: dict[str, str], server: PrivateServer, source: Any, database: str, restart: bool
) -> None:
    """gtid_purged is the stored set: the transactions that were purged behind it do not stand in any set."""
    pipeline = Pipeline(properties | FLAT | server.properties())
    drained_with_gtids(pipeline, source, database)
    if restart:
        server.stop()
        server.start(gtid_mode="OFF", enforce_gtid_consistency="ON")
    else:
        switch(source, OFF)
    with server.connect() as conn:
        execute(conn, f"USE `{database}`", "UPDATE aa SET v = v + 1 WHERE id < 10", "DELETE FROM aa WHERE id = 20")
        lost = len(rows(conn, "SELECT 1 FROM aa"))
    if restart:
        server.stop()
        server.start(gtid_mode="ON", enforce_gtid_consistency="ON")
    with server.connect() as conn:
        execute(conn, f"USE `{database}`")
        if not restart:
            switch(conn, ON)
        purge(conn)
        before = pipeline.store.load()
        with pytest.raises(BinlogPurgedError, match="may have had no GTID") as caught:
            pipeline.drain()
        assert not caught.value.can_retry and pipeline.store.load() == before
        drained = DrainedOffset.from_state(before)
        lag = measure_lag(drained, read_binlog_state(pipeline.cfg, drained), Thresholds(bytes=10**9))
        assert lag.reached and "may have had no GTID" in lag.reason
        # What the error advises where the mode has changed.
        execute(conn, "UPDATE aa SET v = v + 1 WHERE id = 3")
        pipeline.snapshot(again=True)
        pipeline.drain()
        pipeline.verify(VerifyRequest(repair=RepairMode.YES))
        assert pipeline.verify().equal
        have = {v["id"]: v["v"] for v in compacted(pipeline.records("aa")).values() if v}
        assert have == dict(rows(conn, "SELECT id, v FROM aa")) and len(have) == lost


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-04")
@pytest.mark.parametrize("restart", [False, True])
def test_a_purge_without_loss_is_passed_over_where_every_transaction_has_had_a_gtid(
    properties: dict[str, str], server: PrivateServer, source: Any, database: str, restart: bool
) -> None:
    """The server has run with gtid_mode=ON since; where that cannot be told, the error says how to go on."""
    pipeline = Pipeline(properties | FLAT | server.properties())
    drained_with_gtids(pipeline, source, database)
    if restart:
        server.stop()
        server.start(gtid_mode="ON", enforce_gtid_consistency="ON")
    with server.connect() as conn:
        purge(conn)
        execute(conn, f"UPDATE `{database}`.aa SET v = v + 1 WHERE id < 10")
        if restart:
            with pytest.raises(BinlogPurgedError, match="may have had no GTID") as caught:
                pipeline.drain()
            match = re.search(r"mysql_cdc_reset_offset with offset=(\S+),", caught.value.remedy)
            assert match is not None, caught.value.remedy
            reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=match[1])
        assert pipeline.drain() is not None
        check_chain(pipeline, conn, database, "aa")


@pytest.mark.native
@pytest.mark.parametrize("ids", ["true", "false"])
@pytest.mark.exhaustive(but="true")
def test_transactions_with_and_without_gtids_are_decoded_as_a_whole(
    properties: dict[str, str], server: PrivateServer, source: Any, database: str, ids: str
) -> None:
    """Those that the server names, those that it does not, and both in turn; what is walked is compared (conftest)."""
    pipeline = Pipeline(properties | FLAT | server.properties() | {"cdc.id.header": ids})
    execute(source, f"CREATE DATABASE `{database}`", f"USE `{database}`", *filled(database, "aa"))
    pipeline.snapshot()
    walked = []
    for mode in ("OFF", *ON):
        switch(source, (mode,) if mode != "OFF" else ())
        before = BothWalks.compared
        for n in range(20):
            name = "ANONYMOUS" if mode.endswith("PERMISSIVE") and n % 3 == 0 else "AUTOMATIC"
            execute(source, f"SET SESSION gtid_next = '{name}'", f"UPDATE aa SET v = v + 1 WHERE id = {n}")
            execute(source, "SET SESSION gtid_next = 'AUTOMATIC'")
        assert pipeline.drain() is not None
        walked.append(BothWalks.compared - before)
    named = [0, 0, walked[2], walked[3]]
    assert all(walked[2:]) and (walked == named if ids == "true" else all(walked)), walked
    records = pipeline.records("aa")
    require_chain(records)
    assert {v["id"]: v["v"] for v in compacted(records).values()} == dict(rows(source, "SELECT id, v FROM aa"))
