"""The signal set-binlog-position on real servers: the stream goes on elsewhere, once, or the signal is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.records import payload
from kit.signals import send
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import run_drain as run_drain_alone
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset

SIGNALS = "CREATE TABLE `{}`.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL)"
FLAT = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    made = Pipeline(
        properties
        | FLAT
        | {
            "table.include.list": f"{database}.t",
            "signal.data.collection": f"{database}.signals",
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": f"{properties['topic.prefix']}.notes",
        }
    )
    execute(root, SIGNALS.format(database), f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, a INT, b INT)")
    made.snapshot()
    return made


def insert(root: Any, db: str, *ids: int) -> None:
    execute(root, *(f"INSERT INTO `{db}`.t (id, a, b) VALUES ({i}, {i * 10}, {i * 100})" for i in ids))


def swap(root: Any, db: str) -> None:
    """Swap two names: without names in the binlog nothing but the history tells which column is which."""
    execute(root, f"ALTER TABLE `{db}`.t RENAME COLUMN a TO b, RENAME COLUMN b TO a")


def place(root: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the end of the binlog in both forms of the signal's data."""
    file, pos, _, _, gtids = rows(root, "SHOW BINARY LOG STATUS")[0]
    return {"binlog_filename": file, "binlog_position": pos}, {"gtid_set": gtids.replace("\n", "")}


def ask(root: Any, db: str, id_: str, data: dict[str, Any], type_: str = "set-binlog-position") -> None:
    execute(root, f"INSERT INTO `{db}`.signals VALUES ('{id_}', '{type_}', '{json.dumps(data)}')")


def ids(pipeline: Pipeline) -> list[int]:
    found = [payload(r.value)["after"] for r in pipeline.records("t")]
    assert all(row == {"id": row["id"], "a": row["id"] * 10, "b": row["id"] * 100} for row in found)
    return [row["id"] for row in found]


def told(pipeline: Pipeline) -> list[tuple[str, str, str]]:
    values = [payload(r.value) for r in pipeline.read(f"{pipeline.properties['topic.prefix']}.notes")]
    return [
        (v["id"], v["type"], v["additional_data"].get("direction", ""))
        for v in values
        if v["aggregate_type"] != "Initial Snapshot"
    ]


def reason(pipeline: Pipeline, id_: str) -> str:
    values = [payload(r.value) for r in pipeline.read(f"{pipeline.properties['topic.prefix']}.notes")]
    (found,) = [v["additional_data"]["reason"] for v in values if v["id"] == id_ and v["type"] == "ABORTED"]
    return str(found)


@pytest.mark.parametrize("form", [0, 1], ids=["file", "gtids"])
@pytest.mark.exhaustive(but="gtids")
def test_the_stream_is_moved_forward_and_back_and_each_signal_acts_once(
    pipeline: Pipeline, root: Any, database: str, form: int
) -> None:
    """The first drain sees only the signal; what was left out comes when the stream is moved back over both signals."""
    insert(root, database, 1)
    pipeline.drain()
    early = place(root)[form]
    insert(root, database, 2)
    pipeline.drain()
    ask(root, database, "skip", {"binlog_filename": "x.000001", "binlog_position": 4})  # refused: it stays a row
    pipeline.drain()
    insert(root, database, 3)
    late = place(root)[form]
    insert(root, database, 4)
    send(pipeline.cfg, "set-binlog-position", json.dumps(late), "forward")
    # The signal comes over Airflow, and the batch before it ends behind row 4: moving to row 3's end moves back.
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete and outcome.offset is not None
    assert BinlogOffset.from_json(outcome.offset).pos == place_of(pipeline).pos
    assert ids(pipeline) == [1, 2, 3, 4]
    pipeline.drain()
    assert ids(pipeline) == [1, 2, 3, 4, 4]
    ask(root, database, "back", early)
    pipeline.drain()
    insert(root, database, 5)
    pipeline.drain()
    pipeline.drain()
    assert ids(pipeline) == [1, 2, 3, 4, 4, 2, 3, 4, 5], "the signal stands behind the place and acts once"
    assert told(pipeline) == [("skip", "ABORTED", ""), ("forward", "COMPLETED", "back"), ("back", "COMPLETED", "back")]
    assert sum("is not carried out again" in line for line in pipeline.lines) == 2
    ask(root, database, "back again", early)
    for _ in range(3):
        pipeline.drain()
    assert ids(pipeline)[9:] == [2, 3, 4, 5], "two signals of that kind behind the place, and no loop"
    assert told(pipeline)[3:] == [("back again", "COMPLETED", "back")]


def place_of(pipeline: Pipeline) -> BinlogOffset:
    ledger = kafka_clients.ledger(pipeline.cfg).read() or LedgerState()
    end = ledger.end()
    assert end is not None
    return end


def test_a_forward_move_leaves_out_what_lies_between_and_says_so(
    properties: dict[str, str], pipeline: Pipeline, root: Any, database: str
) -> None:
    """A batch ends with its file, so there is something to skip; the names were swapped in what is skipped."""
    pipeline.properties |= {"max.batch.bytes": "1"}
    insert(root, database, 1)
    execute(root, "FLUSH BINARY LOGS")
    insert(root, database, 2)
    swap(root, database)
    later = place(root)[0]
    insert(root, database, 3)
    send(pipeline.cfg, "set-binlog-position", json.dumps(later), "forward")
    pipeline.drain()
    assert ids(pipeline) == [1]
    assert place_of(pipeline).pos == later["binlog_position"]
    assert any("skipped" in line and f"continues at {later['binlog_filename']}" in line for line in pipeline.lines)
    while pipeline.drain() is not None:
        pass
    assert ids(pipeline) == [1, 3], "the structures are those of the new place"
    assert told(pipeline) == [("forward", "COMPLETED", "forward")]


def test_places_where_the_stream_cannot_go_on_are_refused_and_the_drain_goes_on(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    insert(root, database, 1)
    here = place(root)[0]
    file, pos = here["binlog_filename"], here["binlog_position"]
    insert(root, database, 2)
    inside = next(e[1] for e in rows(root, f"SHOW BINLOG EVENTS IN '{file}' FROM {pos}") if e[2] == "Table_map")
    uuid, executed = rows(root, "SELECT @@server_uuid, REPLACE(@@GLOBAL.gtid_executed, '\n', '')")[0]
    # Other tests may have left GTIDs of other servers and tags.
    own = re.search(rf"{uuid}:([0-9:-]+)", str(executed))
    assert own is not None
    last = int(re.findall(r"\d+", own[1])[-1])
    gap = rows(root, f"SELECT REPLACE(GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{uuid}:{last - 1}'), '\n', '')")[0][0]
    wrong: dict[str, tuple[dict[str, Any], str]] = {
        "purged": ({"binlog_filename": file.partition(".")[0] + ".000000", "binlog_position": 4}, "no longer holds"),
        "beyond": ({"binlog_filename": file, "binlog_position": 2**40}, "no longer holds"),
        "inside": ({"binlog_filename": file, "binlog_position": inside}, "inside a transaction"),
        "between": ({"binlog_filename": file, "binlog_position": pos + 1}, "no event begins"),
        "unknown": ({"gtid_set": f"{'0' * 8}-1111-2222-3333-{'4' * 12}:1-7"}, "has not executed all transactions"),
        "ahead": ({"gtid_set": f"{uuid}:1-{last + 10_000_000}"}, "has not executed all transactions"),
        "gap": ({"gtid_set": gap}, "has a gap"),
    }
    for name, (data, _) in wrong.items():
        ask(root, database, name, data)
    before = pipeline.store.load()
    pipeline.drain()
    for name, (_, why) in wrong.items():
        assert why in reason(pipeline, name), name
    insert(root, database, 3)
    pipeline.drain()
    assert ids(pipeline) == [1, 2, 3]
    after = pipeline.store.load()
    assert before is not None and after is not None and after.epoch == before.epoch + 2


def test_a_position_whose_structures_are_not_known_is_refused(pipeline: Pipeline, root: Any, database: str) -> None:
    """What was skipped is not in the history, and the server's structures are those behind the statement."""
    insert(root, database, 1)
    unknown = place(root)[0]
    swap(root, database)
    insert(root, database, 2)
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="current")
    ask(root, database, "back", unknown)
    pipeline.drain()
    insert(root, database, 3)
    pipeline.drain()
    assert "RENAME COLUMN" in reason(pipeline, "back")
    assert ids(pipeline) == [3]


@pytest.mark.parametrize("point", ["signals.before_commit", "takeover.after_plan", "airflow.before_commit"])
@pytest.mark.exhaustive(but="takeover")
def test_a_move_that_dies_is_made_once(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: str
) -> None:
    early = place(root)[0]
    insert(root, database, 1)
    ask(root, database, "back", early)
    ask(root, database, "line", {"message": "said at {}"}, "log")
    monkeypatch.setattr(faults, "_passed", {})
    # The first plan that is taken over is the batch's own.
    nth = 2 if point == "takeover.after_plan" else 1
    fault = {"point": point, "action": "raise", "nth": nth, "fired": str(tmp_path / "fired")}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(faults.FaultRaised):
        pipeline.drain()
    assert (tmp_path / "fired").exists()
    insert(root, database, 2)
    for _ in range(4):
        pipeline.drain()
    assert [i for i in ids(pipeline) if i == 1] == [1, 1], "once before the move, and once behind it"
    assert told(pipeline) == [("back", "COMPLETED", "back")]
    assert ids(pipeline)[-1] == 2


def test_a_session_ends_with_the_move_and_the_next_one_reads_on(pipeline: Pipeline, root: Any, database: str) -> None:
    """The stored offset follows before anything is read from the new place, by the stream or by a snapshot."""
    early = place(root)[0]
    insert(root, database, 1)
    execute(root, f"GRANT INSERT, DELETE ON `{database}`.signals TO {pipeline.properties['database.user']}")
    ask(root, database, "read", {"data-collections": [f"{database}.t"]}, "execute-snapshot")
    ask(root, database, "back", early)
    job = pipeline.prepare("drain")
    run_drain(replace(job.spec, run_for_s=3.0), ThreadRunner(1), pipeline.log)
    outcome = pipeline.settle()
    assert outcome.complete and outcome.offset is not None and outcome.offset["pos"] == early["binlog_position"]
    assert outcome.counts[pipeline.table_topic("t")] == 1
    pipeline.drain()
    ops = [payload(r.value)["op"] for r in pipeline.records("t")]
    assert ops == ["c", "c", "r"]


def test_signals_are_not_processed_again_after_a_reset(pipeline: Pipeline, root: Any, database: str) -> None:
    """Also those that a batch handed over which is set aside."""
    early = place(root)[0]
    ask(root, database, "first", {"message": "first said"}, "log")
    pipeline.drain()
    ask(root, database, "second", {"message": "second said"}, "log")
    run_drain_alone(pipeline.prepare("drain").spec, ThreadRunner(1), pipeline.log)
    to = f"{early['binlog_filename']}:{early['binlog_position']}"
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=to)
    ask(root, database, "third", {"message": "third said"}, "log")
    pipeline.drain()
    said = [line for line in pipeline.lines if line.endswith(" said")]
    assert sorted(said) == ["first said", "second said", "third said"]
