"""Tables that join a running stream: their earlier rows are named at each drain, until they are read or not wanted."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from kit.incremental_rig import ask_for
from kit.records import payload
from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import UNREAD_SUFFIX
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SchemaError
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import dismiss_unread, read_unread, reset_offset
from airflow_provider_mysql_cdc.cdc.operate.snapshot_job import run_snapshot
from airflow_provider_mysql_cdc.cdc.operate.stream_report import stream_report
from airflow_provider_mysql_cdc.cdc.operate.stream_status import read_status
from airflow_provider_mysql_cdc.commands.program import command_line
from airflow_provider_mysql_cdc.commands.unread import run

pytestmark = pytest.mark.req("STRM-13", "INC-01")


@pytest.fixture
def stream(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    """Return a stream that captures t1 and the table ``new``, with rows of t2 and t3 that no event tells of."""
    for table in ("t1", "t2", "t3"):
        execute(root, f"CREATE TABLE `{database}`.{table} (id INT PRIMARY KEY, v INT)")
        execute(root, f"INSERT INTO `{database}`.{table} VALUES (1, 1), (2, 2)")
    made = Pipeline(properties | {"table.include.list": f"{database}.t1,{database}.new"})
    made.snapshot()
    execute(root, f"INSERT INTO `{database}`.t2 VALUES (3, 3)", f"INSERT INTO `{database}`.t1 VALUES (3, 3)")
    made.drain()
    return made


def captures(stream: Pipeline, *tables: str) -> None:
    database = stream.properties["database.include.list"]
    stream.properties["table.include.list"] = ",".join(f"{database}.{table}" for table in tables)


def drained(stream: Pipeline) -> tuple[list[str], list[str]]:
    """Drain; return the tables that were named in the log as never read, and those that were counted."""
    stream.lines.clear()
    outcome = stream.drain()
    database = stream.properties["database.include.list"]
    counts = {} if outcome is None else outcome.counts
    assert not [line for line in stream.lines if "were not checked" in line]
    counted = [name.removesuffix(UNREAD_SUFFIX) for name in counts if name.endswith(UNREAD_SUFFIX)]
    return named(stream), sorted(name.removeprefix(f"{database}.") for name in counted)


def named(stream: Pipeline) -> list[str]:
    prefix = f"WARNING: {stream.properties['database.include.list']}."
    found = [line for line in stream.lines if " is captured and was never read: " in line]
    return sorted(line.removeprefix(prefix).partition(" ")[0] for line in found)


def ids(stream: Pipeline, table: str) -> list[tuple[str, int]]:
    return [(payload(r.value)["op"], payload(r.key)["id"]) for r in stream.records(table)]


def test_a_table_that_joins_the_lists_is_named_until_it_is_read_or_dismissed(
    stream: Pipeline, root: Any, database: str, tmp_path: Path
) -> None:
    captures(stream, "t1", "t[23]", "new")
    stream.lines.clear()
    assert stream.snapshot_is_refused() and named(stream) == ["t2", "t3"]
    assert drained(stream) == (["t2", "t3"], ["t2", "t3"])  # a drain with nothing to read finds it, too
    (line, _) = sorted(line for line in stream.lines if "never read" in line)
    assert "read it with the DAG mysql_cdc_adhoc_snapshot" in line and f"unread --dismiss {database}.t2" in line
    assert drained(stream) == (["t2", "t3"], [])  # nothing is new, so there is no batch
    assert stream.lines[-1].endswith("; captured and never read: 2 tables")
    execute(root, f"INSERT INTO `{database}`.t2 VALUES (4, 4)", f"UPDATE `{database}`.t2 SET v = 22 WHERE id = 2")
    assert drained(stream) == (["t2", "t3"], ["t2", "t3"])
    stream.lines.clear()
    assert stream.snapshot_is_refused() and named(stream) == ["t2", "t3"]
    status, ledger = read_status(stream.cfg), kafka_clients.ledger(stream.cfg).read() or LedgerState()
    assert status.to_json()["unread_tables"] == [f"{database}.t2", f"{database}.t3"]
    assert 'mysql_cdc_unread_tables{server="' in status.prometheus()
    assert [each["table"] for each in stream_report(ledger)["never_read"]] == [f"{database}.t2", f"{database}.t3"]
    ask_for(stream, ["t2"])
    drained(stream)
    assert drained(stream) == (["t3"], [])
    assert sorted(ids(stream, "t2")) == [("c", 4), ("r", 1), ("r", 2), ("r", 3), ("r", 4), ("u", 2)]
    with pytest.raises(ConfigError, match=r"was never read.*t2.*nothing was dismissed"):
        dismiss_unread(stream.cfg, [f"{database}.t3", f"{database}.t2"])
    file, printed = tmp_path / "stream.json", io.StringIO()
    file.write_text(json.dumps(stream.properties))
    command = ["unread", "--properties", str(file)]
    assert run(command_line().parse_args(command), printed) == 0
    assert [each["table"] for each in json.loads(printed.getvalue())] == [f"{database}.t3"]
    assert run(command_line().parse_args([*command, "--dismiss", f"{database}.t3"]), io.StringIO()) == 0
    execute(root, f"INSERT INTO `{database}`.t1 VALUES (9, 9)")
    assert drained(stream) == ([], []) and read_unread(stream.cfg) == []


def test_the_stream_reads_the_table_itself_where_it_is_told_to(stream: Pipeline, root: Any, database: str) -> None:
    stream.properties["snapshot.new.tables"] = "incremental"
    captures(stream, "t1", "t2")
    drained(stream)
    assert ids(stream, "t2") == [("r", 1), ("r", 2), ("r", 3)] and drained(stream) == ([], [])
    # Out of the lists and back: what was changed meanwhile is in no event.
    captures(stream, "t1")
    execute(root, f"INSERT INTO `{database}`.t2 VALUES (4, 4)")
    drained(stream)
    captures(stream, "t1", "t2", "new")
    drained(stream)
    assert ids(stream, "t2")[3:] == [("r", 1), ("r", 2), ("r", 3), ("r", 4)]
    execute(root, f"RENAME TABLE `{database}`.t3 TO `{database}`.new")
    drained(stream)
    assert ids(stream, "new") == [("r", 1), ("r", 2)] and drained(stream) == ([], [])


@pytest.mark.exhaustive
@pytest.mark.exhaustive
def test_a_history_that_lacks_a_table_that_joins_is_rebuilt(
    properties: dict[str, str], root: Any, database: str
) -> None:
    """As the error advises, also behind a CREATE TABLE IF NOT EXISTS that found it."""
    for table in ("t1", "t2"):
        execute(root, f"CREATE TABLE `{database}`.{table} (id INT PRIMARY KEY, v INT)")
    stored = {"schema.history.internal.store.only.captured.tables.ddl": "true"}
    stream = Pipeline(properties | {"table.include.list": f"{database}.t1"} | stored)
    stream.snapshot()
    captures(stream, "t1", "t2")
    execute(root, f"INSERT INTO `{database}`.t2 VALUES (3, 3)", f"CREATE TABLE IF NOT EXISTS `{database}`.t2 (id INT)")
    execute(root, f"INSERT INTO `{database}`.t2 VALUES (4, 4)")
    with pytest.raises(SchemaError, match="the schema history does not know") as caught:
        stream.drain()
    assert "snapshot.mode=recovery" in caught.value.remedy
    stream.properties["snapshot.mode"] = "recovery"
    stream.snapshot()
    stream.properties["snapshot.mode"] = "initial"
    drained(stream)
    assert [payload(r.value)["after"] for r in stream.records("t2")] == [{"id": 3, "v": 3}, {"id": 4, "v": 4}]


def test_tables_whose_rows_are_all_events_are_not_named(stream: Pipeline, root: Any, database: str) -> None:
    captures(stream, "t1", "made", "new", "t2")
    stream.properties["snapshot.include.collection.list"] = f"{database}.(t1|made|new|t3)"  # rows of t2 are not wanted
    execute(
        root,
        f"CREATE TABLE `{database}`.made (id INT PRIMARY KEY)",
        f"INSERT INTO `{database}`.made VALUES (1)",
        f"CREATE TABLE `{database}`.new LIKE `{database}`.t1",
    )
    assert drained(stream) == ([], [])
    # A table that takes the place of another one is a change without row events, which has a warning of its own.
    execute(root, f"RENAME TABLE `{database}`.new TO `{database}`.old, `{database}`.t3 TO `{database}`.new")
    assert drained(stream) == ([], []) and any("without row events" in line for line in stream.lines)
    execute(root, f"DROP TABLE `{database}`.new", f"RENAME TABLE `{database}`.old TO `{database}`.new")
    assert drained(stream) == (["new"], ["new"])
    execute(root, f"DROP TABLE `{database}`.new")
    assert drained(stream) == ([], [])
    stream.properties |= {"snapshot.mode": "no_data", "snapshot.include.collection.list": ""}
    execute(root, f"CREATE TABLE `{database}`.late (id INT PRIMARY KEY)")
    drained(stream)
    captures(stream, "t1", "t2", "late")
    assert drained(stream) == ([], [])


@pytest.mark.exhaustive
def test_a_first_snapshot_of_some_tables_leaves_the_others_to_be_named(
    properties: dict[str, str], root: Any, database: str
) -> None:
    execute(root, *(f"CREATE TABLE `{database}`.{table} (id INT PRIMARY KEY)" for table in ("t1", "t2")))
    stream = Pipeline(properties)
    chosen = ConnectorConfig.from_properties(properties | {"table.include.list": f"{database}.t1"})
    job = prepare_snapshot(chosen, stream.store, stream.owner, stream.log, stream_cfg=stream.cfg)
    assert job is not None
    run_snapshot(job.spec, ThreadRunner(1), stream.log)
    stream.settle()
    assert drained(stream) == (["t2"], ["t2"])


@pytest.mark.exhaustive
def test_neither_a_dead_driver_nor_another_snapshot_loses_count(
    stream: Pipeline, root: Any, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captures(stream, "t1", "t2", "t3")
    execute(root, f"INSERT INTO `{database}`.t2 VALUES (4, 4)")
    fired = tmp_path / "fired"
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.faults._passed", {})
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps({"point": "plan.after_store", "fired": str(fired)}))
    with pytest.raises(FaultRaised):
        stream.drain()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    assert fired.exists() and drained(stream) == (["t2", "t3"], ["t2", "t3"])
    ask_for(stream, ["t3"], kind="blocking")
    drained(stream)
    assert [str(each.table) for each in read_unread(stream.cfg)] == [f"{database}.t2"]
    # Until a snapshot of all tables has read them it may be discarded.
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.faults._passed", {})
    begun = {"point": "snapshot.chunk_read", "fired": str(tmp_path / "begun")}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(begun))
    with pytest.raises(FaultRaised):
        stream.snapshot(again=True)
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    reset_offset(stream.cfg, stream.store, stream.owner, stream.log, to="current")
    assert [str(each.table) for each in read_unread(stream.cfg)] == [f"{database}.t2"]
    assert stream.snapshot(again=True).complete and read_unread(stream.cfg) == []
    captures(stream, "t1", "t3")
    drained(stream)
    captures(stream, "t1", "t2", "t3")
    assert drained(stream) == (["t2"], ["t2"])
    captures(stream, "t1", "t3")
    assert drained(stream) == ([], [])
