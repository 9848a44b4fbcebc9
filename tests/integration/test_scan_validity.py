"""What a scan has read is worth something for the same table under the same configuration only."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from kit.incremental_rig import FLAT, ask_for, books, reads
from kit.records import compacted, payload
from kit.signals import send
from kit.sql import execute, rows
from kit.table_rig import filled
from kit.window_rig import SIGNALS, Places, connection, same_as_table
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset


@pytest.fixture
def pipeline(properties: dict[str, str], database: str) -> Pipeline:
    return Pipeline(properties | FLAT | {"table.include.list": f"{database}.t"}, slots=1)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(monkeypatch)


def states(pipeline: Pipeline) -> list[str]:
    return [scan.state for _, scan in sorted(books(pipeline).scans.items())]


def half_read(pipeline: Pipeline, places: Places) -> None:
    """Ask for the table ``t`` and let the run end with an error behind 48 of its rows."""
    ask_for(pipeline, ["t"])
    places.die("incremental.after_commit", nth=3)
    with pytest.raises((faults.FaultRaised, CdcError)):
        pipeline.drain()
    assert not places.left
    assert sum(reads(pipeline, "t").values()) == 48


def said(pipeline: Pipeline, topic: str) -> dict[Any, Any]:
    """Return ``v`` by ``id`` as the topic ends with them; each event may contradict the ones before."""
    return {row["id"]: row["v"] for row in compacted(pipeline.read(topic)).values()}


MOVES = {
    "swap": "RENAME TABLE {db}.t TO {db}.old, {db}.fresh TO {db}.t",
    "exchange": "ALTER TABLE {db}.t EXCHANGE PARTITION p0 WITH TABLE {db}.fresh",
    "drop and rename": "DROP TABLE {db}.t; ALTER TABLE {db}.fresh RENAME TO {db}.t",
}


@pytest.mark.parametrize("place", ["between", "before low", "view"])
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.req("INC-17", "INC-18")
@pytest.mark.exhaustive(but="swap-view")
def test_a_table_whose_rows_are_others_by_now_is_read_from_its_beginning(
    pipeline: Pipeline, root: Any, database: str, places: Places, stack: Any, move: str, place: str
) -> None:
    execute(root, *filled(database, "t", count=100), *filled(database, "fresh", count=100, value=7))
    if move == "exchange":
        execute(root, f"ALTER TABLE `{database}`.t PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1000))")
    pipeline.snapshot()
    half_read(pipeline, places)
    session, statements = connection(stack), MOVES[move].format(db=f"`{database}`").split(";")
    if place == "between":
        execute(session, *statements)
    else:
        places.at(place, lambda: execute(session, *statements))
    pipeline.drain()
    pipeline.drain()
    assert not places.left and states(pipeline) == ["done"]
    assert said(pipeline, pipeline.table_topic("t")) == dict(rows(root, f"SELECT id, v FROM `{database}`.t"))
    assert set(said(pipeline, pipeline.table_topic("t")).values()) == {7}


def test_ranges_of_a_table_after_an_unfinished_one_are_not_another_tables(
    pipeline: Pipeline, root: Any, database: str, places: Places
) -> None:
    """Three tasks read; the first key range is the one that is not done when the run ends."""
    pipeline.slots = 3
    execute(root, *filled(database, "t", count=100), *filled(database, "fresh", count=100, value=7))
    pipeline.snapshot()
    ask_for(pipeline, ["t"])
    others = threading.Semaphore(0)

    def die_late() -> None:
        assert others.acquire(timeout=60)
        raise faults.FaultRaised("the first stretch")

    places.at("incremental.before_commit", die_late)
    places.at("incremental.after_commit", lambda: None, others.release)
    with pytest.raises((faults.FaultRaised, CdcError)):
        pipeline.drain()
    assert len(books(pipeline).done_ranges) > 1
    execute(root, MOVES["swap"].format(db=f"`{database}`"))
    pipeline.drain()
    assert not places.left and states(pipeline) == ["done"]
    assert set(said(pipeline, pipeline.table_topic("t")).values()) == {7}


CHANGES: dict[str, dict[str, str]] = {
    "key": {"message.key.columns": "(.*).t:v,id"},
    "columns": {"column.exclude.list": "(.*).t.w"},
    "values": {"column.mask.hash.SHA-256.with.salt.abc": "(.*).t.w"},
    "topic": {"transforms": "r", "transforms.r.type": "io.debezium.transforms.ByLogicalTableRouter",
              "transforms.r.topic.regex": "(.*)[.]t", "transforms.r.topic.replacement": "$1.other"},
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.req("INC-17")
@pytest.mark.exhaustive(but="key")
def test_a_table_is_read_from_its_beginning_when_its_records_look_otherwise_by_now(
    pipeline: Pipeline, root: Any, database: str, places: Places, change: str
) -> None:
    execute(root, *filled(database, "t", count=100), f"ALTER TABLE `{database}`.t ADD w CHAR(5) NOT NULL DEFAULT 'w'")
    pipeline.snapshot()
    half_read(pipeline, places)
    pipeline.properties |= CHANGES[change]
    execute(root, f"UPDATE `{database}`.t SET v = 5 WHERE id = 99")
    pipeline.drain()
    assert states(pipeline) == ["done"]
    topic = pipeline.table_topic("other" if change == "topic" else "t")
    again = [(r, payload(r.value)) for r in pipeline.read(topic)][-100:]
    assert {value["op"] for _, value in again} == {"r"}
    assert len({r.key for r, _ in again}) == 100 == len({value["after"]["id"] for _, value in again})
    assert {len(value["after"]) for _, value in again} == {2 if change == "columns" else 3}
    assert any("restarts from the beginning" in line for line in pipeline.lines)


def test_what_does_not_concern_a_tables_records_lets_its_scan_go_on(
    pipeline: Pipeline, root: Any, database: str, places: Places
) -> None:
    """Another chunk size, another way of watermarks, one more table, more partitions for topics to come."""
    execute(root, *filled(database, "t", "u", count=100), SIGNALS.format(database))
    execute(root, f"GRANT INSERT, DELETE ON `{database}`.signals TO {pipeline.properties['database.user']}")
    pipeline.snapshot()
    half_read(pipeline, places)
    places.die("incremental.after_commit", nth=2)
    pipeline.properties |= {"signal.data.collection": f"{database}.signals", "incremental.snapshot.chunk.size": "1"}
    with pytest.raises((faults.FaultRaised, CdcError)):
        pipeline.drain()
    pipeline.properties |= {
        "read.only": "true",
        "incremental.snapshot.chunk.size": "2",
        "table.include.list": f"{database}.t,{database}.u",
        "topic.creation.default.partitions": "3",
    }
    execute(root, f"UPDATE `{database}`.t SET v = 5 WHERE id < 60")
    pipeline.drain()
    assert states(pipeline) == ["done"]
    same_as_table(pipeline, root, "t")
    assert sorted(reads(pipeline, "t").values()) == [1] * 100


def test_an_offset_moved_by_hand_lets_scans_start_again(
    pipeline: Pipeline, root: Any, database: str, places: Places
) -> None:
    """What was changed in the gap nobody tells, if not a row that is read again."""
    execute(root, *filled(database, "t", count=100))
    pipeline.snapshot()
    half_read(pipeline, places)
    execute(root, f"UPDATE `{database}`.t SET v = 5 WHERE id % 10 = 0")
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="current")
    # Told at once, before a drain finds out why by itself.
    assert [(scan.state, scan.cursor) for scan in books(pipeline).scans.values()] == [("waiting", None)]
    execute(root, f"UPDATE `{database}`.t SET v = v + 1 WHERE id % 20 = 0")
    pipeline.drain()
    assert states(pipeline) == ["done"]
    assert said(pipeline, pipeline.table_topic("t")) == dict(rows(root, f"SELECT id, v FROM `{database}`.t"))
    # Also one that is read to the end, of which nobody was told yet.
    ask_for(pipeline, ["t"], "s2")
    places.die("incremental.before_books")
    with pytest.raises((faults.FaultRaised, CdcError)):
        pipeline.drain()
    assert not places.left and not books(pipeline).with_advanced_cursors().active_scans
    execute(root, f"UPDATE `{database}`.t SET v = 7 WHERE id % 10 = 0")
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="current")
    assert "the ad-hoc snapshots of 1 table(s) start again from the beginning" in pipeline.lines
    assert states(pipeline) == ["done", "waiting"]
    pipeline.drain()
    assert states(pipeline) == ["done", "done"]
    assert said(pipeline, pipeline.table_topic("t")) == dict(rows(root, f"SELECT id, v FROM `{database}`.t"))


@pytest.mark.req("INC-20")
def test_rows_that_another_table_brings_in_the_window_are_not_read_as_they_were(
    pipeline: Pipeline, root: Any, database: str, places: Places, stack: Any
) -> None:
    """An event touched them under the other table's name; the view holds what they were before."""
    pipeline.properties |= {"table.include.list": f"{database}.t,{database}.fresh"}
    execute(
        root,
        *filled(database, "t", count=100),
        *filled(database, "fresh", count=100, value=7),
        f"ALTER TABLE `{database}`.t PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1000))",
    )
    pipeline.snapshot()
    session = connection(stack)
    ask_for(pipeline, ["t", "fresh"])
    steps = [f"UPDATE `{database}`.t SET v = 9 WHERE id = 5", MOVES["exchange"].format(db=f"`{database}`")]
    places.at("view", lambda: execute(session, *steps))
    pipeline.drain()
    pipeline.drain()
    assert not places.left and states(pipeline) == ["done", "done"]
    for table in ("t", "fresh"):
        wanted = dict(rows(root, f"SELECT id, v FROM `{database}`.{table}"))
        assert said(pipeline, pipeline.table_topic(table)) == wanted


REBUILDS = [
    "OPTIMIZE TABLE {t}",
    "ALTER TABLE {t} FORCE",
    "ALTER TABLE {t} DROP PARTITION p1",
    "ALTER TABLE {t} TRUNCATE PARTITION p1",
    "TRUNCATE TABLE {t}",
    "CREATE INDEX i ON {t} (v)",
]


@pytest.mark.parametrize("statement", REBUILDS)
@pytest.mark.req("INC-18")
@pytest.mark.exhaustive(but="TRUNCATE PAR")
def test_a_table_that_is_rebuilt_under_a_view_is_read_in_a_later_window(
    pipeline: Pipeline, root: Any, database: str, places: Places, stack: Any, statement: str
) -> None:
    """The server refuses the view for it (error 1412); a condition of the request has nothing to do with that."""
    table = f"`{database}`.t"
    execute(
        root,
        *filled(database, "t", count=100),
        f"ALTER TABLE {table} PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (50), "
        "PARTITION p1 VALUES LESS THAN (1000))",
    )
    pipeline.snapshot()
    asked = json.dumps({"data-collections": [f"{database}.t"], "additional-conditions": [
        {"data-collection": f"{database}.t", "filter": "v >= 0"}]})  # fmt: skip
    send(pipeline.cfg, "execute-snapshot", asked)
    session = connection(stack)
    places.at("view", lambda: execute(session, f"UPDATE {table} SET v = 3 WHERE id < 10", statement.format(t=table)))
    pipeline.drain()
    pipeline.drain()
    assert not places.left and states(pipeline) == ["done"]
    found, wanted = said(pipeline, pipeline.table_topic("t")), dict(rows(root, f"SELECT id, v FROM {table}"))
    assert {key: found[key] for key in wanted} == wanted
    left = rows(root, f"SELECT COUNT(*) FROM {table}")[0][0]
    assert sum(reads(pipeline, "t").values()) >= left
