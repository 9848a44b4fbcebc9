"""Kinds of explained differences in statements, and what they do not hold for."""

from __future__ import annotations

from typing import Any

from kit.cases import case
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


def test_a_kind_holds_for_its_case_only() -> None:
    for kind, ours, theirs, holds in [
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
    ]:
        with case(kind, ours, theirs, holds):
            record = change("ALTER TABLE t")
            assert KINDS[kind](difference(ours, theirs, "value.payload.ddl", record, record)) is holds
