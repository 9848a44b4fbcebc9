"""Without metadata in the binlog, structures are compared with the server's after statements: no fault stays silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.broken_parser import break_parser, placed
from kit.records import compacted, duplicates, payload
from kit.sql import execute
from kit.window_rig import connection
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unchecked_tables
from airflow_provider_mysql_cdc.cdc.ddl.apply import DdlResult
from airflow_provider_mysql_cdc.cdc.drain import ddl_events, structure_check
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError, SchemaMismatchError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

FLAT = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "cdc.id.header": "true",
    "snapshot.locking.mode": "none",
}
SWAP = "ALTER TABLE `{}`.t RENAME COLUMN credit TO debit, RENAME COLUMN debit TO credit"


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    execute(root, "SET GLOBAL binlog_row_metadata = MINIMAL")
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, credit INT, debit INT)")
    made = Pipeline(properties | FLAT)
    made.snapshot()
    return made


def unswap(table: Table) -> Table:
    """Return what was before: the statement was read as if it did nothing."""
    first, second, third = table.columns
    return placed(table, first, replace(second, name="credit"), replace(third, name="debit"))


def insert(root: Any, db: str, number: int) -> None:
    execute(root, f"INSERT INTO `{db}`.t (id, credit, debit) VALUES ({number}, {number * 10}, {number * 100})")


def afters(pipeline: Pipeline) -> list[Any]:
    assert duplicates(pipeline.records("t")) == []
    return [payload(record.value)["after"] for record in pipeline.records("t")]


def row(number: int) -> dict[str, int]:
    return {"id": number, "credit": number * 10, "debit": number * 100}


def lines(pipeline: Pipeline, text: str) -> list[str]:
    return [line for line in pipeline.lines if text in line]


def test_a_wrong_structure_is_corrected_before_rows_come(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_parser(monkeypatch, "RENAME COLUMN", {TableId(database, "t"): unswap})
    execute(root, SWAP.format(database))
    pipeline.drain()
    (line,) = lines(pipeline, "differs from the server's")
    assert "(id INT NOT NULL, credit INT, debit INT; key id) in the schema history" in line
    assert "(id INT NOT NULL, debit INT, credit INT; key id) on the server" in line
    change = payload(pipeline.read(pipeline.properties["topic.prefix"])[-1].value)["tableChanges"][0]
    assert change["type"] == "ALTER"
    assert [column["name"] for column in change["table"]["columns"]] == ["id", "debit", "credit"]
    insert(root, database, 1)
    pipeline.drain()
    assert afters(pipeline) == [row(1)]


def skip_renames(monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, words: str = "RENAME COLUMN") -> None:
    """Let the parser not understand RENAME COLUMN, or other words, and skip what is not understood."""
    apply_ddl = ddl_events.apply_ddl

    def understand_less(state: Any, sql: str, *args: Any) -> DdlResult:
        if words in sql:
            raise DdlParseError("a statement was not understood", where=sql, why="RENAME is unknown")
        return apply_ddl(state, sql, *args)

    pipeline.properties["schema.history.internal.skip.unparseable.ddl"] = "true"
    pipeline.properties["notification.sink.topic.name"] = pipeline.properties["topic.prefix"] + ".notes"
    pipeline.properties["notification.enabled.channels"] = "sink"
    monkeypatch.setattr(ddl_events, "apply_ddl", understand_less)


def skipped_notes(pipeline: Pipeline) -> list[Any]:
    notes = [payload(record.value) for record in pipeline.read(pipeline.properties["notification.sink.topic.name"])]
    return [note for note in notes if note["aggregate_type"] == "Skipped Statement"]


@pytest.mark.req("SCH-09", "FAULT-15")
def test_a_statement_that_is_skipped_because_it_was_not_understood_is_told_and_compared(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_renames(monkeypatch, pipeline)
    execute(root, SWAP.format(database))
    outcome = pipeline.drain()
    assert outcome is not None and outcome.counts[f"{database} (skipped statements)"] == 1
    assert len(lines(pipeline, "differs from the server's")) == 1
    (line,) = lines(pipeline, "was not understood and is skipped")
    assert "RENAME is unknown" in line and SWAP.format(database) in line and "binlog." in line
    (note,) = skipped_notes(pipeline)
    assert note["type"] == "SKIPPED" and note["additional_data"]["statement"] == SWAP.format(database)
    assert note["additional_data"]["position"] == note["id"] and note["id"] in line
    insert(root, database, 1)
    pipeline.drain()
    assert afters(pipeline) == [row(1)]


@pytest.mark.req("SCH-09", "FAULT-15")
@pytest.mark.parametrize("writers", ["1", "3"])
@pytest.mark.exhaustive(but="3")
def test_rows_behind_a_skipped_statement_wait_until_its_table_is_compared(
    writers: str, pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_renames(monkeypatch, pipeline)
    pipeline.properties["drain.writers"] = writers
    execute(root, f"CREATE TABLE `{database}`.other (id INT PRIMARY KEY)")
    execute(root, f"INSERT INTO `{database}`.t VALUES (1, 10, 100)")
    execute(root, SWAP.format(database), f"INSERT INTO `{database}`.other VALUES (1)")
    insert(root, database, 2)
    execute(root, f"INSERT INTO `{database}`.other VALUES (2)")
    with pytest.raises(SchemaMismatchError, match="come behind a statement that was skipped") as caught:
        pipeline.drain()
    assert caught.value.can_retry and "binlog_row_metadata=FULL" in caught.value.remedy
    assert afters(pipeline) == [row(1)]
    pipeline.drain()
    assert afters(pipeline) == [row(1), row(2)]
    assert sorted(payload(record.value)["after"]["id"] for record in pipeline.records("other")) == [1, 2]
    assert len(skipped_notes(pipeline)) == 1 and duplicates(pipeline.records("other")) == []


def test_rows_of_another_width_behind_a_skipped_statement_wait_too(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The advice is that of a skipped statement: a recovery of the history would be refused because of it."""
    skip_renames(monkeypatch, pipeline, "ADD added")
    pipeline.properties["drain.writers"] = "3"
    insert(root, database, 1)
    execute(root, f"ALTER TABLE `{database}`.t ADD added INT", f"INSERT INTO `{database}`.t VALUES (2, 20, 200, 7)")
    with pytest.raises(SchemaMismatchError, match="come behind a statement that was skipped") as caught:
        pipeline.drain()
    assert caught.value.can_retry and caught.value.remedy.startswith("run the task again")
    assert afters(pipeline) == [row(1)]
    pipeline.drain()
    assert afters(pipeline)[1]["added"] == 7


def test_rows_behind_a_skipped_statement_wait_for_a_server_that_cannot_be_asked(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_renames(monkeypatch, pipeline)
    execute(root, SWAP.format(database))

    def lost(*_: Any) -> Any:
        raise SourceConnectionError("the server does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(structure_check, "_read_structures", lost)
        pipeline.drain()
        insert(root, database, 1)
        for _ in range(2):
            with pytest.raises(SchemaMismatchError, match="come behind a statement that was skipped"):
                pipeline.drain()
    assert afters(pipeline) == []
    pipeline.drain()
    assert afters(pipeline) == [row(1)]


def test_rows_behind_a_skipped_statement_are_never_written_if_a_later_one_hides_the_structure(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_renames(monkeypatch, pipeline)
    execute(root, SWAP.format(database))
    insert(root, database, 1)
    execute(root, f"ALTER TABLE `{database}`.t DROP COLUMN credit")
    for _ in range(2):
        with pytest.raises(SchemaMismatchError, match="come behind a statement that was skipped") as caught:
            pipeline.drain()
    assert afters(pipeline) == [] and "Snapshot again" in caught.value.remedy
    assert "mysql_cdc_reset_offset" in caught.value.remedy
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="current")
    assert pipeline.snapshot(again=True).complete
    execute(root, f"INSERT INTO `{database}`.t (id, debit) VALUES (2, 200)")
    pipeline.drain()
    assert afters(pipeline) == [{"id": 1, "debit": 100}, {"id": 2, "debit": 200}]


def test_rows_that_name_their_columns_need_not_wait(
    pipeline: Pipeline, stack: Any, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_renames(monkeypatch, pipeline)
    execute(root, SWAP.format(database), "SET GLOBAL binlog_row_metadata = FULL")
    try:
        with connection(stack) as conn:
            insert(conn, database, 1)
    finally:
        execute(root, "SET GLOBAL binlog_row_metadata = MINIMAL")
    pipeline.drain()
    assert afters(pipeline) == [row(1)]


def test_rows_with_a_wrong_structure_are_an_error_and_later_rows_are_right(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_parser(monkeypatch, "RENAME COLUMN", {TableId(database, "t"): unswap})
    execute(root, SWAP.format(database))
    insert(root, database, 1)
    with pytest.raises(SchemaMismatchError, match="written with a structure that the server does not have") as caught:
        pipeline.drain()
    assert "debit INT, credit INT" in caught.value.why and "credit INT, debit INT" in caught.value.why
    assert not caught.value.can_retry and "mysql_cdc_verify with repair=yes" in caught.value.remedy
    insert(root, database, 2)
    pipeline.drain()
    wrong, right = afters(pipeline)
    assert wrong == {"id": 1, "credit": 100, "debit": 10} and right == row(2)
    assert len(lines(pipeline, "differs from the server's")) == 1


def test_rows_under_the_key_of_another_structure_are_removed_as_the_error_advises(
    properties: dict[str, str], root: Any, database: str
) -> None:
    """A table that is not known comes under a captured name, and a CREATE TABLE IF NOT EXISTS of it does nothing."""
    captured = {
        "table.include.list": f"{database}.[tk]",
        "schema.history.internal.store.only.captured.tables.ddl": "true",
        "value.converter.schemas.enable": "false",
        "key.converter.schemas.enable": "false",
    }
    pipeline = Pipeline(properties | captured)
    execute(root, *(f"CREATE TABLE `{database}`.{name} (a INT PRIMARY KEY, b INT)" for name in "kx"))
    pipeline.snapshot()
    execute(
        root,
        f"RENAME TABLE `{database}`.x TO `{database}`.t",
        # Of InnoDB's statements the binlog tells which ones created a table.
        f"CREATE TABLE IF NOT EXISTS `{database}`.t (b INT PRIMARY KEY, a INT) ENGINE=MyISAM",
        f"INSERT INTO `{database}`.t (a, b) VALUES (1, 2)",
    )
    with pytest.raises(SchemaMismatchError, match="written with a structure that the server does not have"):
        pipeline.drain()
    pipeline.verify(VerifyRequest(repair=RepairMode.YES))
    assert pipeline.verify().equal
    assert compacted(pipeline.records("t")) == {'{"a": 1}': {"a": 1, "b": 2}}


ANSI = (
    "SET sql_mode = 'ANSI'",
    "CREATE TABLE source (id INT PRIMARY KEY, v VARCHAR(9), n VARCHAR(9) CHARACTER SET utf8mb4, e ENUM('ä','b')) "
    "CHARACTER SET latin1",
    "INSERT INTO source VALUES (1, 'é', '語', 'ä')",
    "CREATE TABLE selected (PRIMARY KEY (id)) CHARACTER SET latin1 AS SELECT * FROM source",
    "CREATE TEMPORARY TABLE copied LIKE source",
    "CREATE TABLE alike LIKE copied",
    "ALTER TABLE alike ADD t VARCHAR(5)",
    "SET sql_mode = ''",
    "CREATE TEMPORARY TABLE plain (id INT PRIMARY KEY, v VARCHAR(9)) CHARACTER SET latin1",
    "CREATE TABLE alike2 LIKE plain",
    "INSERT INTO alike2 VALUES (5, 'è')",
    "SET sql_mode = 'ANSI'",
    "INSERT INTO alike VALUES (2, 'é', '語', 'b', 'ü')",
    "SET SESSION sql_generate_invisible_primary_key = ON",
    "CREATE TABLE keyed (id INT UNIQUE, v VARCHAR(9), n CHAR(9) CHARACTER SET utf8mb4) CHARACTER SET latin1",
    "INSERT INTO keyed VALUES (3, 'é', '語')",
    "CREATE TABLE members (e ENUM('ä','b')) CHARACTER SET latin1",
    "INSERT INTO members VALUES ('ä')",
)


def test_rows_tell_the_default_character_set_that_the_server_left_out(
    pipeline: Pipeline, stack: Any, root: Any, database: str
) -> None:
    conn = connection(stack, database)
    try:
        execute(conn, *ANSI)
        pipeline.drain()
        execute(conn, "ALTER TABLE selected ADD w VARCHAR(9)", "INSERT INTO selected VALUES (4, 'ö', '語', 'b', 'ß')")
    finally:
        conn.close()
    pipeline.drain()
    rows = {
        name: [payload(record.value)["after"] for record in pipeline.records(name)]
        for name in ("selected", "alike", "alike2", "keyed", "members")
    }
    assert rows == {
        "selected": [
            {"id": 1, "v": "é", "n": "語", "e": "ä"},
            {"id": 4, "v": "ö", "n": "語", "e": "b", "w": "ß"},
        ],
        "alike": [{"id": 2, "v": "é", "n": "語", "e": "b", "t": "ü"}],
        "alike2": [{"id": 5, "v": "è"}],
        "keyed": [{"my_row_id": 1, "id": 3, "v": "é", "n": "語"}],
        "members": [{"my_row_id": 1, "e": "ä"}],
    }
    for name in ("selected", "alike", "alike2", "keyed"):
        (line,) = lines(
            pipeline, f"WARNING: the structure of {database}.{name} in the schema history differs from that"
        )
        assert "charset of column v is utf8mb4 in the schema history, latin1 in the binlog" in line


def test_another_column_with_another_character_set_is_named(
    pipeline: Pipeline, stack: Any, root: Any, database: str
) -> None:
    execute(root, f"CREATE TABLE `{database}`.s (id INT PRIMARY KEY, v VARCHAR(9))")
    pipeline.drain()
    conn = connection(stack, database)
    execute(conn, "SET sql_log_bin = 0", "ALTER TABLE s DROP v, ADD w VARCHAR(9) CHARACTER SET latin1")
    conn.close()
    execute(root, f"INSERT INTO `{database}`.s VALUES (1, 'é')")
    with pytest.raises(SchemaMismatchError, match="differs from the schema history"):
        pipeline.drain()
    assert not pipeline.records("s")


def test_a_statement_that_is_not_drained_yet_gives_no_false_alarm(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = structure_check.read_create_statements

    def alter_first(conn: Any, tables: Any, log: Any) -> Any:
        execute(root, f"ALTER TABLE `{database}`.t ADD late INT")
        return read(conn, tables, log)

    execute(root, f"ALTER TABLE `{database}`.t ADD early INT")
    monkeypatch.setattr(structure_check, "read_create_statements", alter_first)
    pipeline.drain()
    monkeypatch.setattr(structure_check, "read_create_statements", read)
    assert not lines(pipeline, "differs from")
    break_parser(monkeypatch, "late", {TableId(database, "t"): lambda table: placed(table, *table.columns[:-1])})
    pipeline.drain()
    assert len(lines(pipeline, "differs from the server's")) == 1


def test_a_server_that_cannot_be_asked_fails_nothing_and_is_asked_by_the_next_run(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(settings: Any) -> Any:
        raise SourceConnectionError("the server is gone", where="here")

    connect = structure_check.connect
    monkeypatch.setattr(structure_check, "connect", refuse)
    break_parser(monkeypatch, "RENAME COLUMN", {TableId(database, "t"): unswap})
    execute(root, SWAP.format(database))
    pipeline.drain()
    assert lines(pipeline, "compared with the server after a later batch")
    monkeypatch.setattr(structure_check, "connect", connect)
    execute(root, f"CREATE DATABASE `{database}_x`", f"DROP DATABASE `{database}_x`")
    pipeline.drain()
    assert len(lines(pipeline, "differs from the server's")) == 1
    # Nothing is left to compare, so nothing is asked.
    monkeypatch.setattr(structure_check, "connect", refuse)
    insert(root, database, 1)
    pipeline.drain()
    assert len(lines(pipeline, "compared with the server")) == 1 and afters(pipeline) == [row(1)]


def test_what_is_read_rightly_is_no_difference(pipeline: Pipeline, root: Any, database: str) -> None:
    """Also members that SHOW CREATE TABLE does not show, tables that are gone, and keys of all kinds."""
    execute(
        root,
        f"ALTER TABLE `{database}`.t ADD mood ENUM('😀','😡','ok'), ADD s SET('🍕','x') CHARACTER SET utf8mb4, "
        "ADD n NUMERIC(7), ADD b BOOL DEFAULT TRUE, ADD c NCHAR(3), ADD g INT AS (id + 1) STORED, ADD j JSON, "
        "ADD v VARBINARY(9), ADD p POINT, ADD ts TIMESTAMP(3) NULL, ADD f FLOAT(7,3), ADD y YEAR, ADD bi BIT(3)",
        f"CREATE TABLE `{database}`.k (a INT NOT NULL, b VARCHAR(20), UNIQUE (b), UNIQUE (a))",
        f"CREATE TABLE `{database}`.gone LIKE `{database}`.k",
        f"INSERT INTO `{database}`.gone VALUES (1, 'x')",
        f"DROP TABLE `{database}`.gone",
        f"CREATE TABLE `{database}`.old (id INT PRIMARY KEY)",
        f"RENAME TABLE `{database}`.old TO `{database}`.`new name`",
        f"CREATE TABLE `{database}`.ctas AS SELECT * FROM `{database}`.t",
    )
    insert(root, database, 1)
    pipeline.drain()
    assert not lines(pipeline, "differs from") and not lines(pipeline, "later batch")
    ledger = kafka_clients.ledger(pipeline.cfg).read()
    assert ledger is not None and unchecked_tables(ledger) == {}
