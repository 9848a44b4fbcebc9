"""What happens to tables between a window's low watermark, its views and its high watermark, on real servers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.incremental_rig import FLAT, ask_for, books, reads
from kit.records import payload
from kit.sql import execute, rows
from kit.table_rig import filled
from kit.window_rig import SIGNALS, Places, connection, events, same_as_table
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.incremental import window_driver as round_driver
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.snapshot import consistent_view, range_writer
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock

PROPERTIES = FLAT
SLOTS = 1


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(monkeypatch)


def scans(pipeline: Pipeline) -> list[TableScan]:
    return [scan for _, scan in sorted(books(pipeline).scans.items())]


def all_done(pipeline: Pipeline) -> None:
    assert [(scan.state, scan.reason) for scan in scans(pipeline)] == [("done", "")] * len(scans(pipeline))


def in_the_way(stack: Any, root: Any, *statements: str) -> tuple[threading.Thread, Callable[[], None]]:
    """Return a session that runs statements, and what starts it and returns when it has run them, or waits to."""
    other = connection(stack)
    thread = threading.Thread(target=lambda: execute(other, *statements))
    waits = f"SELECT 1 FROM information_schema.processlist WHERE id = {other.thread_id()} AND state LIKE 'Waiting%'"

    def start() -> None:
        thread.start()
        while thread.is_alive() and not rows(root, waits):
            time.sleep(0.02)

    return thread, start


# Each key kind in its window: every row is changed ----------------------------------------------------------------

KINDS: dict[str, tuple[str, str]] = {
    "unsigned": ("id BIGINT UNSIGNED", "id = 18446744073709551000 + v"),
    "text": ("id VARCHAR(20) COLLATE utf8mb4_0900_ai_ci", "id = CONCAT('Straße', v)"),
    "char": ("id CHAR(20) COLLATE latin1_swedish_ci", "id = CONCAT('é ', v)"),
    "binary": ("id BINARY(8)", "id = CONCAT(x'00ff', v)"),
    "varbinary": ("id VARBINARY(20)", "id = CONCAT(x'ff00', v, x'00')"),
    "datetime": ("id DATETIME(3)", "id = '2024-02-29 23:59:59.5' + INTERVAL v MINUTE"),
    "timestamp": ("id TIMESTAMP(6)", "id = FROM_UNIXTIME(1700000000.25 + v)"),
    "date": ("id DATE", "id = DATE'1000-01-01' + INTERVAL v DAY"),
    "time": ("id TIME(2)", "id = SEC_TO_TIME(-3000 * v - 0.25)"),
    "year": ("id YEAR", "id = 1950 + v"),
    "decimal": ("id DECIMAL(30,10)", "id = -v - 0.0000000001"),
    "double": ("id DOUBLE", "id = 1.1 + v / 3"),
    "float": ("id FLOAT", "id = 1000.1 + v / 3"),
    "enum": ("id ENUM(" + ",".join(f"'e{n}'" for n in range(100)) + ")", "id = 70 - v"),
    "set": ("id SET('a','b','c','d','e','f','g','h')", "id = 250 - v"),
    "bit": ("id BIT(33)", "id = 8589934591 - v"),
}


@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
@pytest.mark.req("INC-20", "INC-27")
@pytest.mark.exhaustive(but="MINIMAL")
def test_a_row_of_any_key_is_left_out_when_an_event_of_the_window_had_it(
    pipeline: Pipeline, root: Any, database: str, stack: Any, places: Places, image: str
) -> None:
    for name, (column, key) in KINDS.items():
        execute(
            root,
            f"CREATE TABLE `{database}`.{name} ({column}, v INT, PRIMARY KEY (id)) CHARACTER SET utf8mb4"
            if "latin1" not in column
            else f"CREATE TABLE `{database}`.{name} ({column}, v INT, PRIMARY KEY (id)) CHARACTER SET latin1",
            f"INSERT INTO `{database}`.{name} (id, v) "
            f"SELECT {key.partition('=')[2]}, v FROM (WITH RECURSIVE n AS "
            "(SELECT 1 AS v UNION ALL SELECT v + 1 FROM n WHERE v < 40) SELECT v FROM n) AS n",
        )
    pipeline.properties |= {"binary.handling.mode": "hex", "unavailable.value.as.null": "true"}
    pipeline.snapshot()
    ask_for(pipeline, KINDS)
    session = connection(stack)
    # The view sees the first change and not the second; what it shows is older than what the stream has told.
    execute(session, f"SET SESSION binlog_row_image = {image}")
    step = [f"UPDATE `{database}`.{name} SET v = v + 100" for name in KINDS]
    places.at("low", lambda: execute(session, *step))
    places.at("incremental.view_open", lambda: execute(session, *step))
    pipeline.drain()
    all_done(pipeline)
    assert not places.left
    assert {name: sum(reads(pipeline, name).values()) for name in KINDS} == dict.fromkeys(KINDS, 0)
    for name in KINDS if image == "FULL" else ():
        assert len(same_as_table(pipeline, root, name)) == 40


ALIKE: dict[str, tuple[str, str, str, str]] = {
    "days": ("DATE", "'2020-00-01'", "'2020-02-00'", "told"),
    "zeros": ("DATE", "'0000-00-00'", "'2021-00-00'", "told"),
    "years": ("DATE", "'0070-01-01'", "'1970-01-01'", "told"),
    "moments": ("DATETIME(3)", "'2020-02-00 10:00:00.5'", "'2020-00-00 00:00:00'", "told"),
    "stamps": ("TIMESTAMP(2)", "'0000-00-00 00:00:00'", "'2001-01-01 00:00:01.5'", "told"),
    "flags": ("BOOL", "1", "2", "told"),
    "floats": ("FLOAT", "8388607.5", "8388607", "told"),
    "singles": ("FLOAT(9,3)", "1.001", "1.002", "told"),
    "members": ("ENUM('', 'a')", "0", "1", "read later"),
    "other_members": ("ENUM('a')", "0", "1", "told"),
    "bits": ("SET('', 'a')", "0", "1", "read later"),
    "letters": ("VARCHAR(9) CHARSET gbk COLLATE gbk_bin", "x'aaa1'", "x'3f'", "read later"),
    "kanji": ("VARCHAR(9) CHARSET cp932 COLLATE cp932_bin", "x'81ca'", "x'fa54'", "read later"),
}
"""Two keys of which events, or SELECT itself, show the same, and what a window does when an event changed the first."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("moved", [False, True], ids=["updated", "moved away"])
@pytest.mark.req("INC-20", "INC-27")
def test_a_row_is_read_though_an_event_of_the_window_had_a_key_that_looks_like_its_own(
    pipeline: Pipeline, root: Any, database: str, stack: Any, places: Places, moved: bool
) -> None:
    execute(root, *filled(database, "a", count=1))
    pipeline.snapshot()
    session = connection(stack)
    execute(session, "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'", f"USE `{database}`")
    for name, (kind, first, second, _) in ALIKE.items():
        execute(session, f"CREATE TABLE `{name}` (k {kind} NOT NULL PRIMARY KEY, v INT)")
        execute(session, f"INSERT INTO `{name}` VALUES ({first}, 1), ({second}, 2)")
    # A last key that Unicode has: a key range ends with it.
    execute(session, "INSERT INTO letters VALUES (x'f7fe', 3)", "INSERT INTO kanji VALUES (x'fc4b', 3)")
    pipeline.drain()
    seen = {name: len(pipeline.records(name)) for name in ALIKE}
    ask_for(pipeline, ALIKE)
    change = "DELETE FROM `{}` WHERE v = 1" if moved else "UPDATE `{}` SET v = 10 WHERE v = 1"
    places.at("incremental.view_open", lambda: execute(session, *map(change.format, ALIKE)))
    pipeline.drain()
    all_done(pipeline)
    assert not places.left
    found = {name: [payload(r.value) for r in pipeline.records(name)[seen[name] :]] for name in ALIKE}
    read = {
        name: sorted(v["after"]["v"] for v in values if v and v["op"] == "r" and v["after"]["v"] != 3)
        for name, values in found.items()
    }
    left = [2] if moved else [2, 10]
    assert read == {name: [2] if what == "told" else left for name, (*_, what) in ALIKE.items()}


@pytest.mark.parametrize("more", [{}, {"message.key.columns": "(.*).a:v;"}], ids=["own key", "message.key.columns"])
@pytest.mark.req("INC-20")
@pytest.mark.exhaustive(but="own key")
def test_moved_keys_hidden_columns_and_case_in_the_window(
    pipeline: Pipeline, root: Any, database: str, stack: Any, places: Places, more: dict[str, str]
) -> None:
    pipeline.properties |= more
    execute(
        root,
        f"CREATE TABLE `{database}`.a "
        "(k VARCHAR(9) COLLATE utf8mb4_0900_ai_ci, n INT UNSIGNED, v INT, PRIMARY KEY (k, n))",
        f"INSERT INTO `{database}`.a VALUES " + ",".join(f"('Key{i % 7}', {i}, {i})" for i in range(60)),
    )
    pipeline.snapshot()
    ask_for(pipeline, ["a"])
    session, a = connection(stack), f"`{database}`.a"
    execute(session, "SET SESSION binlog_transaction_compression = ON")
    places.at("low", lambda: execute(session, f"UPDATE {a} SET k = LOWER(k) WHERE n < 20"))
    steps = [
        f"UPDATE {a} SET k = UPPER(k) WHERE n BETWEEN 10 AND 30",
        f"UPDATE {a} SET n = n + 1000 WHERE n BETWEEN 25 AND 35",
        f"DELETE FROM {a} WHERE n = 40",
        f"INSERT INTO {a} VALUES ('key5', 40, 400)",
        "XA START 'w'",
        f"UPDATE {a} SET n = n + 5000 WHERE n = 50",
        "XA END 'w'",
        "XA PREPARE 'w'",
        "XA COMMIT 'w'",
    ]
    places.at("incremental.view_open", lambda: execute(session, *steps))
    pipeline.drain()
    all_done(pipeline)
    assert not places.left
    same_as_table(pipeline, root, "a", "k, n, v")
    untouched = 60 - 36 - 2
    assert sum(reads(pipeline, "a").values()) == untouched


@pytest.mark.req("INC-20")
def test_an_xa_transaction_prepared_before_the_window_counts_where_it_commits(
    pipeline: Pipeline, root: Any, database: str, stack: Any, places: Places
) -> None:
    execute(root, *filled(database, "a", count=40))
    pipeline.snapshot()
    session = connection(stack)
    execute(session, "XA START 'p'", f"UPDATE `{database}`.a SET v = 9 WHERE id < 5", "XA END 'p'", "XA PREPARE 'p'")
    ask_for(pipeline, ["a"])
    places.at("incremental.view_open", lambda: execute(session, "XA COMMIT 'p'"))
    pipeline.drain()
    all_done(pipeline)
    same_as_table(pipeline, root, "a")
    assert sum(reads(pipeline, "a").values()) == 35


# Statements -------------------------------------------------------------------------------------------------------

DDL = {
    "rename the key": ("ALTER TABLE {t} RENAME COLUMN id TO k", ["k"]),
    "another key": (
        "ALTER TABLE {t} DROP PRIMARY KEY, ADD COLUMN w INT NOT NULL DEFAULT 3, ADD PRIMARY KEY (w, id)",
        ["w", "id"],
    ),
    "created anew": (
        "DROP TABLE {t}; CREATE TABLE {t} (k BIGINT PRIMARY KEY, v INT); "
        "INSERT INTO {t} VALUES (5, 5), (-7, 7), (999, 1)",
        ["k"],
    ),
    "INSTANT": ("ALTER TABLE {t} ADD COLUMN w INT DEFAULT 7, ALGORITHM = INSTANT; UPDATE {t} SET v = 8", ["id"]),
    "COPY": ("ALTER TABLE {t} MODIFY v BIGINT FIRST, ALGORITHM = COPY; UPDATE {t} SET v = 8 WHERE id < 9", ["id"]),
    "drop column": ("ALTER TABLE {t} ADD COLUMN w INT; ALTER TABLE {t} DROP COLUMN w", ["id"]),
    "swap": (
        "CREATE TABLE {t}_gho (id INT PRIMARY KEY, v BIGINT, x INT); INSERT INTO {t}_gho SELECT id, v, 1 FROM {t}; "
        "RENAME TABLE {t} TO {t}_del, {t}_gho TO {t}; UPDATE {t} SET v = 77 WHERE id > 90",
        ["id"],
    ),
}


@pytest.mark.exhaustive(but="swap")
@pytest.mark.parametrize(
    ("ddl", "place"),
    [
        ("rename the key", "low"),
        ("another key", "high"),
        ("another key", "incremental.stretch_read"),
        ("created anew", "low"),
        ("INSTANT", "incremental.view_open"),
        ("COPY", "low"),
        ("COPY", "incremental.stretch_read"),
        ("drop column", "high"),
        ("swap", "low"),
        ("swap", "incremental.view_open"),
    ],
)
@pytest.mark.req("INC-18", "INC-25")
def test_a_statement_in_the_middle_of_a_window(
    pipeline: Pipeline, root: Any, database: str, stack: Any, places: Places, ddl: str, place: str
) -> None:
    execute(root, *filled(database, "a", count=100))
    pipeline.snapshot()
    ask_for(pipeline, ["a"])
    statements, key = DDL[ddl]
    thread, start = in_the_way(stack, root, *statements.format(t=f"`{database}`.a").split(";"))
    places.at(place, start)
    pipeline.drain()
    thread.join(20)
    pipeline.drain()
    pipeline.drain()
    assert not places.left
    all_done(pipeline)
    found = same_as_table_by(pipeline, root, key)
    assert len(found) == rows(root, f"SELECT COUNT(*) FROM `{database}`.a")[0][0]


def same_as_table_by(pipeline: Pipeline, root: Any, key: list[str]) -> dict[str, Any]:
    """Compare the rows whose event keys have these columns; a key that is none any more keeps its last row."""
    db = pipeline.properties["database.include.list"]
    found = {k: r for k, r in events(pipeline, pipeline.table_topic("a")).items() if set(json.loads(k)) == set(key)}
    columns = ", ".join([*key, "v"])
    said = sorted(tuple(row[name] for name in [*key, "v"]) for row in found.values())
    assert said == sorted(rows(root, f"SELECT {columns} FROM `{db}`.a"))
    return found


@pytest.mark.exhaustive
def test_a_table_that_is_locked_is_read_later_and_the_stream_goes_on(
    pipeline: Pipeline, root: Any, database: str, stack: Any
) -> None:
    execute(root, *filled(database, "a", "b", count=40))
    pipeline.snapshot()
    ask_for(pipeline, ["a", "b"])
    locker = connection(stack)
    execute(locker, f"LOCK TABLES `{database}`.a WRITE", f"UPDATE `{database}`.a SET v = 1")
    execute(root, f"UPDATE `{database}`.b SET v = 1")
    pipeline.drain()
    assert [scan.state for scan in scans(pipeline)] == ["waiting", "done"]
    same_as_table(pipeline, root, "b")
    execute(locker, "UNLOCK TABLES")
    pipeline.drain()
    all_done(pipeline)
    same_as_table(pipeline, root, "a")


@pytest.mark.exhaustive
def test_a_table_that_cannot_begin_keeps_no_other_from_it(
    pipeline: Pipeline, root: Any, database: str, stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window has room for so many scans; those that could not begin come behind the others."""
    monkeypatch.setattr(round_driver, "MAX_SCANS_PER_WINDOW", 1)
    for module in (round_driver, consistent_view):
        monkeypatch.setattr(module, "LOCK_WAIT_S", 1)
    execute(root, *filled(database, "a", "b", count=40))
    pipeline.snapshot()
    ask_for(pipeline, ["a", "b"])
    locker = connection(stack)
    execute(locker, f"LOCK TABLES `{database}`.a WRITE")
    try:
        pipeline.drain()
    finally:
        execute(locker, "UNLOCK TABLES")  # dropping the database would wait for it
    assert [scan.state for scan in scans(pipeline)] == ["waiting", "done"]
    assert any(f"{database}.a begins in a later window: 1205" in line for line in pipeline.lines)
    assert any("continue in the next drain" in line and "1205" in line for line in pipeline.lines)


def test_a_query_that_is_killed_is_asked_again(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(root, *filled(database, "a", count=40))
    pipeline.snapshot()
    ask_for(pipeline, ["a"])
    real, asked = range_writer.stream_blocks, list[str]()

    def killed_once(conn: Any, sql: str, where: str) -> Iterator[RowBlock]:
        asked.append(sql)
        yield from real(conn, f"SELECT 1 FROM ({sql}) AS r WHERE SLEEP(30) = 0" if len(asked) == 1 else sql, where)

    def kill() -> None:
        sleeping = "SELECT id FROM information_schema.processlist WHERE info LIKE '%SLEEP(30) = 0'"
        while not (found := rows(root, sleeping)):
            time.sleep(0.02)
        execute(root, f"KILL QUERY {found[0][0]}")

    monkeypatch.setattr(range_writer, "stream_blocks", killed_once)
    thread = threading.Thread(target=kill)
    thread.start()
    pipeline.drain()
    thread.join()
    all_done(pipeline)
    assert sum(reads(pipeline, "a").values()) == 40


@pytest.mark.req("INC-03")
def test_a_table_that_was_never_read_is_read_first_by_a_signal(pipeline: Pipeline, root: Any, database: str) -> None:
    pipeline.properties |= {"snapshot.mode": "no_data"}
    execute(root, *filled(database, "a", count=40))
    pipeline.snapshot()
    ask_for(pipeline, ["a"])
    pipeline.drain()
    all_done(pipeline)
    same_as_table(pipeline, root, "a")


def test_a_table_that_is_captured_no_more_is_not_read(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, *filled(database, "a", "b", count=40))
    pipeline.snapshot()
    ask_for(pipeline, ["a", "b"])
    pipeline.properties |= {"table.include.list": f"{database}.b"}
    pipeline.drain()
    assert [scan.state for scan in scans(pipeline)] == ["aborted", "done"]
    assert reads(pipeline, "a") == {}


def test_a_signal_table_that_is_dropped_stops_no_stream(pipeline: Pipeline, root: Any, database: str) -> None:
    pipeline.properties |= {
        "table.include.list": f"{database}.a",
        "signal.data.collection": f"{database}.signals",
    }
    execute(root, *filled(database, "a", count=40), SIGNALS.format(database))
    pipeline.snapshot()
    execute(root, f"GRANT INSERT, DELETE ON `{database}`.signals TO {pipeline.properties['database.user']}")
    ask_for(pipeline, ["a"])
    execute(root, f"DROP TABLE `{database}`.signals", f"UPDATE `{database}`.a SET v = 4")
    pipeline.drain()
    assert [scan.ended for scan in scans(pipeline)] == [False]
    assert any("low watermark" in line for line in pipeline.lines)
    same_as_table(pipeline, root, "a")
    execute(root, SIGNALS.format(database))
    pipeline.drain()
    all_done(pipeline)
    same_as_table(pipeline, root, "a")


@pytest.mark.parametrize(("skipped", "read"), [("u", 60), ("c", 40)])
@pytest.mark.exhaustive(but="u-60")
def test_a_row_without_an_event_is_read(
    pipeline: Pipeline, root: Any, database: str, places: Places, stack: Any, skipped: str, read: int
) -> None:
    """The topic has a row of neither event nor snapshot where an operation is skipped that changed it in the window."""
    pipeline.properties |= {"skipped.operations": skipped}
    a = f"`{database}`.a"
    execute(root, f"CREATE TABLE {a} (id INT PRIMARY KEY, v INT)")
    execute(root, f"INSERT INTO {a} VALUES {','.join(f'({n}, 0)' for n in range(60))}")
    pipeline.snapshot()
    ask_for(pipeline, ["a"])
    session = connection(stack)
    places.at("low", lambda: execute(session, f"UPDATE {a} SET v = 1 WHERE id < 20"))
    pipeline.drain()
    all_done(pipeline)
    assert not places.left
    assert sum(reads(pipeline, "a").values()) == read


BAD_ROWS = {
    "time.precision.mode": "connect",
    "event.processing.failure.handling.mode": "warn",
    "drain.small.batch.bytes": "0",
}
"""A TIME of more than a day has no form in Connect's Time."""


def of_times(root: Any, database: str) -> str:
    """Create a table with sixty rows that can be written; return its quoted name."""
    name = f"`{database}`.a"
    filling = ",".join(f"({n}, 0, '01:00:00')" for n in range(60))
    execute(
        root,
        f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT, t TIME NOT NULL)",
        f"INSERT INTO {name} VALUES {filling}",
    )
    return name


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.exhaustive(but="3-2")
def test_a_row_whose_events_could_not_be_written_is_read(
    pipeline: Pipeline, root: Any, database: str, places: Places, stack: Any, unique: str, slots: int, partitions: int
) -> None:
    """A dead letter is no record of the row, and what the view shows of it can be written."""
    pipeline.slots = slots
    pipeline.properties |= BAD_ROWS | {
        "errors.deadletterqueue.topic.name": f"dead.{unique}",
        "topic.creation.default.partitions": str(partitions),
        "snapshot.parallelism": str(slots),
    }
    a = of_times(root, database)
    pipeline.snapshot()
    ask_for(pipeline, ["a"])
    session = connection(stack)
    # Both events of rows 0 to 19 have the TIME in one of their images. Rows 10 to 14 have an event that is written.
    steps = [
        f"UPDATE {a} SET t = '100:00:00' WHERE id < 20",
        f"UPDATE {a} SET t = '02:00:00', v = 1 WHERE id < 20",
        f"UPDATE {a} SET v = 2 WHERE id BETWEEN 10 AND 14",
    ]
    places.at("low", lambda: execute(session, *steps))
    pipeline.drain()
    all_done(pipeline)
    assert not places.left
    assert len(pipeline.read(f"dead.{unique}")) == 40
    assert sum(reads(pipeline, "a").values()) == 55
    last = {json.loads(r.key or b"")["id"]: json.loads(r.value or b"")["after"] for r in pipeline.records("a")}
    assert {key: row["v"] for key, row in last.items()} == {key: v for key, v in rows(root, f"SELECT id, v FROM {a}")}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"skipped.operations": "u"}, "gave one of its rows another key"),
        (BAD_ROWS, "changes of its rows could not be written"),
    ],
    ids=["skipped", "dead letter"],
)
@pytest.mark.exhaustive(but="skipped")
def test_a_table_whose_row_moved_without_a_record_is_read_in_the_next_window(
    pipeline: Pipeline, root: Any, database: str, places: Places, stack: Any, more: dict[str, str], reason: str
) -> None:
    """A task whose view is before the change and one whose view is after it could both not show the row."""
    pipeline.slots = 2
    pipeline.properties |= more | {"snapshot.parallelism": "2"}
    a = of_times(root, database)
    pipeline.snapshot()
    ask_for(pipeline, ["a"])
    session = connection(stack)
    steps = [f"UPDATE {a} SET id = 100, t = '100:00:00' WHERE id = 5", f"UPDATE {a} SET t = '02:00:00' WHERE id = 100"]
    places.at("low", lambda: execute(session, *steps))
    pipeline.drain()
    all_done(pipeline)
    assert not places.left
    assert sum(reads(pipeline, "a").values()) == 60
    assert [line for line in pipeline.lines if line.startswith(f"snapshot of {database}.a ") and reason in line]
