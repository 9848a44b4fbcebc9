"""GTIDs switched on and off while the server runs, at moments when the stream has drained everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.native_identity import BothWalks
from kit.private_mysql import PrivateServer
from kit.records import compacted, require_chain
from kit.sql import execute, rows
from kit.table_rig import FLAT, check_chain, filled
from pipelinelib.pipeline import Pipeline

ON = ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
OFF = ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    from stacklib.ports import any_free

    made = PrivateServer(tmp_path_factory.mktemp("mysql"), any_free())
    made.start(gtid_mode="OFF", enforce_gtid_consistency="ON")
    yield made
    made.discard()


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


@pytest.mark.native
@pytest.mark.parametrize("ids", ["true", "false"])
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
