"""Windows that die at each named point, or are frozen there: the next drain reads what is missing, and only that."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from kit.incremental_rig import FLAT, ask_for, books, check_exact, reads
from kit.sql import execute
from kit.table_rig import filled
from kit.window_rig import Places
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.incremental import watermarks

POINTS = [
    ("incremental.view_open", 1, 3),
    ("incremental.stretch_read", 3, 1),
    ("incremental.before_commit", 3, 1),
    ("incremental.before_commit", 3, 3),
    ("incremental.after_commit", 3, 3),
    ("incremental.before_books", 1, 1),
    ("writer.before_commit", 1, 3),
    ("writer.after_commit", 1, 1),
    ("writer.done", 1, 1),
]
PROPERTIES = FLAT


@pytest.mark.parametrize(("point", "nth", "slots"), POINTS, ids=[f"{p}-{slots}" for p, _, slots in POINTS])
@pytest.mark.req("INC-17")
@pytest.mark.exhaustive(but="before_commit-3|before_books|writer.after")
@pytest.mark.halves
def test_a_window_that_dies_is_continued(
    pipeline: Pipeline,
    root: Any,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    point: str,
    nth: int,
    slots: int,
) -> None:
    pipeline.slots = slots
    execute(root, *filled(database, "a", "b", count=100))
    pipeline.snapshot()
    ask_for(pipeline, ["a", "b"])
    real = watermarks.take_low_watermark

    def low(*arguments: Any) -> Any:
        """Set the fault behind the batch before the window, whose writers pass the same points."""
        fault = {"point": point, "action": "raise", "nth": nth, "fired": str(tmp_path / "fired")}
        monkeypatch.setattr(faults, "_passed", {})
        monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
        found = real(*arguments)
        execute(root, f"UPDATE `{database}`.a SET v = v + 1 WHERE id < 20", f"DELETE FROM `{database}`.b WHERE id = 7")
        return found

    monkeypatch.setattr(watermarks, "take_low_watermark", low)
    with pytest.raises((faults.FaultRaised, CdcError)):
        pipeline.drain()
    assert (tmp_path / "fired").exists()
    execute(root, f"UPDATE `{database}`.a SET v = v + 10 WHERE id % 3 = 0", f"DELETE FROM `{database}`.b WHERE id = 9")
    monkeypatch.setattr(watermarks, "take_low_watermark", real)
    pipeline.drain()
    pipeline.drain()
    assert {scan.state for scan in books(pipeline).scans.values()} == {"done"}
    assert books(pipeline).done_ranges == ()
    for table in ("a", "b"):
        check_exact(pipeline, root, table)
        assert set(reads(pipeline, table).values()) == {1}, "a stretch that was done is read again"
    # All but what events of a window told of, and what was deleted before it was read.
    assert sum(reads(pipeline, "a").values()) >= 80
    assert sum(reads(pipeline, "b").values()) >= 98


class Frozen:
    """A drain in a thread, whose first task to reach a point stops there until it is let go."""

    def __init__(self, pipeline: Pipeline, places: Places, point: str) -> None:
        self.held, self.free, self.errors = threading.Event(), threading.Event(), list[BaseException]()
        places.at(point, self._hold)
        self._thread = threading.Thread(target=self._run, args=(pipeline,), daemon=True)
        self._thread.start()
        assert self.held.wait(60), pipeline.lines

    def _hold(self) -> None:
        self.held.set()
        assert self.free.wait(60)

    def _run(self, pipeline: Pipeline) -> None:
        try:
            pipeline.drain()
        except Exception as error:
            self.errors.append(error)

    def thaw(self) -> None:
        """Let the task go on, and wait until its drain has ended."""
        self.free.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.mark.parametrize(
    ("point", "slots"),
    [("incremental.stretch_read", 1), ("incremental.before_commit", 1), ("incremental.stretch_read/2", 3)],
)
@pytest.mark.req("INC-17")
@pytest.mark.exhaustive(but="read/2")
def test_a_task_that_wakes_up_after_its_retry_commits_nothing(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, point: str, slots: int
) -> None:
    """The third task of three has no successor that takes its id over: the retry has one task, and fences by itself."""
    pipeline.slots = slots
    places = Places(monkeypatch)
    execute(root, *filled(database, "a", count=100))
    pipeline.snapshot()
    ask_for(pipeline, ["a"])
    older = Frozen(pipeline, places, point)
    execute(root, f"UPDATE `{database}`.a SET v = 5 WHERE id < 50")
    Pipeline(pipeline.properties, pipeline.store, 1, pipeline.owner).drain()
    older.thaw()
    assert older.errors, "the older attempt did not notice"
    pipeline.drain()
    check_exact(pipeline, root, "a")
    assert sorted(reads(pipeline, "a").values()) == [1] * 100
