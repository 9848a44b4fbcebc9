"""What settings and ids do to an ad-hoc snapshot, on real servers: structures that change, read.only, any id."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kit.incremental_rig import FLAT, ask_for, books, check_exact, reads
from kit.signals import send
from kit.sql import execute, rows
from kit.table_rig import filled
from kit.window_rig import Places
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.incremental.key_range_assignment import KeyRangeQueue
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import NextKeyRange
from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage

SIGNALS = "CREATE TABLE `{}`.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL)"
ALLOW = "incremental.snapshot.allow.schema.changes"


def two_stretches_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each window give out two key ranges, so that the stream goes on between them."""
    real = KeyRangeQueue.next

    def take(queue: KeyRangeQueue, task: int, request: EmptyMessage) -> NextKeyRange:
        return NextKeyRange() if len(queue.done_ranges) == 2 else real(queue, task, request)

    monkeypatch.setattr(KeyRangeQueue, "next", take)


@pytest.mark.req("TYPE-72", "INC-35", "CFG-68")
@pytest.mark.parametrize("allowed", ["false", "true"])
@pytest.mark.exhaustive(but="true")
def test_structures_may_change_during_a_snapshot_with_any_setting(
    properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    """A default changes, and a column comes: each row has the structure of its place, never one of before."""
    given = FLAT | {ALLOW: allowed, "value.converter.schemas.enable": "true"}
    pipeline, places = Pipeline(properties | given, slots=1), Places(monkeypatch)
    execute(
        root,
        f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY, v INT DEFAULT 3)",
        f"INSERT INTO `{database}`.a VALUES " + ",".join(f"({i}, {i})" for i in range(100)),
    )
    pipeline.snapshot()
    two_stretches_a_round(monkeypatch)
    ask_for(pipeline, ["a"])
    changes = [f"ALTER TABLE `{database}`.a {what}" for what in ("ALTER v SET DEFAULT 5", "ADD w INT DEFAULT 7")]
    # Behind its last key range a window has let go of its tables; the one behind a statement reads nothing of its
    # table.
    steps = [lambda: execute(root, changes[0]), lambda: None, lambda: execute(root, changes[1])]
    places.at("incremental.before_books", *steps)
    pipeline.drain()
    assert not places.left
    check_exact_by_name(pipeline, root, database)
    found = []
    for record in pipeline.records("a"):
        value = json.loads(record.value or b"")
        if value["payload"]["op"] == "r" and value["payload"]["source"]["snapshot"] == "incremental":
            (after,) = [f for f in value["schema"]["fields"] if f["field"] == "after"]
            default = {f["field"]: f.get("default") for f in after["fields"]}
            found.append((default["v"], default.get("w"), value["payload"]["after"].get("w")))
    assert len(found) == 100
    assert list(dict.fromkeys(found)) == [(3, None, None), (5, None, None), (5, 7, 7)]
    assert [found.count(kind) for kind in dict.fromkeys(found)] == [32, 32, 36]


def check_exact_by_name(pipeline: Pipeline, root: Any, database: str) -> None:
    last: dict[int, Any] = {}
    for record in pipeline.records("a"):
        row = json.loads(record.value or b"")["payload"]["after"]
        assert last.setdefault(row["id"], row)["v"] == row["v"]
        last[row["id"]] = row
    assert {i: r["v"] for i, r in last.items()} == dict(rows(root, f"SELECT id, v FROM `{database}`.a"))


@pytest.mark.req("FAULT-26", "INC-35")
def test_a_key_that_changes_in_the_middle_is_read_again_under_the_new_key(
    properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, places = Pipeline(properties | FLAT, slots=1), Places(monkeypatch)
    execute(root, *filled(database, "a", count=100))
    pipeline.snapshot()
    two_stretches_a_round(monkeypatch)
    ask_for(pipeline, ["a"])
    sql = f"ALTER TABLE `{database}`.a DROP PRIMARY KEY, ADD k INT NOT NULL DEFAULT 7, ADD PRIMARY KEY (k, id)"
    places.at("incremental.before_books", lambda: execute(root, sql))
    pipeline.drain()
    assert not places.left
    assert {scan.state for scan in books(pipeline).scans.values()} == {"done"}
    found = reads(pipeline, "a")
    under = {key: n for key, n in found.items() if '"k":7' in key}
    assert len(under) == 100 and set(under.values()) == {1}, "each row once under its new key"
    assert len(found) - len(under) == 32, "two stretches were read under the former one"


@pytest.mark.req("CFG-70")
def test_with_read_only_nothing_is_written_although_there_is_a_signal_table(
    properties: dict[str, str], root: Any, database: str
) -> None:
    given = {
        "read.only": "true",
        "table.include.list": f"{database}.a",
        "signal.data.collection": f"{database}.signals",
    }
    pipeline = Pipeline(properties | FLAT | given)
    execute(root, *filled(database, "a", count=40), SIGNALS.format(database))
    execute(root, f"GRANT INSERT, DELETE ON `{database}`.signals TO {pipeline.properties['database.user']}")
    pipeline.snapshot()
    send(pipeline.cfg, "execute-snapshot", {"data-collections": [f"{database}.a"]}, "s1")
    pipeline.drain()
    assert sorted(reads(pipeline, "a").values()) == [1] * 40
    check_exact(pipeline, root, "a")
    assert rows(root, f"SELECT * FROM `{database}`.signals") == []


@pytest.mark.req("INC-30")
def test_any_id_relates_log_and_notifications_to_its_signal_and_watermarks_have_their_own(
    properties: dict[str, str], root: Any, database: str
) -> None:
    id_ = "no uuid: 'ü' {0} %s"
    given = {
        "table.include.list": f"{database}.a",
        "signal.data.collection": f"{database}.signals",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": f"{properties['topic.prefix']}.notes",
    }
    pipeline = Pipeline(properties | FLAT | given)
    execute(root, *filled(database, "a", count=10), SIGNALS.format(database))
    pipeline.snapshot()
    execute(root, f"GRANT INSERT, DELETE ON `{database}`.signals TO {pipeline.properties['database.user']}")
    with root.cursor() as cursor:
        data = json.dumps({"data-collections": [f"{database}.a"]})
        cursor.execute(f"INSERT INTO `{database}`.signals VALUES (%s, 'execute-snapshot', %s)", (id_, data))
    pipeline.drain()
    assert sorted(reads(pipeline, "a").values()) == [1] * 10
    assert any(f"signal {id_}: incremental snapshot of 1 table(s)" in line for line in pipeline.lines)
    notes = [json.loads(r.value or b"") for r in pipeline.read(f"{properties['topic.prefix']}.notes")]
    notes = [note for note in notes if note["aggregate_type"] == "Incremental Snapshot"]
    assert {n["id"] for n in notes} == {id_} and notes[-1]["type"] == "COMPLETED"
    written = [i for (i,) in rows(root, f"SELECT id FROM `{database}`.signals WHERE type LIKE 'snapshot-window%'")]
    assert len(written) == 2 and all(re.fullmatch(r"[0-9a-f-]{36}-(open|close)", i) for i in written)
