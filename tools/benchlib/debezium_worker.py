"""Debezium's MySQL connector in a worker of Kafka Connect standalone, with the settings that both come with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from stacklib import maven
from stacklib.connect import Connect
from stacklib.java import Java
from stacklib.locks import build_once
from stacklib.ports import any_free
from stacklib.settings import LOOPBACK, cache_dir

from benchlib.source import DATABASE, MySqlSource

VERSION, CONNECT_VERSION = "3.6.1.Final", "4.3.1"
NAME = f"Debezium {VERSION}"
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
START_TIMEOUT_S, RUN_TIMEOUT_S = 180.0, 3600.0
FAST_FLUSH_S, USUAL_FLUSH_S = 1.0, 10.0
"""Seconds between two storings of the offset: while it stores its start position, and while it is measured."""
STREAMING_MARK = "Keepalive thread is running"
"""What its log says when it has begun to stream."""
_JSON = "org.apache.kafka.connect.json.JsonConverter"


def archives(java: Java) -> Path:
    """Return the folder with Debezium's and Connect's archives, fetching them once."""
    return build_once(
        cache_dir() / f"debezium-mysql-{VERSION}-connect-{CONNECT_VERSION}",
        lambda folder: maven.fetch(COORDINATES, folder, java, "debezium"),
        "debezium",
        f"Debezium's MySQL connector {VERSION}",
    )


@dataclass
class DebeziumWorker:
    """Start workers of one stream.

    Args:
        more: Further properties of the connector.
    """

    java: Java
    source: MySqlSource
    kafka: str
    folder: Path
    prefix: str
    more: Mapping[str, str] = field(default_factory=dict)

    def start(
        self, name: str, offsets: Path, flush_s: float, connector: Mapping[str, str], *, schemas: bool = False
    ) -> Connect:
        """Return a worker that runs the connector as long as it is entered.

        Args:
            name: Name of a new folder for what it writes.
            offsets: File of its offsets.
            flush_s: Seconds between two storings of them.
            connector: Properties of the connector in addition to the common ones.
            schemas: Whether records carry their schemas.
        """
        folder = self.folder / name
        folder.mkdir()
        worker = {
            "bootstrap.servers": self.kafka,
            "key.converter": _JSON,
            "value.converter": _JSON,
            "key.converter.schemas.enable": str(schemas).lower(),
            "value.converter.schemas.enable": str(schemas).lower(),
            "offset.storage.file.filename": str(offsets),
            "offset.flush.interval.ms": str(round(flush_s * 1000)),
            "listeners": f"http://{LOOPBACK}:{any_free()}",
            "plugin.discovery": "only_scan",
            "topic.creation.enable": "true",
        }
        properties = {**self._connector(), **connector, **self.more}
        return Connect(self.java, folder, worker, properties, archives=archives(self.java), jvm=JVM)

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
            "snapshot.mode": "no_data",
            "schema.history.internal.kafka.bootstrap.servers": self.kafka,
            "schema.history.internal.kafka.topic": f"{self.prefix}-history",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
        }

    def consumer(self) -> Consumer:
        """Return a consumer that reads from the beginning."""
        settings = {"bootstrap.servers": self.kafka, "group.id": f"{self.prefix}-watch", "enable.auto.commit": False}
        return Consumer({**settings, "auto.offset.reset": "earliest"})

    def end(self, topic: str) -> int:
        """Return how many records the first partition of a topic has; 0 when it does not exist."""
        consumer = self.consumer()
        try:
            if topic not in consumer.list_topics(timeout=10).topics:
                return 0
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10, cached=False)[1])
        finally:
            consumer.close()
