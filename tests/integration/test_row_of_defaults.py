"""Rows of defaults with binlog_row_image=MINIMAL: an INSERT that names no column, defaults that a server misprints."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kit.records import payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline


@pytest.mark.req("SETUP-17")
def test_an_insert_that_names_no_column_arrives(properties: dict[str, str], root: Any, database: str) -> None:
    pipeline = Pipeline(
        properties | {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
    )
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY DEFAULT 5, v VARCHAR(9) DEFAULT 'two')",
    )
    assert pipeline.snapshot().complete
    execute(
        root,
        "SET SESSION binlog_row_image = 'MINIMAL'",
        f"INSERT INTO `{database}`.t VALUES ()",
        f"INSERT INTO `{database}`.t (id) VALUES (6)",
        f"UPDATE `{database}`.t SET id = 7 WHERE id = 5",
        f"INSERT INTO `{database}`.t () VALUES ()",
    )
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    created = [payload(r.value) for r in pipeline.records("t") if r.value is not None]
    assert [(p["op"], p["after"] and p["after"]["id"]) for p in created] == [
        ("c", 5), ("c", 6), ("d", None), ("c", 7), ("c", 5),
    ]  # fmt: skip
    assert created[0]["after"] == created[-1]["after"] == {"id": 5, "v": "two"}


def require_stored_defaults(pipeline: Pipeline, conn: Any, database: str) -> None:
    """See that rows of defaults are those of the table, which was empty when its structure was read.

    The server prints the FLOAT as 23.5; and 8.0.15 the others with a ``?``.
    """
    execute(
        conn,
        f"CREATE TABLE `{database}`.p (id INT PRIMARY KEY, f FLOAT NOT NULL DEFAULT 23.4999989, g FLOAT DEFAULT 1.5, "
        "v VARCHAR(9) CHARACTER SET utf8mb4 NOT NULL DEFAULT 'a😀 ', c CHAR(4) NOT NULL DEFAULT '?', "
        "u CHAR(4) CHARACTER SET utf32 DEFAULT '😀', b BINARY(4) NOT NULL DEFAULT 0xFF3F)",
    )
    assert pipeline.snapshot().complete
    execute(conn, "SET SESSION binlog_row_image = 'MINIMAL'", f"INSERT INTO `{database}`.p (id) VALUES (1)")
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    ((f, g, *texts, binary),) = rows(conn, f"SELECT f * 1e0, g * 1e0, v, c, u, TO_BASE64(b) FROM `{database}`.p")
    (record,) = pipeline.records("p")
    after = payload(record.value)["after"]
    assert [after["v"], after["c"], after["u"], after["b"]] == [*texts, binary]
    assert [struct.pack("<f", after[name]) for name in "fg"] == [struct.pack("<f", f), struct.pack("<f", g)]
    assert f != 23.5


@pytest.mark.req("SETUP-17", "TYPE-58")
def test_defaults_of_an_empty_table(properties: dict[str, str], root: Any, database: str) -> None:
    given = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
    require_stored_defaults(Pipeline(properties | given), root, database)
