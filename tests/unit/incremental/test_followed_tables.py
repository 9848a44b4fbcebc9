"""Statements between an interrupted snapshot's view and a window: which scans begin anew, and which names to read."""

from __future__ import annotations

from dataclasses import replace

from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.incremental.scan_validity import ScanValidity
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord

VIEW = BinlogOffset("binlog.000002", 500, None, "u")
AT = BinlogOffset("binlog.000004", 100, None, "u")
A, B = TableId("d", "a"), TableId("d", "b")
WAITING = TableScan(A, "snapshot-1", 0, "blocking", start_offset=VIEW, format_digest="f", initial=True)
RUNNING = replace(WAITING, state="running", columns=("id",), kinds=("SIGNED",), cursor=(5,))


def statement(sql: str, pos: int, **more: object) -> HistoryRecord:
    record = HistoryRecord(
        "p", replace(VIEW, file="binlog.000003", pos=pos), 3, 0, "d", sql, DdlContext(default_db="d")
    )
    return replace(record, **more)  # type: ignore[arg-type]


def checked(scan: TableScan, *statements: str, pos: int = 700) -> ScanValidity:
    validity = ScanValidity(AT, "f", [scan])
    for n, sql in enumerate(statements):
        validity.check_record(statement(sql, pos + n))
    return validity


# Statements, and the name that the table d.a has after them.
NAMES: list[tuple[list[str], TableId | None]] = [
    ([], A),
    (["ALTER TABLE a ADD x INT", "CREATE TABLE c (i INT)", "DROP TABLE c", "TRUNCATE b"], A),
    (["RENAME TABLE a TO c"], TableId("d", "c")),
    (["ALTER TABLE a RENAME TO e.c"], TableId("e", "c")),
    (["RENAME TABLE a TO c", "ALTER TABLE c RENAME g", "RENAME TABLE g TO a"], A),
    (["RENAME TABLE a TO c", "RENAME TABLE b TO a", "RENAME TABLE c TO g"], TableId("d", "g")),
    (["RENAME TABLE a TO x, b TO a, x TO b"], B),
    (["RENAME TABLE a TO old, fresh TO a"], TableId("d", "old")),
    (["RENAME TABLE a TO old, fresh TO a", "DROP TABLE old"], None),
    (["DROP TABLE a"], None),
    (["DROP TABLE a", "CREATE TABLE a (i INT)", "RENAME TABLE a TO c"], None),
    (["DROP TABLE a", "RENAME TABLE b TO a", "RENAME TABLE a TO c"], None),
    (["TRUNCATE a", "RENAME TABLE a TO c"], None),
    (["DROP DATABASE d"], None),
    (["RENAME TABLE a TO e.a", "DROP DATABASE d"], TableId("e", "a")),
    (["RENAME TABLE a TO e.a", "DROP DATABASE e"], None),
    (["CREATE TABLE IF NOT EXISTS a (i INT)"], A),
    (["ALTER TABLE a FROBNICATE x", "RENAME TABLE a TO c"], TableId("d", "c")),
]


@for_each("scan", [WAITING, RUNNING], ids=["waiting", "running"])
@for_each(("statements", "name"), NAMES)
def test_a_table_is_followed_by_its_renames(scan: TableScan, statements: list[str], name: TableId | None) -> None:
    validity = checked(scan, *statements)
    assert validity.current_names == {0: name}
    moved = name is not None and name != A
    assert validity.renamed([scan]) == ([(scan, name)] if moved else [])


def test_a_table_that_comes_back_from_names_that_are_not_captured_is_read() -> None:
    """The history may lack what happens between two names that are not captured."""

    def arrived(*statements: str) -> list[TableId]:
        validity = ScanValidity(AT, "f", [WAITING], lambda table: not table.table.startswith("_"))
        for n, sql in enumerate(statements):
            validity.check_record(statement(sql, 700 + n))
        return [name for _, name in validity.renamed([WAITING]) if not name.table.startswith("_")]

    assert arrived("RENAME TABLE a TO _x", "RENAME TABLE _y TO c") == [TableId("d", "c")]
    assert arrived("RENAME TABLE a TO _x", "RENAME TABLE _y TO c, b TO g, _z TO _w") == [TableId("d", "c")]
    assert arrived("RENAME TABLE _y TO c") == [] == arrived("DROP TABLE a", "RENAME TABLE _y TO c")
    assert arrived("RENAME TABLE a TO _x", "RENAME TABLE b TO c") == []


def test_only_tables_of_an_interrupted_snapshot_are_followed() -> None:
    """An ad-hoc snapshot was asked for a name."""
    scan = replace(RUNNING, initial=False)
    validity = checked(scan, "RENAME TABLE a TO c")
    assert validity.current_names == {} and validity.renamed([scan]) == [] and set(validity.invalid_reasons) == {0}


def test_only_statements_between_the_view_and_the_stream_count() -> None:
    validity = ScanValidity(AT, "f", [WAITING])
    rename = statement("RENAME TABLE a TO c", 700)
    for position in (VIEW, replace(AT, pos=AT.pos + 1), replace(rename.position, server_uuid="v")):
        validity.check_record(replace(rename, position=position))
    validity.check_record(replace(rename, snapshot=True))
    assert validity.current_names == {0: A}
    validity.check_record(replace(rename, position=AT))
    assert validity.current_names == {0: TableId("d", "c")}


def test_a_waiting_scan_has_nothing_that_could_be_replaced() -> None:
    assert checked(WAITING, "DROP TABLE a", "ALTER TABLE a DROP n").invalid_reasons == {}
    assert ScanValidity(AT, "other", [WAITING]).invalid_reasons == {}
    assert ScanValidity(AT, "f", [replace(WAITING, start_offset=None)]).invalid_reasons == {}


@for_each(
    ("sql", "restarts"),
    [
        ("ALTER TABLE a ADD x INT", False),
        ("ALTER TABLE a ADD INDEX i (n)", False),
        ("ALTER TABLE a ADD x INT FIRST", True),
        ("ALTER TABLE a DROP n", True),
        ("ALTER TABLE a MODIFY n BIGINT", True),
        ("ALTER TABLE a DROP PRIMARY KEY, ADD PRIMARY KEY (n)", True),
        ("ALTER TABLE a CONVERT TO CHARACTER SET latin1", True),
        ("ALTER TABLE b DROP n", False),
        ("ALTER TABLE a EXCHANGE PARTITION p WITH TABLE b", True),
        ("TRUNCATE a", False),
        ("DROP TABLE a", True),
        ("RENAME TABLE a TO c", True),
    ],
)
@for_each("initial", [True, False], ids=["initial", "ad hoc"])
def test_what_lets_a_running_scan_begin_anew(sql: str, restarts: bool, initial: bool) -> None:
    reasons = checked(replace(RUNNING, initial=initial), sql).invalid_reasons
    assert set(reasons) == ({0} if restarts else set())
    assert not restarts or sql in reasons[0]


def test_a_scan_that_begins_anew_is_still_followed_and_keeps_its_first_reason() -> None:
    validity = checked(RUNNING, "ALTER TABLE a DROP n", "RENAME TABLE a TO c", "RENAME TABLE c TO g")
    assert "DROP n" in validity.invalid_reasons[0]
    assert validity.current_names == {0: TableId("d", "g")}
    other_format = ScanValidity(AT, "other", [RUNNING])
    other_format.check_record(statement("RENAME TABLE a TO c", 700))
    assert other_format.current_names == {0: TableId("d", "c")} and "format" in other_format.invalid_reasons[0]


def test_structures_that_were_read_again_say_nothing_of_names() -> None:
    validity = ScanValidity(AT, "f", [RUNNING])
    description = statement("SET character_set_server=utf8mb4", 700, snapshot=True)
    assert description.starts_description
    validity.check_record(description)
    assert validity.current_names == {0: A} and "read from the server again" in validity.invalid_reasons[0]
