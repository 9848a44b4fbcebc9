"""The stored offset goes from one store to another and back: nothing is lost, nothing comes twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from kit.records import payload
from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import MemoryOffsetStore
from pipelinelib.topics import delete_topics

from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
from airflow_provider_mysql_cdc.cdc.errors import (
    ConfigError,
    LedgerMismatchError,
    LedgerMissingError,
    RunInProgressError,
    StateError,
)
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.operate.stored_offset import (
    export_document,
    import_offsets,
    past_offsets,
    read_document,
)
from airflow_provider_mysql_cdc.commands.program import main


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    made = Pipeline(
        properties | {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"},
    )
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1)")
    made.snapshot()
    return made


@pytest.fixture
def database_store(tmp_path: Path, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> SqlOffsetStore:
    url = f"sqlite:///{tmp_path}/offsets.db"
    monkeypatch.setenv("MYSQL_CDC_OFFSET_URL", url)
    return SqlOffsetStore(sa.create_engine(url), properties["topic.prefix"])


def written(store: OffsetStore, pipeline: Pipeline) -> Any:
    """Return a document that went through a file."""
    return json.loads(json.dumps(export_document(store, pipeline.cfg.topic_prefix)))


def carry(pipeline: Pipeline, data: Any, store: OffsetStore, **more: Any) -> StoredState:
    return import_offsets(pipeline.cfg, store, read_document(data), "person/1/import/-1", pipeline.log, **more)


def ids(pipeline: Pipeline) -> list[int]:
    return [payload(r.value)["after"]["id"] for r in pipeline.records("t")]


def insert(root: Any, database: str, *values: int) -> None:
    execute(root, *(f"INSERT INTO `{database}`.t VALUES ({v})" for v in values))


def test_there_and_back_with_an_old_copy_and_a_batch_that_was_interrupted(
    pipeline: Pipeline, root: Any, database: str, database_store: SqlOffsetStore
) -> None:
    first = pipeline.store
    insert(root, database, 2)
    pipeline.drain()
    old = written(first, pipeline)

    carry(pipeline, old, database_store)
    assert past_offsets(database_store) == past_offsets(first)
    pipeline.store = database_store
    insert(root, database, 3)
    pipeline.drain()
    insert(root, database, 4)
    pipeline.prepare("drain")  # its plan is stored and in nobody's hands

    back = MemoryOffsetStore()
    carry(pipeline, written(database_store, pipeline), back)
    pipeline.store = back
    pipeline.drain()
    assert ids(pipeline) == [1, 2, 3, 4]

    # An old copy is not believed: the ledger knows what came after it.
    late = MemoryOffsetStore()
    assert carry(pipeline, old, late).committed == back.load().committed  # type: ignore[union-attr]
    pipeline.store = late
    insert(root, database, 5)
    pipeline.drain()
    # Whoever kept the first store goes on as well, behind the ledger.
    pipeline.store = first
    insert(root, database, 6)
    pipeline.drain()
    assert ids(pipeline) == [1, 2, 3, 4, 5, 6]


@pytest.mark.exhaustive
def test_what_is_refused_leaves_the_store_as_it_was(
    pipeline: Pipeline, root: Any, database: str, database_store: SqlOffsetStore
) -> None:
    data = written(pipeline.store, pipeline)
    with pytest.raises(ConfigError, match="of another stream"):
        carry(pipeline, {**data, "topic.prefix": "another"}, database_store)
    with (
        run_lock.hold_run_lock(pipeline.cfg.connection_settings(), pipeline.cfg.topic_prefix, "dag/run/drain/-1"),
        pytest.raises(RunInProgressError),
    ):
        carry(pipeline, data, database_store)
    ahead = json.loads(json.dumps(data))
    ahead["state"]["epoch"] += 5
    with pytest.raises(LedgerMismatchError, match="ahead of the ledger"):
        carry(pipeline, ahead, database_store)
    assert database_store.load() is None

    stored = carry(pipeline, data, database_store)
    with pytest.raises(StateError, match="already has an offset"):
        carry(pipeline, data, database_store)
    assert database_store.load() == stored
    assert carry(pipeline, data, database_store, replace=True).revision == stored.revision + 1

    delete_topics(pipeline.cfg.kafka_settings(), pipeline.cfg.ledger_topic)
    empty = MemoryOffsetStore()
    with pytest.raises(LedgerMissingError):
        carry(pipeline, data, empty)
    assert empty.load() is None, "without a ledger nobody knows what stands in Kafka behind the document's offset"


def test_the_command_moves_the_offset_as_the_reset_does(
    pipeline: Pipeline,
    root: Any,
    database: str,
    database_store: SqlOffsetStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / "properties.json"
    place.write_text(json.dumps(pipeline.properties))
    (tmp_path / "offsets.json").write_text(json.dumps(written(pipeline.store, pipeline)))
    where = ["--properties", str(place), "--confirm", pipeline.cfg.topic_prefix]
    assert main(["offsets", "import", str(tmp_path / "offsets.json"), *where]) == 0
    insert(root, database, 2)
    assert main(["offsets", "set", "binlog.999999:4", *where]) == 1
    assert main(["offsets", "set", "current", *where]) == 0
    told = capsys.readouterr()
    state = database_store.load()
    assert state is not None and told.out.splitlines()[-1] == str(state.committed)
    pipeline.store = database_store
    insert(root, database, 3)
    pipeline.drain()
    assert ids(pipeline) == [1, 3]
