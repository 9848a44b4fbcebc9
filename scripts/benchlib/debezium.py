"""Debezium's MySQL connector in Kafka Connect standalone, with the settings that both come with."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from stacklib import maven
from stacklib.connect import Connect
from stacklib.errors import StackError
from stacklib.java import Java
from stacklib.locks import build_once
from stacklib.ports import any_free
from stacklib.settings import LOOPBACK, cache_dir

from benchlib.figures import Measured, written
from benchlib.process_tree import usage, watch
from benchlib.source import DATABASE, TABLE, Source, signal_table

VERSION, CONNECT_VERSION = "3.6.1.Final", "4.3.1"
COORDINATES = (
    ("io.debezium", "debezium-connector-mysql", VERSION),
    ("org.apache.kafka", "connect-runtime", CONNECT_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
# What bin/connect-standalone.sh and kafka-run-class.sh of Apache Kafka 4.3 start a worker with.
JVM = (
    *("-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
    "-Duser.timezone=UTC",
)
PATIENCE_S, MOST_S = 180.0, 3600.0
_FLUSH_S = 1.0
_JSON = "org.apache.kafka.connect.json.JsonConverter"


def archives(java: Java) -> Path:
    """Return the folder with Debezium's and Connect's archives, fetching them once."""
    return build_once(
        cache_dir() / f"debezium-mysql-{VERSION}-connect-{CONNECT_VERSION}",
        lambda folder: maven.fetch(COORDINATES, folder, java, "debezium"),
        "debezium",
        f"Debezium's MySQL connector {VERSION}",
    )


def says_completed(note: bytes | None) -> bool:
    """Return whether a notification tells of an incremental snapshot's end; the first snapshot has such ones, too."""
    return b'"aggregate_type":"Incremental Snapshot"' in (note or b"") and b'"type":"COMPLETED"' in (note or b"")


@dataclass(frozen=True, slots=True)
class Debezium:
    """Take an incremental snapshot with Debezium.

    Args:
        java: The Java runtime.
        source: The server.
        kafka: Bootstrap servers.
        folder: An empty folder.
        prefix: ``topic.prefix``.
        more: Further properties of the connector.
    """

    java: Java
    source: Source
    kafka: str
    folder: Path
    prefix: str
    more: Mapping[str, str]

    def measure(self) -> Measured:
        """Let it find its place, stop it, ask for the snapshot, and measure from its start until it says COMPLETED."""
        self._find_place()
        data = f'{{"type":"incremental","data-collections":["{DATABASE}.{TABLE}"]}}'
        table = f"{DATABASE}.{signal_table('debezium')}"
        self.source.run(f"INSERT INTO {table} VALUES ('{self.prefix}', 'execute-snapshot', '{data}')")
        with self._connect("measured", flush_s=10) as connect:
            samples = watch(connect.pid, self._completed(connect))
        load = os.getloadavg()[0]
        wrote = written(self._records(f"{self.prefix}.{DATABASE}.{TABLE}", self._place_found()))
        return Measured(f"Debezium {VERSION}", wrote, usage(samples), load=load)

    def _find_place(self) -> None:
        """Start it without a snapshot, and stop it when it has stored an offset that lies in the stream."""
        with self._connect("placed", flush_s=_FLUSH_S) as connect:
            streams = "Keepalive thread is running"
            connect.wait(lambda: streams in connect.log.read_text(errors="replace"), "Debezium to stream", PATIENCE_S)
            self.source.run(f"UPDATE {DATABASE}.{TABLE} SET customer_id = customer_id + 1 WHERE id = 1")
            topic = f"{self.prefix}.{DATABASE}.{TABLE}"
            connect.wait(lambda: self._end(topic) > 0, "Debezium's first event", PATIENCE_S)
            time.sleep(3 * _FLUSH_S)
            connect.ask_to_end()
            watch(connect.pid, lambda: connect.ended)
        (self.folder / "place").write_text(str(self._end(topic)))

    def _place_found(self) -> int:
        return int((self.folder / "place").read_text())

    def _connect(self, name: str, flush_s: float) -> Connect:
        folder = self.folder / name
        folder.mkdir()
        worker = {
            "bootstrap.servers": self.kafka,
            "key.converter": _JSON,
            "value.converter": _JSON,
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": str(self.folder / "offsets"),
            "offset.flush.interval.ms": str(round(flush_s * 1000)),
            "listeners": f"http://{LOOPBACK}:{any_free()}",
            "plugin.discovery": "only_scan",
            "topic.creation.enable": "true",
        }
        return Connect(self.java, folder, worker, self._connector(), archives=archives(self.java), jvm=JVM)

    def _connector(self) -> dict[str, str]:
        return {
            "name": self.prefix,
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "tasks.max": "1",
            "database.hostname": self.source.host,
            "database.port": str(self.source.port),
            "database.user": self.source.user,
            "database.password": self.source.password,
            "database.server.id": "5601",
            "topic.prefix": self.prefix,
            "database.include.list": DATABASE,
            "table.include.list": f"{DATABASE}.{TABLE}",
            "snapshot.mode": "no_data",
            "signal.data.collection": f"{DATABASE}.{signal_table('debezium')}",
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": self._notes,
            "schema.history.internal.kafka.bootstrap.servers": self.kafka,
            "schema.history.internal.kafka.topic": f"{self.prefix}-history",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
            **self.more,
        }

    @property
    def _notes(self) -> str:
        return f"{self.prefix}-notes"

    def _completed(self, connect: Connect) -> Callable[[], bool]:
        """Return a function that asks for the end when the notification of the snapshot's end is there.

        It overtakes the rows, which have a topic of their own; the worker sends what it holds when it ends well.
        """
        consumer, limit = self._consumer(), time.monotonic() + MOST_S
        seen = done = False

        def over() -> bool:
            nonlocal seen, done
            if done:
                return connect.ended
            if (why := connect.trouble()) is not None or time.monotonic() > limit:
                raise StackError("measuring Debezium", why or f"not done within {MOST_S:.0f} s", f"see {connect.log}")
            if not seen and self._end(self._notes):
                seen = True
                consumer.assign([TopicPartition(self._notes, 0, 0)])
            found = consumer.consume(1000, 0.01) if seen else []
            done = any(says_completed(m.value()) for m in found if m.error() is None)
            if done:
                consumer.close()
                connect.ask_to_end()
            return False

        return over

    def _consumer(self) -> Consumer:
        settings = {"bootstrap.servers": self.kafka, "group.id": f"{self.prefix}-watch", "enable.auto.commit": False}
        return Consumer({**settings, "auto.offset.reset": "earliest"})

    def _end(self, topic: str) -> int:
        """Return how many records a topic has; 0 when it does not exist."""
        consumer = self._consumer()
        try:
            if topic not in consumer.list_topics(timeout=10).topics:
                return 0
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10, cached=False)[1])
        finally:
            consumer.close()

    def _records(self, topic: str, begin: int) -> Iterator[tuple[bytes | None, bytes | None]]:
        end, consumer = self._end(topic), self._consumer()
        consumer.assign([TopicPartition(topic, 0, begin)])
        try:
            while begin < end:
                for message in consumer.consume(5000, 1.0):
                    if message.error() is None:
                        begin = (message.offset() or 0) + 1
                        yield message.key(), message.value()
        finally:
            consumer.close()
