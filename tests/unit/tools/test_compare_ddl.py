"""Kinds of explained differences in statements, and what they do not hold for."""

from __future__ import annotations

from typing import Any

import pytest
from prooflib.around import RecordContext
from prooflib.differ import Difference
from prooflib.kinds import KINDS
from prooflib.records import Record, parse_records


def change(ddl: str, *, charset: str = "utf8mb4", kind: str = "ALTER") -> Record:
    table = f'{{"defaultCharsetName":"{charset}","columns":[]}}'
    changes = f'[{{"type":"{kind}","id":"x","table":{table}}}]'
    value = f'{{"schema":null,"payload":{{"source":{{"snapshot":"false"}},"ddl":"{ddl}","tableChanges":{changes}}}}}'
    text = f'{{"topic":"cap","partition":0,"key":{{"schema":null,"payload":{{}}}},"value":{value},"headers":[]}}'
    return parse_records([text], "x")[0]


def difference(ours: Any, theirs: Any, path: str, mine: Record, other: Record) -> Difference:
    return Difference("cap", "k", 0, tuple(path.split(".")), ours, theirs, (mine, other))


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "holds"),
    [
        ("unclosed-comment", "CREATE TABLE t (a INT) /*!50100 X */", "CREATE TABLE t (a INT) /*!50100 X", True),
        ("unclosed-comment", "CREATE TABLE t (a INT) /*!50100 X */", "CREATE TABLE t (a INT)", False),
        ("unclosed-comment", "ALTER TABLE t ADD a INT", "ALTER TABLE t ADD b INT", False),
        ("requoted", 'ALTER TABLE t ADD a ENUM("x","it\'s")', "ALTER TABLE t ADD a ENUM('x','it''s')", True),
        ("requoted", "ALTER TABLE t ADD url INT", "ALTER TABLE t ADD `url` INT", True),
        ("requoted", "ALTER TABLE t ADD other INT", "ALTER TABLE t ADD `other` INT", False),
        ("cut-create", "CREATE  UNIQUE INDEX i ON t (a)", "UNIQUE INDEX i ON t (a)", True),
        ("cut-create", "CREATE INDEX i ON t (a)", "INDEX i ON t (a)", False),
        ("requoted", "ALTER TABLE t ADD a ENUM('x')", "ALTER TABLE t ADD a ENUM('y')", False),
        ("requoted", 'ALTER TABLE t -- "x"\n ADD url INT', 'ALTER TABLE t -- "x"\n ADD `url` INT', True),
        ("backslashes", "e\"f,it's", "e\\\"f,it\\'s", True),
        ("backslashes", "a\nb", "a\\nb", True),
        ("backslashes", "a,b", "a\\,b", False),
        ("backslashes", "ab", "a\\c", False),
        ("stale-query", None, "INSERT INTO t VALUES (1)", True),
        ("stale-query", "INSERT INTO t VALUES (1)", None, False),
    ],
)
def test_a_kind_holds_for_its_case_only(kind: str, ours: Any, theirs: Any, holds: bool) -> None:
    record = change("ALTER TABLE t")
    assert KINDS[kind](difference(ours, theirs, "value.payload.ddl", record, record)) is holds


@pytest.mark.parametrize(
    ("ours", "theirs", "mine", "other", "kind", "ddl", "holds"),
    [
        ("gbk", "utf8mb4", "gbk", "utf8mb4", "ALTER", "x", True),
        ("gbk", "utf8mb4", "gbk", "utf8mb4", "CREATE", "CREATE TABLE b (LIKE a)", True),
        ("latin1", "utf8mb4", "gbk", "utf8mb4", "ALTER", "x", True),
        ("gbk", "latin1", "gbk", "utf8mb4", "ALTER", "x", False),
        ("latin1", "utf8mb4", "utf8mb4", "utf8mb4", "ALTER", "x", False),
        ("gbk", "utf8mb4", "gbk", "utf8mb4", "CREATE", "CREATE TABLE b (a INT)", False),
    ],
)
def test_an_overlooked_character_set_is_the_recorded_default_of_an_altered_table(
    ours: str, theirs: str, mine: str, other: str, kind: str, ddl: str, holds: bool
) -> None:
    records = (change(ddl, charset=mine, kind=kind), change(ddl, charset=other, kind=kind))
    path = "value.payload.tableChanges.[0].table.columns.[c].charsetName"
    assert KINDS["overlooked-charset"](difference(ours, theirs, path, *records)) is holds


@pytest.mark.parametrize(
    ("column", "snapshot", "holds"), [("a", "true", True), ("a", "false", False), ("b", "true", False)]
)
def test_an_unselected_key_column_is_one_that_the_values_of_a_snapshot_do_not_have(
    column: str, snapshot: str, holds: bool
) -> None:
    text = (
        '{"topic":"t","partition":0,"key":{"schema":null,"payload":{"a":0,"b":0}},"value":{"schema":null,"payload":{"before":null,'
        f'"after":{{"b":1}},"source":{{"snapshot":"{snapshot}"}},"op":"r"}}}},"headers":[]}}'
    )
    record = parse_records([text], "x")[0]
    assert KINDS["unselected-key"](difference(1, 0, f"key.payload.{column}", record, record)) is holds


@pytest.mark.parametrize(
    ("ddl", "ours", "theirs", "holds"),
    [
        ("ALTER TABLE m ADD (a INT, t1 TIMESTAMP NULL ON UPDATE CURRENT_TIMESTAMP, c INT)", True, False, True),
        ("alter table m add column (`t1` DATETIME(3) ON  UPDATE NOW(3), b INT)", True, False, True),
        # Another column's clause, no parentheses, the other way round, no statement before the record.
        ("ALTER TABLE m ADD (t1 TIMESTAMP NULL, u DATETIME ON UPDATE NOW())", True, False, False),
        ("ALTER TABLE m ADD (xt1 TIMESTAMP ON UPDATE NOW())", True, False, False),
        ("ALTER TABLE m ADD t1 TIMESTAMP ON UPDATE NOW(), ADD b INT", True, False, False),
        ("ALTER TABLE m ADD (a INT, t1 TIMESTAMP ON UPDATE NOW())", False, True, False),
        (None, True, False, False),
    ],
)
def test_on_update_is_overlooked_in_a_list_of_added_columns(
    ddl: str | None, ours: Any, theirs: Any, holds: bool
) -> None:
    record = change("ALTER TABLE m")
    path = ("value", "payload", "tableChanges", "[0]", "table", "columns", "[t1]", "generated")
    context = RecordContext(statements=(change(ddl),) if ddl is not None else ())
    found = Difference("cap", "k", 0, path, ours, theirs, (record, record), context)
    assert KINDS["added-on-update"](found) is holds
