"""A stream goes on from a Debezium connector that stopped anywhere: nothing is lost, and nothing comes twice.

The topics are those of a stream that wrote everything, cut off where a connector could have stopped.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from confluent_kafka import Producer
from kit.cases import case
from kit.chain_rig import CONNECT, DEBEZIUM, transforms
from kit.doc_blocks import blocks
from kit.records import payload
from kit.sql import execute, rows
from kit.tiers import many
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.debezium import stopped
from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import DebeziumOffset, offset_key
from airflow_provider_mysql_cdc.cdc.debezium.import_connector import (
    ConnectorState,
    Takeover,
    plan_takeover,
    take_over,
)
from airflow_provider_mysql_cdc.cdc.debezium.sources import ConnectorStatement, signals_read, write_signals_read
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SchemaError, StateError
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics
from airflow_provider_mysql_cdc.commands import debezium as commands
from airflow_provider_mysql_cdc.commands.program import main

SETTINGS = {
    "topic.creation.default.partitions": "3",
    "provide.transaction.metadata": "true",
    "snapshot.mode": "no_data",
    "drain.writers": "2",
    "drain.small.batch.bytes": "0",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}
CHARSET = "SET character_set_server=utf8mb4, collation_server=utf8mb4_0900_ai_ci"
CREATE = ("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
CHANGES = (
    ("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",),
    (
        "INSERT INTO t VALUES " + ", ".join(f"({n}, {n})" for n in range(10, 40)),
        "INSERT INTO u VALUES (1), (2), (3), (4), (5)",
        "UPDATE t SET id = id + 100 WHERE id < 20",
        "DELETE FROM t WHERE id BETWEEN 20 AND 29",
    ),
    ("ALTER TABLE t ADD c INT",),
    ("INSERT INTO t VALUES " + ", ".join(f"({n}, {n}, {n})" for n in range(40, 60)), "DELETE FROM u WHERE id = 1"),
)

Place = tuple[int, int, int]
"""Position of a record's event, its row, and its number among the records of the row in its partition."""


@dataclass(frozen=True)
class Written:
    """What a connector would have written: each partition's records, with their places; and the binlog's events."""

    partitions: dict[tuple[str, int], list[tuple[Place, TopicRecord]]]
    events: list[tuple[str, int, str]]
    gtids: list[str]
    end: tuple[str, int]

    def transaction(self, number: int) -> list[tuple[str, int, str]]:
        """Return the events of a transaction, its GTID event first."""
        begins = [i for i, (kind, _, _) in enumerate(self.events) if kind == "Gtid"]
        return self.events[begins[number] : [*begins, len(self.events)][number + 1]]

    def offset_inside(self, number: int, row_event: int, row: int) -> tuple[DebeziumOffset, Place]:
        """Return the offset of a connector that has written some rows of a row event, and the place behind them."""
        transaction = self.transaction(number)
        rows_at = [i for i, (kind, _, _) in enumerate(transaction) if "_rows" in kind and "Rows_query" not in kind]
        at = rows_at[row_event]
        offset = DebeziumOffset(self.end[0], transaction[1][1], self.gtids[number], at - 1, row)
        return offset, (transaction[at][1], row, 0)


def places(records: list[TopicRecord]) -> list[Place]:
    """Return the place of each record of a partition; a tombstone stands with the delete before it."""
    found: list[Place] = []
    for record in records:
        value = payload(record.value)
        if value is None:
            pos, row, number = found[-1]
            found.append((pos, row, number + 1))
        elif "status" in value:
            found.append((0, 0, 0))
        else:
            source = value["source"]
            found.append((source["pos"], source.get("row") or 0, 0))
    return found


def comparable(record: TopicRecord) -> Any:
    """Return a record without its times and its prefix."""

    def strip(value: Any) -> Any:
        if isinstance(value, list):
            return [strip(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {k: strip(v) for k, v in value.items() if k not in ("ts_ms", "ts_us", "ts_ns", "name")}

    return record.key, strip(payload(record.value))


@pytest.fixture
def written(properties: dict[str, str], root: Any, database: str) -> Written:
    pipeline = Pipeline(properties | SETTINGS | {"topic.prefix": f"{database}.o"})
    execute(root, f"USE `{database}`", *CREATE)
    pipeline.snapshot()
    gtids = []
    start = rows(root, "SHOW BINARY LOG STATUS")[0][:2]
    for statements in CHANGES:
        gtids.append(rows(root, "SELECT @@gtid_executed")[0][0].replace("\n", ""))
        execute(root, "BEGIN", *statements, "COMMIT")
    end = rows(root, "SHOW BINARY LOG STATUS")[0][:2]
    assert start[0] == end[0]
    shown = rows(root, f"SHOW BINLOG EVENTS IN '{end[0]}' FROM {start[1]}")
    events = [(kind, pos, info) for _, pos, kind, _, _, info in shown]
    pipeline.drain()
    partitions: dict[tuple[str, int], list[tuple[Place, TopicRecord]]] = {}
    for topic in [*pipeline.topics(), f"{database}.o"]:
        by_partition: dict[int, list[TopicRecord]] = {n: [] for n in range(3)}
        for record in pipeline.read(topic):
            by_partition[record.partition].append(record)
        name = topic.removeprefix(f"{database}.o")
        partitions |= {(name, p): list(zip(places(of), of, strict=True)) for p, of in by_partition.items()}
    return Written(partitions, events, gtids, end)


Keep = Callable[[str, int, Place, TopicRecord], bool]


def goes_on(
    properties: dict[str, str],
    prefix: str,
    written: Written,
    offset: DebeziumOffset,
    keep: Keep,
    history: list[ConnectorStatement] | None = None,
    *,
    by_offset_alone: bool = False,
) -> None:
    """Cut the topics off, take the stream over, drain it, and compare with what was written without a stop."""
    own = {"topic.prefix": prefix, "schema.history.internal.kafka.topic": f"{prefix}.own-history"}
    pipeline = Pipeline(properties | SETTINGS | own)
    settings = pipeline.cfg.kafka_settings()
    counts = {name: max(p for n, p in written.partitions if n == name) + 1 for name, _ in written.partitions}
    side = ("", ".transaction")
    ensure_topics(make_admin(settings), {prefix + n: TopicSpec(1 if n in side else c, 1) for n, c in counts.items()})
    producer = Producer({"bootstrap.servers": properties["kafka.bootstrap.servers"]})
    for (name, partition), records in written.partitions.items():
        for place, record in records:
            if keep(name, partition, place, record):
                producer.produce(prefix + name, record.value, record.key, partition)
    assert producer.flush(30) == 0

    def plan(cfg: ConnectorConfig) -> Takeover:
        planned = plan_takeover(cfg, ConnectorState(offset, history), pipeline.log)
        if not by_offset_alone:
            return planned
        ends = {topic: of for topic, of in planned.taken.ends.items() if topic.removeprefix(prefix) in side}
        return replace(planned, taken=replace(planned.taken, ends=ends))

    take_over(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, plan)
    pipeline.drain()
    for (name, partition), records in written.partitions.items():
        own = {r.key for _, r in records}  # DROP DATABASE of a test that ends meanwhile is a schema change, too
        read = [r for r in pipeline.read(prefix + name) if r.partition == partition and (name or r.key in own)]
        expected = [comparable(r) for _, r in records]
        assert [comparable(r) for r in read] == expected, (name, partition, pipeline.lines)


def statement_history(database: str) -> list[ConnectorStatement]:
    return [
        ConnectorStatement(db, ddl, "b.000001", 4, None, in_snapshot=False, where="")
        for db, ddl in (("", CHARSET), *((database, ddl) for ddl in CREATE))
    ]


@pytest.mark.req("FAULT-01", "TOPIC-05")
def test_a_stream_goes_on_from_wherever_a_connector_has_stopped(
    properties: dict[str, str], database: str, written: Written
) -> None:
    in_the_middle_of_a_transaction(properties, database, written)
    killed_with_records_behind_its_offset(properties, database, written)
    behind_transforms(properties, database, written)


def in_the_middle_of_a_transaction(properties: dict[str, str], database: str, written: Written) -> None:
    history = statement_history(database)
    inside = [(0, 7), (1, 5), (2, 3), (3, 4)]
    for number, (row_event, row) in enumerate(many(inside[::2], inside)):
        offset, cut = written.offset_inside(1, row_event, row)
        if number:  # as of another server, whose files this one does not have: the GTID set says where it is
            offset = replace(offset, file="elsewhere.000007")
        begin = written.transaction(1)[1][1]

        def keep(name: str, partition: int, place: Place, record: TopicRecord) -> bool:
            if name == ".transaction":
                gtid = written.transaction(1)[0][2].split("'")[1]
                value = payload(record.value)
                first = [r for _, r in written.partitions[name, 0]].index(record) < 2
                return first or (value["id"] == gtid and value["status"] == "BEGIN")
            return place[:2] < (begin, 0) if name == "" else place < cut  # noqa: B023

        with case(row_event, row):
            goes_on(properties, f"{database}.m{number}", written, offset, keep, history, by_offset_alone=not number)


def killed_with_records_behind_its_offset(properties: dict[str, str], database: str, written: Written) -> None:
    """A partition has a beginning of its records; which one differs from partition to partition."""
    history = statement_history(database)
    first_end = written.transaction(1)[0][1]
    offset = DebeziumOffset(written.end[0], first_end, written.gtids[1])
    for seed in many((1,), range(12)):
        draw = random.Random(seed)
        kept: dict[tuple[str, int], int] = {}
        for of, records in written.partitions.items():
            least = sum(place[0] < first_end for place, _ in records)
            least = min(2, len(records)) if of[0] == ".transaction" else least
            kept[of] = draw.randint(least, len(records))
        counted = dict.fromkeys(kept, 0)

        def keep(name: str, partition: int, place: Place, record: TopicRecord) -> bool:
            counted[name, partition] += 1  # noqa: B023
            return counted[name, partition] <= kept[name, partition]  # noqa: B023

        with case(seed, kept):
            goes_on(properties, f"{database}.k{seed}", written, offset, keep, history)


def behind_transforms(properties: dict[str, str], database: str, written: Written) -> None:
    """Only the offset says what is written.

    Rows have other topics there, and do not say where they come from.
    """
    chain = transforms(
        unwrap={"type": f"{DEBEZIUM}ExtractNewRecordState", "delete.tombstone.handling.mode": "rewrite-with-tombstone"},
        route={"type": f"{CONNECT}RegexRouter", "regex": r"(.*)\.t", "replacement": "$1.rows"},
    )
    prefix, history = f"{database}.c", statement_history(database)
    own = {"topic.prefix": prefix, "schema.history.internal.kafka.topic": f"{prefix}.own-history"}
    pipeline = Pipeline(properties | SETTINGS | own | chain)
    offset, cut = written.offset_inside(1, 2, 3)

    def go_on(*, trusts_offset: bool) -> None:
        state = ConnectorState(offset, history)
        plan = partial(plan_takeover, connector=state, log=pipeline.log, trusts_offset=trusts_offset)
        take_over(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, plan)

    with pytest.raises(StateError, match=r"behind its offset \[transforms\].*--trust-offset"):
        go_on(trusts_offset=False)
    assert pipeline.store.load() is None
    go_on(trusts_offset=True)
    pipeline.drain()
    for (name, partition), records in written.partitions.items():
        if name not in ("", ".transaction"):
            found = [r for r in pipeline.read(prefix + re.sub(r"\.t$", ".rows", name)) if r.partition == partition]
            rest = [(r.key, payload(r.value)) for place, r in records if place >= cut]
            expected = [(key, value and (value["after"] or value["before"])) for key, value in rest]
            images = [(r.key, payload(r.value)) for r in found]
            assert [
                (key, row and {n: v for n, v in row.items() if n != "__deleted"}) for key, row in images
            ] == expected


def test_what_cannot_be_taken_over_is_refused_and_nothing_is_stored(
    properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline = Pipeline(properties | SETTINGS)
    execute(root, f"USE `{database}`", CREATE[0])
    start = rows(root, "SHOW BINARY LOG STATUS")[0][:2]
    gtids = rows(root, "SELECT @@gtid_executed")[0][0].replace("\n", "")
    execute(root, "XA START 'x'", "INSERT INTO t VALUES (1, 1)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
    shown = rows(root, f"SHOW BINLOG EVENTS IN '{start[0]}' FROM {start[1]}")
    behind_rows = next(end for _, _, kind, _, end, _ in shown if kind == "Write_rows")
    execute(root, "ALTER TABLE t ADD c INT")
    plain = DebeziumOffset(start[0], start[1], gtids, where="topic offsets")
    refused: list[tuple[DebeziumOffset, type[CdcError], str]] = [
        (replace(plain, pos=behind_rows, row=1), StateError, "in the middle of an XA transaction"),
        (replace(plain, collections=("d.t",)), StateError, "incremental snapshot of the connector is not over"),
        (plain, SchemaError, "changed after it.*--debezium-history-topic"),
        (
            replace(plain, gtids=None, file="other.000001"),
            CdcError,
            "does not have the place of the connector's offset",
        ),
    ]
    for offset, kind, text in refused:
        with case(text), pytest.raises(kind, match=text):
            take_over(
                pipeline.cfg,
                pipeline.store,
                pipeline.owner,
                pipeline.log,
                lambda cfg, of=offset: plan_takeover(cfg, ConnectorState(of), pipeline.log),  # type: ignore[misc]
            )
    assert pipeline.store.load() is None


def test_rows_that_the_connector_wrote_at_xa_prepare_are_not_written_at_xa_commit(
    properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline = Pipeline(properties | SETTINGS)
    xa = f"'{database}'"
    execute(root, f"USE `{database}`", CREATE[0], f"XA START {xa}", "INSERT INTO t VALUES (1, 1)", f"XA END {xa}")
    execute(root, f"XA PREPARE {xa}")
    file, pos = rows(root, "SHOW BINARY LOG STATUS")[0][:2]
    connector = ConnectorState(DebeziumOffset(file, pos, rows(root, "SELECT @@gtid_executed")[0][0].replace("\n", "")))
    take_over(
        pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, lambda c: plan_takeover(c, connector, pipeline.log)
    )
    execute(root, f"XA COMMIT {xa}", "INSERT INTO t VALUES (2, 2)")
    pipeline.drain()
    execute(
        root, f"XA START {xa}", "INSERT INTO t VALUES (3, 3)", f"XA END {xa}", f"XA PREPARE {xa}", f"XA COMMIT {xa}"
    )
    pipeline.drain()
    assert sorted(payload(r.value)["after"]["id"] for r in pipeline.records("t")) == [2, 3]


def test_the_commands_read_and_write_the_topics_of_kafka_connect(
    properties: dict[str, str],
    root: Any,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MYSQL_CDC_OFFSET_URL", url := f"sqlite:///{tmp_path}/offsets.db")
    monkeypatch.setattr(stopped, "WATCH_S", 0.0)
    history, offsets = f"{database}.connector-history", f"{database}.connect-offsets"
    signals = {
        "signal.enabled.channels": "kafka",
        "signal.kafka.topic": f"{database}.signals",
        "signal.kafka.bootstrap.servers": properties["kafka.bootstrap.servers"],
        "signal.kafka.groupId": f"{database}.group",
    }
    given = properties | SETTINGS | signals | {"name": "shop", "schema.history.internal.kafka.topic": history}
    (tmp_path / "connector.json").write_text(json.dumps({"name": "shop", "config": given}))
    execute(root, f"USE `{database}`", CREATE[0], "INSERT INTO t VALUES (1, 1)")
    file, pos = rows(root, "SHOW BINARY LOG STATUS")[0][:2]
    gtids = rows(root, "SELECT @@gtid_executed")[0][0].replace("\n", "")
    execute(root, f"INSERT INTO `{database}`.t VALUES (2, 2)")
    pipeline = Pipeline(given)
    settings = pipeline.cfg.kafka_settings()
    dropped = f"{database}.{database}.dropped"
    topics = {offsets: TopicSpec(3, 1), history: TopicSpec(1, 1), f"{database}.signals": TopicSpec(1, 1)}
    ensure_topics(make_admin(settings), topics | {dropped: TopicSpec(1, 1)})
    producer, key = Producer({"bootstrap.servers": given["kafka.bootstrap.servers"]}), offset_key("shop", database)
    value = {"file": file, "pos": pos, "gtids": gtids, "ts_sec": 1, "server_id": 1}
    producer.produce(offsets, json.dumps(value | {"pos": 4}).encode(), key, 1)
    producer.produce(offsets, json.dumps(value).encode(), key, 1)
    producer.produce(offsets, b"{}", offset_key("other", "other"), 0)
    for text in ("read by the connector", "not read"):
        producer.produce(f"{database}.signals", json.dumps({"type": "log", "data": {"message": text}}), database)
    for _ in range(2):
        producer.produce(dropped, b"{}", b"{}", 0)
    record = {"source": {"server": database}, "position": value, "databaseName": database, "ddl": CREATE[0]}
    producer.produce(history, json.dumps(record | {"tableChanges": []}).encode(), None, 0)
    assert producer.flush(30) == 0

    def run(name: str, *more: str) -> Any:
        # The server notices only with its next heartbeat that the drains of other tests do not read any more.
        more = (*more, "--ignore-dumps") if name == "import-debezium" else more
        stream = ["--properties", str(tmp_path / "connector.json"), "--offsets-topic", offsets]
        assert main([name, *stream, *more]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    assert "has stored no offset of the signal topic" in run("import-debezium", "--dry-run")["notes"][-1]
    write_signals_read(pipeline.cfg, 1)
    planned = run("import-debezium", "--dry-run")
    assert "signal" not in str(planned["notes"])
    (printed,) = blocks("docs/from-debezium.md", "json")
    assert planned.keys() == json.loads(printed.text).keys()
    assert (planned["stored"], planned["offset"], planned["left_out"]) == (False, f"{file}:{pos}", "nothing")
    assert planned["set"] == {"schema.history.internal.kafka.topic": f"{history}.mysql-cdc"}
    assert pipeline.topics().keys() <= {*topics, dropped}, "nothing is written"
    assert run("import-debezium", "--confirm", database)["stored"]
    # A connector that is started again before the first drain would write what this one writes.
    topic = f"{database}.{database}.t"
    ensure_topics(make_admin(settings), {topic: TopicSpec(1, 1)})
    moved = {"op": "c", "source": {"file": file, "pos": pos, "row": 0, "gtid": gtids}}
    producer.produce(topic, json.dumps(moved).encode(), b"{}", 0)
    assert producer.flush(30) == 0
    with pytest.raises(StateError, match=r"taken over from a connector.*t, 1 record.*import-debezium again"):
        Pipeline(given | planned["set"], store=SqlOffsetStore(sqlalchemy.create_engine(url), database)).drain()
    assert run("import-debezium", "--confirm", database)["stored"]
    store = SqlOffsetStore(sqlalchemy.create_engine(url), database)
    own = Pipeline(given | planned["set"], store=store)
    own.drain()
    assert [payload(r.value)["after"] for r in own.records("t")[1:]] == [{"id": 2, "n": 2}]
    assert [text for text in ("read by the connector", "not read") if text in str(own.lines)] == ["not read"]
    again = ["--properties", str(tmp_path / "connector.json"), "--offsets-topic", offsets]
    with monkeypatch.context() as patch:
        row = f"INSERT INTO `{database}`.t VALUES (4, 4)"
        patch.setattr(commands, "_write", lambda *_: (execute(root, row), own.drain()))
        assert main(["export-debezium", *again, "--confirm", database]) == 1
        assert "the stream has run while it was given back" in capsys.readouterr().err
    written = run("export-debezium", "--confirm", database)["offsets"][0]["offset"]
    assert signals_read(pipeline.cfg) == 2, "the connector would carry them out once more"
    assert (written["file"], written["gtids"]) == (file, rows(root, "SELECT @@gtid_executed")[0][0].replace("\n", ""))
    *_, last = [r for r in own.read(offsets) if r.key == key]
    assert (last.partition, json.loads(last.value or b"")["pos"]) == (1, written["pos"])
    described = [json.loads(r.value or b"") for r in own.read(history)][1:]
    assert f'"{database}"."t"' in {change["id"] for d in described for change in d["tableChanges"]}
    assert {d["position"]["pos"] for d in described} == {written["pos"]}
    # What the connector writes from here on, a drain without another import would write once more; the topic that is
    # deleted had more records than come now.
    make_admin(settings).delete_topics([dropped])[dropped].result(30)
    execute(root, f"INSERT INTO `{database}`.t VALUES (3, 3)")
    producer.produce(topic, json.dumps(moved).encode(), b"{}", 0)
    assert producer.flush(30) == 0
    with pytest.raises(StateError, match=r"given back to a connector.*t, 1 record.*import-debezium again"):
        Pipeline(given | planned["set"], store=store).drain()
    assert main(["export-debezium", *again, "--confirm", database]) == 1, "the connector would begin before them"
    assert "after it was given back to a connector" in capsys.readouterr().err
    assert run("import-debezium", "--confirm", database)["offset"] == f"{file}:{written['pos']}"
    assert Pipeline(given | planned["set"], store=store).drain() is not None
    producer.produce(offsets, json.dumps(value).encode(), key, 1)
    assert producer.flush(30) == 0
    stale = ["--properties", str(tmp_path / "connector.json"), "--offsets-topic", offsets, "--ignore-dumps"]
    assert main(["import-debezium", *stale, "--confirm", database]) == 1
    assert "the stream is ahead of the connector" in capsys.readouterr().err
    assert main(["import-debezium", "--properties", str(tmp_path / "connector.json"), "--dry-run"]) == 1
    assert "give --connect-url and the connector's name" in capsys.readouterr().err
