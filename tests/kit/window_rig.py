"""What the attacks on ad-hoc snapshots share: change something at a place of a window, and judge what the topics
say."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pymysql
import pytest
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.incremental import watermarks
from airflow_provider_mysql_cdc.cdc.incremental import window_task as round_task
from kit.records import duplicates, payload
from kit.sql import rows

Step = Callable[[], object]

SIGNALS = "CREATE TABLE `{}`.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT NULL)"


class Places:
    """Run steps where a window passes, each once, and know which were reached.

    Places are fault points and ``low``: behind the low watermark, before a view; ``high``: behind the high watermark,
    before the batch's end is fixed; ``before low`` and ``before high``; ``view``: behind a task's START TRANSACTION,
    before it holds its tables. ``<point>/<n>`` is a fault point in task ``n`` alone.

    Args:
        monkeypatch: Puts everything back.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._steps: dict[str, list[Step]] = {}
        self._lock = threading.Lock()
        monkeypatch.setattr(faults, "fault_point", self._point)
        for name, place in (("take_low_watermark", "low"), ("close_window", "high")):
            monkeypatch.setattr(watermarks, name, self._around(getattr(watermarks, name), place))
        held = round_task.stream_rows
        monkeypatch.setattr(round_task, "stream_rows", lambda *a: (self.reach("view"), held(*a))[1])

    def _point(self, name: str, writer: int | None = None) -> None:
        self.reach(name)
        self.reach(f"{name}/{writer}")

    def _around(self, real: Callable[..., Any], place: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.reach(f"before {place}")
            found = real(*arguments)
            self.reach(place)
            return found

        return call

    def die(self, place: str, nth: int = 1) -> None:
        """End the run with an error at a passage."""

        def fail() -> None:
            raise faults.FaultRaised(place)

        self.at(place, *[lambda: None] * (nth - 1), fail)

    def at(self, place: str, *steps: Step) -> None:
        """Run the first step at the first passage, the second at the second."""
        self._steps.setdefault(place, []).extend(steps)

    def reach(self, place: str) -> None:
        """Pass a place."""
        with self._lock:
            waiting = self._steps.get(place)
            step = waiting.pop(0) if waiting else None
        if step is not None:
            step()

    @property
    def left(self) -> list[str]:
        """Return the places that were not reached."""
        return [place for place, steps in self._steps.items() if steps]


def connection(stack: Any, database: str | None = None) -> Any:
    """Return a connection of one's own, as root, with a default database if one is given."""
    return pymysql.connect(
        host=stack.mysql_host,
        port=stack.mysql_port,
        user=stack.root_user,
        password=stack.root_password,
        charset="utf8mb4",
        database=database,
        autocommit=True,
        ssl_disabled=True,
    )


def events(pipeline: Pipeline, topic: str) -> dict[str, Any]:
    """Return the rows that a topic ends with, by key; each event must continue what its key's last one left.

    A row that is read again must be what the topic says already. Rows of different structures are compared by the
    columns that both have. A row that an interrupted snapshot had not read when it was changed has that event first.
    """
    first_may_continue = any(" was interrupted: " in line for line in pipeline.lines)
    records = pipeline.read(topic)
    assert duplicates(records) == []
    last: dict[str, Any] = {}
    for record in records:
        key, value = json.dumps(payload(record.key), sort_keys=True), payload(record.value)
        before = last.get(key)
        if value is None:
            assert before is None, (key, "a tombstone without a delete")
            continue
        if value["op"] == "t":
            continue
        again = value["op"] == "r" and key in last
        row = value["after"] if again else value["before"]
        is_unread = first_may_continue and key not in last
        assert is_unread or (row is None) == (before is None), (key, value["op"], before, row)
        if row is not None and before is not None:
            common = row.keys() & before.keys()
            assert {n: row[n] for n in common} == {n: before[n] for n in common}, (key, value["op"], again)
        last[key] = value["after"]
    return {key: row for key, row in last.items() if row is not None}


def same_as_table(pipeline: Pipeline, root: Any, table: str, columns: str = "v") -> dict[str, Any]:
    """Fail unless a table's topic ends with its rows, compared by some columns; return the rows by key."""
    db = pipeline.properties["database.include.list"]
    found = events(pipeline, pipeline.table_topic(table))
    names = [name.strip() for name in columns.split(",")]
    said = sorted(tuple(row[name] for name in names) for row in found.values())
    assert said == sorted(rows(root, f"SELECT {columns} FROM `{db}`.`{table}`"))
    return found
