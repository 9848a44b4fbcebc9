"""A full description after many statements bounds what a start reads of the schema history."""

from __future__ import annotations

from typing import Any

import pytest
from kit.incremental_rig import ask_for, check_exact, reads
from kit.records import payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.operate.schema_history import TrimResult, trim_history
from airflow_provider_mysql_cdc.cdc.schema import history_record
from airflow_provider_mysql_cdc.cdc.schema.history import read_history
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import first_offsets

FLAT = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "schema.history.description.statements": "4",
    "snapshot.locking.mode": "none",
    "schema.history.internal.store.only.captured.tables.ddl": "true",
    "cdc.id.header": "true",
    "incremental.snapshot.chunk.size": "1",
}


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    made = Pipeline(properties | FLAT)
    assert rows(root, "SELECT @@GLOBAL.binlog_row_metadata")[0][0] == "MINIMAL"
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, a INT, b INT, KEY (a))")
    made.snapshot()
    return made


def swap(conn: Any, db: str) -> None:
    """Swap two names: without names in the binlog nothing but the history tells which column is which."""
    execute(conn, f"ALTER TABLE `{db}`.t RENAME COLUMN a TO b, RENAME COLUMN b TO a")


def insert(conn: Any, db: str, *ids: int) -> None:
    execute(conn, *(f"INSERT INTO `{db}`.t (id, a, b) VALUES ({i}, {i * 10}, {i * 100})" for i in ids))


def right(*ids: int) -> list[dict[str, int]]:
    return [{"id": i, "a": i * 10, "b": i * 100} for i in ids]


def afters(pipeline: Pipeline) -> list[dict[str, int]]:
    return [payload(r.value)["after"] for r in pipeline.records("t") if r.value is not None]


def descriptions(pipeline: Pipeline) -> list[HistoryRecord]:
    return [found for found in read_history(pipeline.cfg) if found.continues_history]


def swaps_and_rows(pipeline: Pipeline, root: Any, database: str, *ids: int) -> None:
    for i in ids:
        swap(root, database)
        insert(root, database, i)
    pipeline.drain()


class Counts:
    """How many history records are read, and how many statements are applied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = self.statements = 0
        read, apply = HistoryRecord.from_bytes, history_record.apply_ddl

        def count_record(data: bytes, where: str = "") -> HistoryRecord:
            self.records += 1
            return read(data, where)

        def count_statement(*arguments: Any) -> Any:
            self.statements += 1
            return apply(*arguments)

        monkeypatch.setattr(HistoryRecord, "from_bytes", count_record)
        monkeypatch.setattr(history_record, "apply_ddl", count_statement)


@pytest.mark.req("SCH-03")
def test_a_description_after_many_statements_is_where_later_starts_begin(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    swaps_and_rows(pipeline, root, database, 1, 2, 3)
    assert descriptions(pipeline) == []
    swaps_and_rows(pipeline, root, database, 4, 5)
    (written,) = descriptions(pipeline)
    assert written.part is not None
    swaps_and_rows(pipeline, root, database, 6)
    assert len(descriptions(pipeline)) == 1
    counts = Counts(monkeypatch)
    insert(root, database, 7)
    pipeline.drain()
    assert counts.statements == 1
    assert afters(pipeline) == right(1, 2, 3, 4, 5, 6, 7)
    swaps_and_rows(pipeline, root, database, 8, 9, 10, 11)
    assert len(descriptions(pipeline)) == 2


def test_the_offset_moves_back_before_a_description(pipeline: Pipeline, root: Any, database: str) -> None:
    swaps_and_rows(pipeline, root, database, 1)
    stored = pipeline.store.load()
    assert stored is not None and stored.committed is not None
    swaps_and_rows(pipeline, root, database, 2, 3, 4, 5)
    assert len(descriptions(pipeline)) == 1
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=str(stored.committed))
    pipeline.drain()
    assert afters(pipeline) == right(1, 2, 3, 4, 5, 2, 3, 4, 5)
    swaps_and_rows(pipeline, root, database, 6)
    assert afters(pipeline)[-1:] == right(6)


def test_a_scan_continues_after_a_description(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, f"CREATE TABLE `{database}`.other (id INT PRIMARY KEY)")
    insert(root, database, *range(1, 60))
    pipeline.drain()
    ask_for(pipeline, ["t"])
    for n in range(5):
        execute(root, f"ALTER TABLE `{database}`.other COMMENT '{n}'")
    pipeline.drain()
    pipeline.drain()
    assert len(descriptions(pipeline)) == 1
    assert set(reads(pipeline, "t").values()) == {1}
    check_exact(pipeline, root, "t")


def first_offset(pipeline: Pipeline) -> int:
    return first_offsets(make_admin(pipeline.cfg.kafka_settings()), pipeline.cfg.history_topic, [0])[0]


def trim(pipeline: Pipeline, **more: Any) -> TrimResult:
    return trim_history(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, **more)


def test_a_trimmed_history_is_enough_for_everything_stored(pipeline: Pipeline, root: Any, database: str) -> None:
    swaps_and_rows(pipeline, root, database, 1)
    earlier = pipeline.store.load()
    assert earlier is not None and earlier.committed is not None
    swaps_and_rows(pipeline, root, database, 2, 3, 4, 5, 6)
    with pytest.raises(SchemaError, match=r"beginning of the source's binlog.*--only-stored"):
        trim(pipeline)
    # The last batch began before the description.
    assert trim(pipeline, only_stored=True).kept == 0
    insert(root, database, 7)
    pipeline.drain()
    planned = trim(pipeline, dry_run=True, only_stored=True)
    assert planned.kept > planned.first == 0 == first_offset(pipeline)
    result = trim(pipeline, only_stored=True)
    assert first_offset(pipeline) == result.kept > 0
    assert trim(pipeline, only_stored=True).first == result.kept
    swaps_and_rows(pipeline, root, database, 8)
    assert afters(pipeline) == right(1, 2, 3, 4, 5, 6, 7, 8)
    # Positions before it are read from the server, or refused because the table was changed after them.
    with pytest.raises(SchemaError, match="table structures at this position are not known"):
        reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=str(earlier.committed))
    insert(root, database, 9)
    pipeline.drain()
    assert afters(pipeline) == right(*range(1, 10))
