"""When a scan's cursor counts for nothing any more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import restart_scans
from airflow_provider_mysql_cdc.cdc.incremental.scan_validity import ScanValidity, record_format_digest
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneKeyRange, KeyRange, TableScan
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord

T = TableId("shop", "t")
SINCE = BinlogOffset("binlog.000002", 500, None, "u")
AT = BinlogOffset("binlog.000004", 100, None, "u")
MOVED = BinlogOffset("binlog.000005", 4, None, "u")
SCAN = TableScan(T, "s", 0).begin(("id",), ("SIGNED",), (99,), 1).with_validity(SINCE, "f")


def said(ddl: str, pos: int = 700, *, snapshot: bool = False, db: str = "shop", server: str = "u") -> HistoryRecord:
    place = BinlogOffset("binlog.000003", pos, None, server)
    return HistoryRecord("p", place, 3, 0, db, ddl, DdlContext(default_db=db), snapshot=snapshot)


def found(*records: HistoryRecord, scan: TableScan = SCAN) -> dict[int, str]:
    basis = ScanValidity(AT, "f", [scan])
    for record in records:
        basis.check_record(record)
    return basis.invalid_reasons


@for_each(
    "ddl",
    [
        "RENAME TABLE t TO old, fresh TO t",
        "ALTER TABLE fresh RENAME TO shop.t",
        "DROP TABLE other.x, t",
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t",
        "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE x",
        "ALTER TABLE t IMPORT TABLESPACE",
        "DROP DATABASE shop",
        "ALTER TABLE t RENAME TO",
    ],
)
@pytest.mark.req("INC-17", "INC-18")
def test_a_statement_that_gives_the_name_other_rows_counts(ddl: str) -> None:
    assert set(found(said(ddl))) == {0}


@for_each(
    "record",
    [
        said("ALTER TABLE t ADD c INT"),
        said("TRUNCATE TABLE t"),
        said("CREATE TABLE IF NOT EXISTS t (id INT)"),
        said("RENAME TABLE t TO old, fresh TO t", db="other"),
        said("DROP TABLE t", server="v"),
        said("CREATE TABLE t (id INT)", snapshot=True),
    ],
    ids=lambda r: r.ddl,
)
def test_any_other_does_not(record: HistoryRecord) -> None:
    assert found(record) == {}


def test_a_corrected_structure_counts_for_its_table() -> None:
    """The scan may have read with another primary key."""
    assert set(found(replace(said(""), structure=Table(T, (Column("id", 1, "INT"),))))) == {0}
    assert found(replace(said(""), structure=Table(TableId("shop", "x"), (Column("id", 1, "INT"),)))) == {}


@pytest.mark.req("INC-17")
def test_only_rows_after_its_start_and_before_the_stream_count() -> None:
    drop = said("DROP TABLE t")
    before = replace(drop, position=SINCE)
    behind = replace(drop, position=replace(AT, pos=101))
    assert found(before, behind) == {}
    assert found(replace(drop, position=AT)) != {}


@pytest.mark.req("INC-17")
def test_a_new_description_a_jump_and_another_form_count() -> None:
    assert found(said("SET character_set_server=utf8mb4", snapshot=True)) != {}
    assert found(scan=replace(SCAN, format_digest="g")) != {}
    assert found(scan=replace(SCAN, start_offset=replace(SINCE, server_uuid="v"))) != {}
    assert found(scan=replace(SCAN, start_offset=replace(AT, pos=101))) != {}
    assert found(scan=replace(SCAN, start_offset=None)) != {}
    assert found(scan=SCAN.restart()) == found(scan=SCAN.finish()) == {}


@pytest.mark.req("INC-17")
def test_the_form_is_what_decides_how_records_look() -> None:
    given = {
        "topic.prefix": "p",
        "database.hostname": "h",
        "database.user": "u",
        "database.password": "w",
        "kafka.bootstrap.servers": "k:1",
    }

    def form(**more: str) -> str:
        named = {name.replace("__", "."): text for name, text in more.items()}
        return record_format_digest(ConnectorConfig.from_properties(given | named))

    same = [
        form(table__include__list="shop.t"),
        form(signal__data__collection="shop.s"),
        form(incremental__snapshot__chunk__size="7"),
        form(topic__creation__default__partitions="7"),
        form(read__only="true"),
    ]
    others = [
        form(message__key__columns="shop.t:a"),
        form(column__exclude__list="shop.t.a"),
        form(decimal__handling__mode="string"),
        form(value__converter__schemas__enable="false"),
        form(transforms="r", transforms__r__type="io.debezium.transforms.ByLogicalTableRouter",
             transforms__r__topic__regex="a", transforms__r__topic__replacement="b"),
    ]  # fmt: skip
    assert set(same) == {form()}
    assert len({form(), *others}) == 6


@pytest.mark.req("INC-17")
def test_scans_that_start_again_leave_no_key_range() -> None:
    done = DoneKeyRange(KeyRange(T, 0, 1, ("id",), ("SIGNED",), (10,), (20,), False), 10)
    books = restart_scans(
        IncrementalState({0: SCAN, 1: SCAN.finish()}, (done,)).with_scans(
            [replace(SCAN, number=2, cursor=(5,), next_number=1)]
        ),
        MOVED,
    )
    assert books.done_ranges == ()
    assert [(s.state, s.cursor, s.next_number) for s in books.active_scans] == [("waiting", None, 0)] * 2
    assert {s.start_offset for s in books.active_scans} == {None}


def test_the_scan_of_an_interrupted_snapshot_follows_its_table_from_where_the_stream_was_moved_to() -> None:
    state = IncrementalState().with_scans([replace(SCAN, initial=True)])
    (scan,) = restart_scans(state, MOVED).active_scans
    assert (scan.state, scan.start_offset) == ("waiting", MOVED)
    validity = ScanValidity(BinlogOffset("binlog.000005", 900, None, "u"), "f", [scan])
    record = said("RENAME TABLE t TO n")
    validity.check_record(replace(record, position=BinlogOffset("binlog.000005", 700, None, "u")))
    assert validity.renamed([scan]) == [(scan, TableId("shop", "n"))]
