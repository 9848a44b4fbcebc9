"""How long writers are held by each snapshot.locking.mode, as a writer sees it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pymysql
import pytest
from kit import Pipeline, compacted, duplicates, execute, rows

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.snapshot import view

LOCK_WAIT_TIMEOUT = 1205
GLOBAL_LOCK_HELD = 1223


@pytest.fixture
def pipeline(properties: dict[str, str]) -> Pipeline:
    return Pipeline(
        properties
        | {
            "cdc.id.header": "true",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "snapshot.chunk.rows": "10",
        }
    )


def writer(root: Any, database: str) -> Callable[[], bool]:
    """Return a function that says whether another session can insert a row within a second."""

    def insert() -> bool:
        conn = pymysql.connect(host=root.host, port=root.port, user="root", password="", autocommit=True)
        with conn, conn.cursor() as cursor:
            cursor.execute("SET SESSION lock_wait_timeout = 1")
            try:
                cursor.execute(f"INSERT INTO `{database}`.t (v) VALUES (0)")
            except pymysql.MySQLError as error:
                assert error.args[0] in (LOCK_WAIT_TIMEOUT, GLOBAL_LOCK_HELD), error
                return False
        return True

    return insert


@pytest.mark.req("SNAP-14", "SNAP-31", "SNAP-33", "SNAP-34")
@pytest.mark.parametrize(
    ("mode", "opening", "reading"),
    [("minimal", False, True), ("extended", False, False), ("none", True, True)],
)
def test_who_may_write_while_the_view_opens_and_while_rows_are_read(
    pipeline: Pipeline,
    root: Any,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    opening: bool,
    reading: bool,
) -> None:
    pipeline.properties["snapshot.locking.mode"] = mode
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
        f"INSERT INTO `{database}`.t (v) VALUES {','.join(['(1)'] * 50)}",
    )
    can_write, seen = writer(root, database), dict[str, bool]()

    def look(moment: str) -> None:
        if moment not in seen:
            seen[moment] = can_write()

    plain_offset, plain_point = view.current_offset, faults.fault_point

    def current_offset(conn: Any) -> Any:
        look("opening")  # every task has opened its view, the lock, if there is one, still stands
        return plain_offset(conn)

    def fault_point(name: str, writer: int | None = None) -> None:
        look(name)
        plain_point(name, writer)

    monkeypatch.setattr(view, "current_offset", current_offset)
    monkeypatch.setattr(faults, "fault_point", fault_point)
    assert pipeline.snapshot().complete
    assert {name: seen[name] for name in ("opening", "snapshot.chunk_read", "snapshot.after_chunk")} == {
        "opening": opening,
        "snapshot.chunk_read": reading,
        "snapshot.after_chunk": reading,
    }
    assert can_write(), "the lock outlived the snapshot"
    line = next(line for line in pipeline.lines if line.startswith("consistent view"))
    held = re.search(r"lock=(\w+), held (?:([\d.]+) ms|until the last row is read)", line)
    assert held is not None, line
    # The refused writer waited for a second under the lock.
    measured = held[2] and float(held[2])
    assert held[1] == ("none" if mode == "none" else "global")
    assert measured is None if mode == "extended" else (measured == 0 if opening else measured >= 900), line
    pipeline.drain()
    records = pipeline.records("t")
    assert duplicates(records) == []
    assert sorted(row["id"] for row in compacted(records).values()) == [
        r[0] for r in rows(root, f"SELECT id FROM `{database}`.t ORDER BY id")
    ]
