"""A driver that is ended from elsewhere, without its process, Spark or a cluster manager being asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.records import compacted
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.errors import CdcError, FencedError, RunInProgressError
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.operate.end_run import driver_running, end_run, lock_connection, time_of_server


def until(look: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Gate(ThreadRunner):
    """Holds the tasks of a batch back, as a cluster without slots does."""

    def __init__(self, *, shut: bool) -> None:
        super().__init__(1)
        self.reached, self.open = threading.Event(), threading.Event()
        if not shut:
            self.open.set()

    def run(self, *args: Any, **kwargs: Any) -> list[Any]:
        self.reached.set()
        assert self.open.wait(60)
        return super().run(*args, **kwargs)


@pytest.mark.parametrize("inside", [False, True], ids=["between two batches", "inside a batch"])
@pytest.mark.exhaustive(but="inside")
def test_a_driver_is_ended_from_elsewhere_and_others_go_on_at_once(
    properties: dict[str, str], root: Any, database: str, inside: bool
) -> None:
    pipeline = Pipeline(properties | {"source.silence.timeout.ms": "2000"})
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1)")
    pipeline.snapshot()
    assert not driver_running(pipeline.cfg, pipeline.owner) and not end_run(pipeline.cfg, pipeline.owner, pipeline.log)
    execute(root, f"INSERT INTO `{database}`.t VALUES (2)")
    job = pipeline.prepare("drain")
    gate, ended = Gate(shut=inside), list[CdcError]()

    def drive() -> None:
        try:
            run_drain(replace(job.spec, run_for_s=120), gate, pipeline.log)
        except CdcError as error:
            ended.append(error)

    thread = threading.Thread(target=drive)
    thread.start()
    try:
        if inside:
            assert gate.reached.wait(60)
        else:
            until(lambda: len(pipeline.records("t")) == 2)
        assert driver_running(pipeline.cfg, pipeline.owner) and not driver_running(pipeline.cfg, "somebody/else/t/-1")
        assert not end_run(pipeline.cfg, "somebody/else/t/-1", pipeline.log)
        assert not end_run(pipeline.cfg, pipeline.owner, pipeline.log, only_connection=1), (
            "it is another driver of the same run"
        )
        assert end_run(
            pipeline.cfg, pipeline.owner, pipeline.log, only_connection=lock_connection(pipeline.cfg, pipeline.owner)
        )
        until(lambda: not driver_running(pipeline.cfg, pipeline.owner))
        gate.open.set()
        thread.join(60)
        # It has ended by itself, long before its time is over, and has written nothing more.
        assert not thread.is_alive() and len(pipeline.records("t")) == (1 if inside else 2)
        other = Pipeline(pipeline.properties, pipeline.store, owner="somebody/else/t/-1")
        execute(root, f"INSERT INTO `{database}`.t VALUES (3)")
        while (outcome := other.drain()) is not None and len(other.records("t")) < 3:
            assert outcome.complete
    finally:
        gate.open.set()
        thread.join()
    assert len(ended) == 1 and isinstance(ended[0], (FencedError, RunInProgressError))
    found = pipeline.records("t")
    assert len(found) == 3 and len(compacted(found)) == len(rows(root, f"SELECT * FROM `{database}`.t"))


def test_the_clock_of_all_hosts_is_the_source_server_s(properties: dict[str, str], root: Any) -> None:
    cfg = Pipeline(properties).cfg
    times = [rows(root, "SELECT UNIX_TIMESTAMP(SYSDATE(6))")[0][0], time_of_server(cfg)]
    assert times == sorted(times)
    assert time_of_server(cfg) <= rows(root, "SELECT UNIX_TIMESTAMP(SYSDATE(6))")[0][0]
