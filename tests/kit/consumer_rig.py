"""Rebuild captured tables with Debezium's own JDBC sink connector and compare them with the source."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import Consumer, TopicPartition
from pipelinelib.pipeline import Pipeline
from stacklib.connect import Connect
from stacklib.java import find_java
from stacklib.ports import any_free
from stacklib.settings import LOOPBACK

from kit.sql import execute, rows

# A JVM on a busy machine with two cores: reading its archives alone may take half a minute.
PATIENCE_S = 150.0
_JSON = "org.apache.kafka.connect.json.JsonConverter"


def worker_properties(folder: Path, kafka: str, port: int) -> dict[str, str]:
    """Return the properties of a standalone worker that reads JSON with schemas, committed transactions only."""
    return {
        "bootstrap.servers": kafka,
        "key.converter": _JSON,
        "value.converter": _JSON,
        "key.converter.schemas.enable": "true",
        "value.converter.schemas.enable": "true",
        # Connect's default reads the header of a changed key as a map and cannot, when the key's columns have
        # different types: it leaves the map without a schema of its values, which the sink then refuses.
        "header.converter": "org.apache.kafka.connect.storage.StringConverter",
        # Connect's default puts a column's default in the place of a NULL, also when it reads.
        "value.converter.replace.null.with.default": "false",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "500",
        "listeners": f"http://{LOOPBACK}:{port}",
        "plugin.discovery": "only_scan",
        "consumer.isolation.level": "read_committed",
        "consumer.auto.offset.reset": "earliest",
    }


def sink_properties(stack: Any, name: str, topics: list[str], database: str) -> dict[str, str]:
    """Return the connector's properties: tables made from the events' schemas, rows keyed by the record key.

    The connector's defaults are kept where they do not decide between rebuilding a table and appending to it.
    """
    return {
        "name": name,
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "1",
        "topics": ",".join(topics),
        "connection.url": f"jdbc:mysql://{stack.mysql_host}:{stack.mysql_port}/{database}?connectionTimeZone=UTC",
        "connection.username": stack.root_user,
        "connection.password": stack.root_password,
        "connection.pool.min_size": "1",
        "connection.pool.max_size": "2",
        "connection.pool.acquire_increment": "1",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "truncate.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "quote.identifiers": "true",
    }


Row = tuple[tuple[str, Any], ...]


class Rebuilt:
    """Hold a running sink and the database it writes to."""

    def __init__(self, pipeline: Pipeline, connect: Connect, name: str, database: str, topics: list[str]) -> None:
        self._pipeline = pipeline
        self._connect = connect
        self._group = f"connect-{name}"
        self._topics = topics
        self.database = database

    def table(self, name: str) -> str:
        """Return the sink's name of a table: the topic with underscores for dots."""
        return str(self._pipeline.table_topic(name)).replace(".", "_")

    def contents(self, conn: Any, table: str, types: Mapping[str, str]) -> list[Row]:
        """Return a rebuilt table's rows in the form of ``contents``."""
        return contents(conn, self.database, self.table(table), types, bits="little")

    def wait(self) -> None:
        """Wait until the sink has stored every record of the topics, by the offsets it has committed."""
        wanted: dict[tuple[str, int], int] = {}
        for topic in self._topics:
            for record in self._pipeline.read(topic):
                place = (topic, record.partition)
                wanted[place] = max(wanted.get(place, 0), record.offset + 1)
        assert {topic for topic, _ in wanted} == set(self._topics)
        servers = {"bootstrap.servers": self._pipeline.properties["kafka.bootstrap.servers"]}
        consumer = Consumer(servers | {"group.id": self._group, "enable.auto.commit": False})
        places = [TopicPartition(topic, partition) for topic, partition in wanted]

        def caught_up() -> bool:
            found = consumer.committed(places, timeout=20)
            return all(place.offset >= wanted[place.topic, place.partition] for place in found)

        try:
            self._connect.wait(caught_up, "the sink to read all records", PATIENCE_S)
        finally:
            consumer.close()


@contextmanager
def jdbc_sink(
    stack: Any, root: Any, read: Sequence[tuple[Pipeline, list[str]]], folder: Path
) -> Iterator[list[Rebuilt]]:
    """Run the sink for some tables' topics into a new database, and remove the process and the database afterwards.

    One process and one connector read the topics of several pipelines: a JVM costs more than all that it reads.

    Args:
        stack: The servers.
        root: A connection that may make databases.
        read: Pipelines and the tables of each.
        folder: Folder of the process.
    """
    name = f"sink_{read[0][0].properties['topic.prefix']}"
    topics = [[pipeline.table_topic(table) for table in tables] for pipeline, tables in read]
    # Keys that differ in case or accent only are different keys in Kafka.
    execute(root, f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    try:
        properties = sink_properties(stack, name, [topic for some in topics for topic in some], name)
        worker = worker_properties(folder, stack.kafka, any_free())
        with Connect(find_java(), folder, worker, properties) as connect:
            mine = zip(read, topics, strict=True)
            yield [Rebuilt(pipeline, connect, name, name, some) for (pipeline, _), some in mine]
    finally:
        execute(root, f"DROP DATABASE `{name}`")


def _integer(value: Any, order: Literal["big", "little"]) -> int:
    return int.from_bytes(value, order) if isinstance(value, bytes) else int(value)


def _exact_json(value: str) -> str:
    return json.dumps(json.loads(value, parse_float=lambda text: f"number {text}"), sort_keys=True)


# What is one value in two column types; all other types must come back as they were.
_SAME: Mapping[str, Callable[[Any], Any]] = {
    "json": _exact_json,
    "float": lambda value: struct.pack(">f", value),
    "decimal": lambda value: Decimal(value).normalize(),
    "bigint": int,
}


def contents(
    conn: Any, database: str, table: str, types: Mapping[str, str], *, bits: Literal["big", "little"] = "big"
) -> list[Row]:
    """Return a table's rows, order and column types aside.

    Debezium's events carry BIT(n) with the lowest byte first (io.debezium.data.Bits); its JDBC sink stores these
    bytes as they are into a MySQL column, which reads them with the highest byte first.

    Args:
        conn: A connection.
        database: The database.
        table: The table.
        types: The source's data type per column name.
        bits: Which byte of a BIT(n) value the column has first.
    """
    forms: dict[str, Callable[[Any], Any]] = {**_SAME, "bit": lambda value: _integer(value, bits)}

    def form(kind: str, value: Any) -> Any:
        return forms[kind](value) if value is not None and kind in forms else value

    execute(conn, "SET SESSION time_zone = '+00:00'")
    selected = ", ".join(f"`{name}`" for name in types)
    found: list[Row] = []
    for row in rows(conn, f"SELECT {selected} FROM `{database}`.`{table}`"):
        values = zip(types, types.values(), row, strict=True)
        found.append(tuple((name, form(kind, value)) for name, kind, value in values))
    return sorted(found, key=repr)


def column_types(conn: Any, database: str, table: str, *, whole: bool = False) -> dict[str, str]:
    """Return the data type per column, in the table's order, with its lengths and the like when whole."""
    sql = (
        f"SELECT column_name, {'column_type' if whole else 'data_type'} FROM information_schema.columns "
        f"WHERE table_schema = '{database}' AND table_name = '{table}' ORDER BY ordinal_position"
    )
    return {str(name): str(kind) for name, kind in rows(conn, sql)}
