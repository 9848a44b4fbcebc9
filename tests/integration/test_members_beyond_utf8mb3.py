"""Members of ENUM and SET that the server does not show as they are: from snapshots and from what it writes itself."""

from __future__ import annotations

from typing import Any

import pytest
from kit.incremental_rig import ask_for
from kit.records import payload
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import DdlParseError

PROPERTIES = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
MOOD = "mood ENUM('😀','😡','ok''\\\\','?') DEFAULT '😡', tags SET('🍕','🍺','x') CHARACTER SET utf16 COLLATE utf16_bin"


def after(pipeline: Pipeline, table: str) -> list[tuple[str, str]]:
    values = [payload(r.value)["after"] for r in pipeline.records(table)]
    return [(v["mood"], v["tags"]) for v in values]


@pytest.mark.req("TYPE-27")
def test_members_beyond_the_basic_plane_arrive(properties: dict[str, str], root: Any, database: str) -> None:
    pipeline = Pipeline(properties | PROPERTIES)
    execute(
        root,
        f"USE `{database}`",
        f"CREATE TABLE t (id INT PRIMARY KEY, {MOOD})",
        "INSERT INTO t VALUES (1, '😀', '🍕,🍺'), (2, 'ok''\\\\', 'x'), (3, '?', '🍺,x')",
    )
    assert pipeline.snapshot().complete
    rows = [("😀", "🍕,🍺"), ("ok'\\", "x"), ("?", "🍺,x")]
    assert after(pipeline, "t") == rows
    execute(
        root,
        "INSERT INTO t VALUES (4, '😡', '🍕,x')",
        "CREATE TABLE made AS SELECT * FROM t",
        "CREATE TEMPORARY TABLE hidden LIKE t",
        "CREATE TABLE alike LIKE hidden",
        "INSERT INTO alike SELECT * FROM t",
        "SET SESSION sql_generate_invisible_primary_key = ON",
        f"CREATE TABLE keyed ({MOOD})",
        "INSERT INTO keyed SELECT mood, tags FROM t",
        "SET SESSION sql_generate_invisible_primary_key = OFF",
    )
    assert pipeline.drain() is not None
    execute(root, "INSERT INTO made SELECT id + 10, mood, tags FROM t WHERE id = 1")
    assert pipeline.drain() is not None
    rows.append(("😡", "🍕,x"))
    assert after(pipeline, "t") == after(pipeline, "alike") == after(pipeline, "keyed") == rows
    assert after(pipeline, "made") == [*rows, rows[0]]


@pytest.mark.req("TYPE-27")
def test_a_member_of_bytes_has_one_text(properties: dict[str, str], root: Any, database: str) -> None:
    """In the character set binary: from snapshots, the stream and incremental snapshots."""
    pipeline = Pipeline(properties | PROPERTIES)
    columns = "mood ENUM('a','ä',X'FF01',X'0FF1','b ') CHARACTER SET binary, tags SET('x','ö') CHARACTER SET binary"
    execute(
        root,
        f"USE `{database}`",
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns})",
        "INSERT INTO t VALUES (1, 1, 1), (2, 2, 3), (3, 3, 0), (4, 4, 2), (5, 5, NULL)",
    )
    assert pipeline.snapshot().complete
    rows = [("a", "x"), ("Ã¤", "x,Ã¶"), ("ÿ\x01", ""), ("\x0fñ", "Ã¶"), ("b ", None)]
    assert after(pipeline, "t") == rows
    execute(
        root,
        f"CREATE TABLE streamed (id INT PRIMARY KEY, {columns})",
        "INSERT INTO streamed SELECT * FROM t",
        "CREATE TABLE made AS SELECT * FROM t",
        "INSERT INTO t SELECT id + 10, mood, tags FROM t",
    )
    assert pipeline.drain() is not None
    assert after(pipeline, "streamed") == after(pipeline, "made") == rows
    assert after(pipeline, "t") == rows + rows
    ask_for(pipeline, ["streamed"])
    assert pipeline.drain() is not None
    assert sorted(map(str, after(pipeline, "streamed")[len(rows) :])) == sorted(map(str, rows))


def test_members_that_nobody_knows_any_more_are_an_error(properties: dict[str, str], root: Any, database: str) -> None:
    pipeline = Pipeline(properties | PROPERTIES)
    execute(root, f"USE `{database}`", f"CREATE TABLE t (id INT PRIMARY KEY, {MOOD})")
    assert pipeline.snapshot().complete
    execute(root, "CREATE TABLE made AS SELECT * FROM t", "ALTER TABLE made MODIFY mood ENUM('😀','b')")
    with pytest.raises(DdlParseError, match="members of a column are not known"):
        pipeline.drain()
