"""A registry refuses the schema of one table: what other tables changed before is committed, and each way out works."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from kit.avro_rig import Readers, avro
from kit.records import duplicates
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.drain import drain_driver
from airflow_provider_mysql_cdc.cdc.drain.batch_writers import shorten_batch
from airflow_provider_mysql_cdc.cdc.errors import IncompatibleSchemaError, SchemaError, StateError

FORMATS = ("avro", "ticdc")
RULES = json.dumps([{"matcher": ["*.*"], "topic": "refused_{schema}_{table}", "partition": "index-value"}])


@dataclass
class Refusing:
    """Tables t and u whose subjects have the compatibility level BACKWARD, in one of the two formats."""

    job: Pipeline
    readers: Readers
    root: Any
    database: str
    ticdc: bool

    def topic(self, table: str) -> str:
        return f"refused_{self.database}_{table}" if self.ticdc else self.job.table_topic(table)

    def subject(self, table: str = "t") -> str:
        return f"{self.topic(table)}-value"

    def execute(self, *statements: str) -> None:
        execute(self.root, f"USE `{self.database}`", *statements)

    def level(self, level: str, table: str = "t") -> None:
        self.readers.client.set_compatibility(subject_name=self.subject(table), level=level)

    def rows(self, table: str) -> list[dict[str, Any]]:
        topic = self.topic(table)
        records = [r for r in self.job.read(topic) if r.value]
        assert duplicates(records) == []
        values = [self.readers.read(topic, r.value) for r in records]
        return values if self.ticdc else [v["after"] for v in values]

    def ids(self, table: str) -> list[int]:
        return [row["id"] for row in self.rows(table)]

    def committed(self) -> tuple[str, int]:
        state = self.job.store.load()
        assert state is not None and state.committed is not None
        return state.committed.file, state.committed.pos

    def end(self) -> tuple[str, int]:
        (status,) = rows(self.root, "SHOW BINARY LOG STATUS")
        return str(status[0]), int(status[1])

    def refused(self, kind: type[Exception] = IncompatibleSchemaError) -> Any:
        with pytest.raises(kind) as found:
            self.job.drain()
        self.job.settle()
        return found.value


@pytest.fixture(params=FORMATS)
def refusing(
    request: pytest.FixtureRequest, properties: dict[str, str], registry: str, root: Any, database: str
) -> Refusing:
    ticdc = request.param == "ticdc"
    flat = {"value.format": "ticdc-avro", "schema-registry": registry, "dispatchers": RULES}
    job = Pipeline(properties | {"cdc.id.header": "true"} | (flat if ticdc else avro(registry)))
    made = Refusing(job, Readers(registry), root, database, ticdc)
    made.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    made.execute("INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (1)")
    job.snapshot()
    made.level("BACKWARD")
    return made


@pytest.mark.req("FAULT-28")
@pytest.mark.exhaustive(but="avro")
def test_what_stands_before_a_refused_schema_is_committed_and_the_offset_moves_there(refusing: Refusing) -> None:
    refusing.execute("INSERT INTO u VALUES (2)", "INSERT INTO t VALUES (2)", "ALTER TABLE t ADD b INT NOT NULL")
    low = refusing.end()
    # One transaction around the refused record: the batch ends before all of it.
    refusing.execute("BEGIN", "INSERT INTO u VALUES (3)", "INSERT INTO t VALUES (3, 3)", "COMMIT")
    high = refusing.end()
    refusing.execute("INSERT INTO u VALUES (4)")
    error = refusing.refused()
    assert f"table {refusing.database}.t, subject {refusing.subject()}" in error.where
    # Other tests may write to the server as well.
    boundary = refusing.committed()
    assert low <= boundary < high and (refusing.ids("u"), refusing.ids("t")) == ([1, 2], [1, 2])
    state = refusing.job.store.load()
    assert state is not None and state.pending is None
    again = refusing.refused()
    assert (type(again), again.what) == (type(error), error.what)
    assert (refusing.committed(), refusing.ids("t")) == (boundary, [1, 2])
    refusing.level("NONE")
    assert refusing.job.drain() is not None
    assert (refusing.ids("u"), refusing.ids("t")) == ([1, 2, 3, 4], [1, 2, 3])


@pytest.mark.exhaustive(but="ticdc")
def test_a_transaction_that_is_committed_in_part_keeps_what_stands_before_the_refused_record(
    refusing: Refusing,
) -> None:
    refusing.job.properties |= {"commit.bytes": "1024"}
    refusing.execute("INSERT INTO u VALUES (2)", "ALTER TABLE t ADD b INT NOT NULL")
    before = refusing.committed()
    many = ",".join(f"({n})" for n in range(3, 3000))
    # The row that follows many is not enough for a commit of its own.
    inserts = (f"INSERT INTO u VALUES {many}", "INSERT INTO u VALUES (3000)", "INSERT INTO t VALUES (2, 2)")
    refusing.execute("BEGIN", *inserts, "COMMIT", "INSERT INTO u VALUES (3001)")
    refusing.refused()
    assert (refusing.committed(), refusing.ids("u")) == (before, list(range(1, 3001)))
    refusing.refused()
    assert refusing.ids("u") == list(range(1, 3001))
    refusing.level("NONE")
    assert refusing.job.drain() is not None
    assert (refusing.ids("u"), refusing.ids("t")) == (list(range(1, 3002)), [1, 2])


@pytest.mark.exhaustive(but="avro")
def test_a_driver_that_dies_after_it_has_shortened_the_batch_leaves_the_rest_to_the_next_one(
    refusing: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing.execute("INSERT INTO u VALUES (2)", "ALTER TABLE t ADD b INT NOT NULL", "INSERT INTO t VALUES (2, 2)")
    shortened = []

    def die(*args: Any) -> Any:
        shortened.append(shorten_batch(*args))
        raise StateError("the driver is gone", retriable=True)

    with monkeypatch.context() as patch:
        patch.setattr(drain_driver, "shorten_batch", die)
        with pytest.raises(StateError, match="is gone"):
            refusing.job.drain()
    assert [done for _, done in shortened] == [True]
    outcome = refusing.job.drain()
    assert outcome is not None and outcome.complete and refusing.ids("u") == [1, 2]
    assert any("ended earlier, before a schema that was refused" in line for line in refusing.job.lines)
    refusing.refused()
    refusing.level("NONE")
    assert refusing.job.drain() is not None
    assert (refusing.ids("u"), refusing.ids("t")) == ([1, 2], [1, 2])


@pytest.mark.exhaustive(but="ticdc")
def test_writers_that_are_further_finish_and_the_one_that_is_refused_commits_what_it_has(refusing: Refusing) -> None:
    refusing.job.properties |= {"drain.writers": "3", "drain.small.batch.bytes": "0"}
    names = [f"u{n}" for n in range(6)]
    refusing.execute(*(f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in names))
    refusing.execute(*(f"INSERT INTO {name} VALUES (1)" for name in names), "INSERT INTO t VALUES (2)")
    refusing.execute("ALTER TABLE t ADD b INT NOT NULL", "INSERT INTO t VALUES (3, 3)")
    refusing.execute(*(f"INSERT INTO {name} VALUES (2)" for name in names))
    refusing.refused()
    assert refusing.ids("t") == [1, 2] and all(refusing.ids(name)[:1] == [1] for name in names)
    refusing.level("NONE")
    assert refusing.job.drain() is not None
    assert refusing.ids("t") == [1, 2, 3] and all(refusing.ids(name) == [1, 2] for name in names)


CHANGES = {
    "a new column": ("ALTER TABLE t ADD b INT NOT NULL", "INSERT INTO t VALUES (3, 1, 3)"),
    "another type": ("ALTER TABLE t MODIFY a VARCHAR(10) NOT NULL", "INSERT INTO t VALUES (3, 'x')"),
}
UNDONE = {"a new column": "ALTER TABLE t ALTER b SET DEFAULT 0", "another type": "ALTER TABLE t MODIFY a TEXT"}
COLUMNS = {"a new column": "b", "another type": "a"}


def relax(refusing: Refusing, change: str) -> None:
    refusing.level("NONE")


def delete_the_subject(refusing: Refusing, change: str) -> None:
    refusing.readers.client.delete_subject(refusing.subject())


def leave_the_column_out(refusing: Refusing, change: str) -> None:
    refusing.job.properties |= {"column.exclude.list": f"{refusing.database}.t.{COLUMNS[change]}"}


WAYS_OUT: dict[str, Callable[[Refusing, str], None]] = {
    "PUT /config/": relax,
    "DELETE /subjects/": delete_the_subject,
    "column.exclude.list": leave_the_column_out,
}


@pytest.mark.exhaustive(but="avro-PUT")
@pytest.mark.parametrize("change", list(CHANGES))
@pytest.mark.parametrize("named", list(WAYS_OUT))
@pytest.mark.halves
def test_each_way_out_that_the_error_names_lets_the_stream_go_on(refusing: Refusing, named: str, change: str) -> None:
    refusing.level("NONE")
    refusing.execute("ALTER TABLE t ADD a INT NOT NULL DEFAULT 1", "INSERT INTO t (id) VALUES (2)")
    assert refusing.job.drain() is not None
    refusing.level("BACKWARD")
    refusing.execute(*CHANGES[change])
    refusing.execute("INSERT INTO u VALUES (2)")
    error = refusing.refused()
    assert named in error.remedy
    # What the error says of the table: a row stands under the refused version, whatever the table becomes.
    refusing.execute(UNDONE[change])
    refusing.refused()
    WAYS_OUT[named](refusing, change)
    assert refusing.job.drain() is not None
    assert (refusing.ids("t"), refusing.ids("u")) == ([1, 2, 3], [1, 2])
    column = COLUMNS[change]
    written = refusing.rows("t")[-1].get(column)
    assert written == (None if named == "column.exclude.list" else {"a": "x", "b": 3}[column])
    level = refusing.readers.client.get_compatibility(subject_name=refusing.subject())
    assert level == ("NONE" if named == "PUT /config/" else "BACKWARD")


@pytest.mark.exhaustive(but="ticdc")
def test_the_column_comes_back_once_readers_can_read_it(refusing: Refusing) -> None:
    refusing.execute("ALTER TABLE t ADD b INT NOT NULL", "INSERT INTO t VALUES (2, 2)")
    refusing.refused()
    leave_the_column_out(refusing, "a new column")
    refusing.execute("ALTER TABLE t MODIFY b INT", "INSERT INTO t VALUES (3, 3)")
    assert refusing.job.drain() is not None
    del refusing.job.properties["column.exclude.list"]
    refusing.execute("INSERT INTO t VALUES (4, 4)")
    assert refusing.job.drain() is not None
    assert [row.get("b") for row in refusing.rows("t")] == [None, None, None, 4]


@pytest.mark.exhaustive(but="avro")
def test_names_that_become_equal_or_are_not_allowed_are_left_out_or_adjusted(refusing: Refusing) -> None:
    refusing.execute("INSERT INTO u VALUES (2)", "ALTER TABLE t ADD `a-b` INT, ADD a_b INT")
    refusing.execute("INSERT INTO t VALUES (2, 2, 2)", "INSERT INTO u VALUES (3)")
    error = refusing.refused(SchemaError)
    assert refusing.ids("u") == [1, 2]
    # Renaming one does not help: a row stands under both names.
    refusing.execute("ALTER TABLE t RENAME COLUMN `a-b` TO c")
    refusing.refused(SchemaError)
    if not refusing.ticdc:
        assert "field.name.adjustment.mode" in error.remedy
        refusing.job.properties |= {f"{n}.name.adjustment.mode": "avro" for n in ("schema", "field")}
        error = refusing.refused(SchemaError)
    assert "column.exclude.list" in error.remedy
    refusing.job.properties |= {"column.exclude.list": f"{refusing.database}.t.a-b"}
    assert refusing.job.drain() is not None
    assert (refusing.ids("t"), refusing.ids("u")) == ([1, 2], [1, 2, 3])
