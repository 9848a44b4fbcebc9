"""Tables that are cut by a column of somebody's choice: values that repeat, are equal in a collation, or move."""

from __future__ import annotations

from typing import Any

import pytest
from kit.incremental_rig import FLAT, ask_for, books, check_exact, reads
from kit.sql import execute
from kit.window_rig import Places, connection
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import CdcError

COLUMNS = {
    "few values": ("TINYINT NOT NULL", "n DIV 70"),
    "one value": ("INT NOT NULL", "7"),
    "equal without case": (
        "VARCHAR(20) COLLATE utf8mb4_0900_ai_ci NOT NULL",
        "ELT(1 + n % 6, 'a', 'A', 'á', 'ab', 'AB', 'b ')",
    ),
    "padded": ("VARCHAR(20) COLLATE utf8mb4_general_ci NOT NULL", "ELT(1 + n % 4, 'x', 'x ', 'X', 'x  y')"),
}


@pytest.mark.parametrize(
    ("column", "slots"),
    [("few values", 1), ("few values", 3), ("one value", 1), ("equal without case", 3), ("padded", 1)],
)
@pytest.mark.req("INC-19")
@pytest.mark.exhaustive(but="padded")
def test_no_row_is_left_out_at_an_edge(
    properties: dict[str, str],
    root: Any,
    database: str,
    stack: Any,
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    slots: int,
) -> None:
    """The run dies between two key ranges; meanwhile and in the next window rows move over the cursor both ways."""
    pipeline, places = Pipeline(properties | FLAT, slots=slots), Places(monkeypatch)
    kind, value = COLUMNS[column]
    table = f"`{database}`.a"
    execute(
        root,
        "SET SESSION cte_max_recursion_depth = 1000",
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, s {kind})",
        f"INSERT INTO {table} WITH RECURSIVE r AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 199) "
        f"SELECT n, 0, {value} FROM r",
    )
    pipeline.snapshot()
    ask_for(pipeline, ["a"], surrogate_key="s")
    places.die("incremental.after_commit")
    with pytest.raises((faults.FaultRaised, CdcError)):
        pipeline.drain()
    session = connection(stack)
    swap = f"UPDATE {table} AS x JOIN {table} AS y ON y.id = 199 - x.id SET x.s = y.s, x.v = x.v + 1 WHERE x.id % 9 = 0"
    execute(root, swap)
    places.at("incremental.view_open", lambda: execute(session, swap))
    pipeline.drain()
    pipeline.drain()
    assert {scan.state for scan in books(pipeline).scans.values()} == {"done"}
    check_exact(pipeline, root, "a")
    untouched = {i for i in range(200) if i % 9}
    assert {int("".join(filter(str.isdigit, key))) for key in reads(pipeline, "a")} >= untouched


@pytest.mark.req("INC-19")
def test_a_column_that_may_be_null_is_refused(properties: dict[str, str], root: Any, database: str) -> None:
    pipeline = Pipeline(properties | FLAT, slots=1)
    execute(
        root, f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY, v INT)", f"INSERT INTO `{database}`.a VALUES (1, 1)"
    )
    pipeline.snapshot()
    ask_for(pipeline, ["a"], surrogate_key="v")
    pipeline.drain()
    [scan] = books(pipeline).scans.values()
    assert scan.state == "aborted" and "NOT NULL" in scan.reason
