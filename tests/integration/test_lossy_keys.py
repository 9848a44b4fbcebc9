"""Keys with characters that Unicode does not have bound no chunks: rows are read once, or it is said why not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from kit.incremental_rig import FLAT, ask_for, books
from kit.records import payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import key_roundtrip_condition

COUNT = 60
ONLY_MYSQLS = {"gbk": "aaa1", "sjis": "f040", "hp8": "ff", "euckr": "c9a1", "cp1250": "81", "ucs2": "d800"}
"""A character that MySQL shows as ``?`` or as bytes that are no UTF-8, by character set."""


def fill(root: Any, database: str, charset: str, *more: str) -> Counter[int]:
    """Make a table whose keys are half letters, half such characters; return its values."""
    table = f"`{database}`.a"
    execute(root, f"CREATE TABLE {table} (id VARCHAR(9) CHARSET {charset} COLLATE {charset}_bin PRIMARY KEY, v INT)")
    first, digits = ONLY_MYSQLS[charset], "utf-16-be" if charset == "ucs2" else "ascii"
    keys = [f"x'{first}{str(i).encode(digits).hex()}'" for i in range(COUNT)]
    values = [f"('k{i:03}', {i}), ({key}, {i + COUNT})" for i, key in enumerate(keys)]
    values += [f"({key}, {number})" for number, key in enumerate(more, 2 * COUNT)]
    execute(root, f"INSERT INTO {table} VALUES {', '.join(values)}", f"ANALYZE TABLE {table}")
    return Counter(v for (v,) in rows(root, f"SELECT v FROM {table}"))


def told(pipeline: Pipeline) -> Counter[int]:
    return Counter(payload(record.value)["after"]["v"] for record in pipeline.records("a"))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("charset", ONLY_MYSQLS)
@pytest.mark.exhaustive(but="gbk")
def test_a_snapshot_in_chunks_reads_each_row_once(
    charset: str, properties: dict[str, str], root: Any, database: str
) -> None:
    there = fill(root, database, charset)
    # Of ucs2 the rows themselves cannot be read.
    pipeline = Pipeline(properties | {"snapshot.chunk.rows": "7", "event.processing.failure.handling.mode": "skip"})
    pipeline.snapshot()
    assert told(pipeline) == (there if charset != "ucs2" else Counter(range(COUNT)))


@pytest.mark.req("INC-09")
def test_an_incremental_snapshot_reads_them_between_other_keys(
    properties: dict[str, str], root: Any, database: str
) -> None:
    there = fill(root, database, "gbk", "x'f7fe'")
    pipeline = Pipeline(properties | FLAT | {"snapshot.mode": "no_data", "cdc.id.header": "false"})
    pipeline.snapshot()
    ask_for(pipeline, ["a"])
    pipeline.drain()
    assert told(pipeline) == there


@pytest.mark.req("INC-09")
@pytest.mark.parametrize("charset", ["gbk", "ucs2"])
@pytest.mark.exhaustive(but="gbk")
def test_an_incremental_snapshot_that_cannot_name_its_last_key_says_so(
    charset: str, properties: dict[str, str], root: Any, database: str
) -> None:
    fill(root, database, charset)
    pipeline = Pipeline(properties | FLAT | {"snapshot.mode": "no_data"})
    pipeline.snapshot()
    ask_for(pipeline, ["a"])
    pipeline.drain()
    (scan,) = books(pipeline).scans.values()
    assert scan.state == "aborted" and "its last key has characters" in scan.reason
    assert sum(told(pipeline).values()) == 0


def test_of_latin1_each_byte_comes_back(root: Any, database: str) -> None:
    """Its keys are not asked whether they do."""
    assert (
        key_roundtrip_condition(["id"], ["latin1 latin1_bin"])
        == "TRUE"
        != key_roundtrip_condition(["id"], ["latin2 latin2_bin"])
    )
    data = bytes(range(256)).hex()
    back = f"SELECT HEX(CONVERT(CONVERT(_latin1 x'{data}' USING utf8mb4) USING latin1))"
    assert rows(root, back)[0][0].lower() == data
