"""What a run says it has written, by topic and by table, and the stored offset that follows batch after batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kit import Pipeline, execute

from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job.task_runner import ThreadRunner
from airflow_provider_mysql_cdc.cdc.operate.follow import follow, tally_of
from airflow_provider_mysql_cdc.cdc.operate.idle import worth_planning

ROUTED = {
    "transforms": "r",
    "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.r.regex": r"(.*)\.(a|b\.c|b_c)",
}


def until(look: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until a function returns something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def test_counts_by_topic_and_table_over_snapshot_and_batches_whose_ends_the_offset_follows(
    properties: dict[str, str], root: Any, database: str
) -> None:
    """Two tables share a topic, so only the count by table tells which of them changed."""
    pipeline = Pipeline(properties | ROUTED | {"transforms.r.replacement": "$1.all"})
    for name in ("a", "b.c", "quiet"):
        execute(root, f"CREATE TABLE `{database}`.`{name}` (id INT PRIMARY KEY)")
    execute(root, f"INSERT INTO `{database}`.a VALUES (1), (2)", f"INSERT INTO `{database}`.`b.c` VALUES (1)")
    prefix = f"{properties['topic.prefix']}.{database}"
    first = pipeline.snapshot()
    assert first.counts == {f"{prefix}.all": 3}
    assert first.tally is not None and first.tally.tables == {f"{database}.a": 2, f"{database}.b%2Ec": 1}

    execute(root, f"INSERT INTO `{database}`.a VALUES (3)")
    assert worth_planning(pipeline.cfg, pipeline.store, pipeline.owner)
    job = pipeline.prepare("drain")
    spec = replace(job.spec, run_for_s=4.0, run="this")
    thread = threading.Thread(target=run_drain, args=(spec, ThreadRunner(1), pipeline.log))
    thread.start()
    try:
        moved = [until(lambda: follow(pipeline.cfg, pipeline.store, pipeline.log))]
        execute(root, f"INSERT INTO `{database}`.`b.c` VALUES (4), (5)")
        moved.append(until(lambda: follow(pipeline.cfg, pipeline.store, pipeline.log)))
    finally:
        thread.join()
    assert moved[0].pos != moved[1].pos
    outcome = pipeline.settle()
    tally = outcome.tally
    assert outcome.complete and tally is not None and tally == tally_of(pipeline.cfg, "this")
    assert tally.batches >= 2 and tally.start == job.plan.start
    assert tally.tables == {f"{database}.a": 1, f"{database}.b%2Ec": 2}
    assert outcome.counts[f"{prefix}.all"] == 3
