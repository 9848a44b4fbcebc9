"""A snapshot of many tables: how large the ledger's records become, and what it costs."""

from __future__ import annotations

from typing import Any

from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.sink.topic_reader import read_topic
from benchlib.ours import ProviderIncrementalSnapshot
from benchlib.process_tree import usage
from benchlib.source import DATABASE, MySqlSource

ROWS = 100
_DIGITS = "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 "
_DIGITS += "UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"


def load(source: MySqlSource, tables: int) -> None:
    """Make the tables, each with ``ROWS`` rows.

    Args:
        source: The server.
        tables: Their number.
    """
    rows = f"SELECT a.d * 10 + b.d, 'text' FROM {_DIGITS} a, {_DIGITS} b"
    for n in range(tables):
        name = f"{DATABASE}.table_with_a_name_of_usual_length_{n:05d}"
        source.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(20))", f"INSERT INTO {name} {rows}")


def measure(pipeline: Pipeline, cores: int) -> dict[str, Any]:
    """Ask for all tables by one signal, and return what came of it.

    Args:
        pipeline: The stream.
        cores: Spark's ``local[N]``.
    """
    pipeline.snapshot()
    ours = ProviderIncrementalSnapshot(pipeline, cores)
    ours.run([rf"{DATABASE}\.table_.*"])
    used = usage(ours.samples)
    assert ours.status is not None
    tables = ours.status.tables
    largest = {topic: _largest(pipeline, topic) for topic in (pipeline.cfg.ledger_topic, _notes(pipeline))}
    return {
        "tables": len(tables),
        "rows": sum(table.rows for table in tables.values()),
        "jobs": ours.jobs,
        "wall_s": round(used.wall_s, 1),
        "cpu_s": round(used.cpu_s + ours.beside_s, 1),
        "peak_mb": {kind: round(mb) for kind, mb in used.peak_mb.items()},
        "quarters_mb": {kind: [round(mb) for mb in four] for kind, four in used.quarters_mb.items()},
        "largest_record_bytes": largest,
    }


def _notes(pipeline: Pipeline) -> str:
    return str(pipeline.properties["notification.sink.topic.name"])


def _largest(pipeline: Pipeline, topic: str) -> dict[str, Any]:
    """Return the largest record of a topic, and how many it has."""
    records = read_topic(pipeline.cfg.kafka_settings(), topic, timeout_s=60)
    sizes = [(len(r.key or b"") + len(r.value or b""), (r.key or b"").decode()) for r in records]
    largest, key = max(sizes)
    return {"records": len(sizes), "bytes": largest, "key": key}
