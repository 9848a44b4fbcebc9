"""One transaction of a million rows: flat memory, and exactly once over a kill in its middle."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.submit import start_process
from pipelinelib.topics import delete_topics

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import read_topic_committed

SMALL, BIG = 100_000, 1_000_000
PEAK_MB, GROWTH_MB = 600, 100


@pytest.fixture
def pipeline(properties: dict[str, str]) -> Any:
    made = Pipeline(
        properties
        | {
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "extended.headers.enabled": "false",
        }
    )
    yield made
    # Hundreds of megabytes that nobody needs any more.
    delete_topics(made.cfg.kafka_settings(), *made.topics())


def insert(root: Any, database: str, first: int, count: int) -> None:
    """Insert rows with consecutive ids in one transaction; the count is a power of ten."""
    places = range(len(str(count)) - 1)
    digits = " CROSS JOIN ".join(f"`{database}`.digits AS d{i}" for i in places)
    number = " + ".join(f"d{i}.d * {10**i}" for i in places)
    execute(root, f"INSERT INTO `{database}`.big SELECT {first} + {number}, 7 FROM {digits}")


def run(pipeline: Pipeline, tmp_path: Path, fault: dict[str, Any] | None = None) -> tuple[int, float]:
    """Prepare and run a drain in a process of its own; return its exit code and its peak of memory in MB."""
    child = start_process(pipeline.prepare("drain").spec, tmp_path, fault=fault)
    peak = 0.0
    while child.poll() is None:
        # The high-water mark only grows, so the last look before the end is the peak.
        status = Path(f"/proc/{child.pid}/status").read_text()
        marks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
        peak = max([peak, *(int(m) / 1024 for m in marks)])
        time.sleep(0.05)
    assert child.returncode in (0, -9), child.communicate()[0][-3000:]
    return child.returncode, peak


@pytest.mark.fault
@pytest.mark.req("STRM-01")
@pytest.mark.exhaustive
def test_a_million_rows_in_one_transaction(pipeline: Pipeline, root: Any, database: str, tmp_path: Path) -> None:
    execute(
        root,
        f"CREATE TABLE `{database}`.digits (d INT PRIMARY KEY)",
        f"INSERT INTO `{database}`.digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
        f"CREATE TABLE `{database}`.big (id INT PRIMARY KEY, v INT)",
    )
    pipeline.properties["table.include.list"] = f"{database}.big"
    pipeline.snapshot()

    insert(root, database, 1, SMALL)
    code, small_peak = run(pipeline, tmp_path)
    assert code == 0 and pipeline.settle().complete

    insert(root, database, SMALL + 1, BIG)
    assert rows(root, f"SELECT COUNT(*) FROM `{database}`.big")[0][0] == SMALL + BIG
    fired = tmp_path / "fired"
    fault = {"point": "writer.after_commit", "action": "kill-self", "nth": 4, "fired": str(fired)}
    code, killed_peak = run(pipeline, tmp_path, fault)
    assert fired.exists() and code == -9
    assert not pipeline.settle().complete
    state = kafka_clients.ledger(pipeline.cfg).read()
    assert state is not None and state.plan is not None
    marker = state.marker(0, state.plan.epoch)
    assert marker is not None and marker.reached.events > 0, "the kill was not inside the transaction"
    assert 0 < marker.counts[pipeline.table_topic("big")] < BIG

    code, big_peak = run(pipeline, tmp_path)
    assert code == 0 and pipeline.settle().complete
    print(f"peak: {small_peak:.0f} MB, killed {killed_peak:.0f} MB, retry {big_peak:.0f} MB")
    for peak in (killed_peak, big_peak):
        assert peak < PEAK_MB and peak - small_peak < GROWTH_MB

    seen = bytearray(SMALL + BIG + 1)
    last = 0
    for record in read_topic_committed(pipeline.cfg.kafka_settings(), pipeline.table_topic("big")):
        number = int((record.key or b"")[6:-1])  # {"id":7}
        assert not seen[number], f"row {number} came twice"
        seen[number], last = 1, last + 1
    assert last == sum(seen) == SMALL + BIG
