"""What is asked of a take-over: where the connector is, what it has stored, and whether it is stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.debezium import stopped
from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import DebeziumOffset, rest_offset
from airflow_provider_mysql_cdc.cdc.debezium.import_connector import ConnectorState, Takeover, plan_takeover, take_over
from airflow_provider_mysql_cdc.cdc.debezium.sources import (
    ConnectorStatement,
    history_of_file,
    history_of_topic,
    offset_of_file,
    offset_of_topic,
    read_statements,
)
from airflow_provider_mysql_cdc.cdc.debezium.stopped import ConnectRest
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, NoOffsetError
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.operate.prepare_job import table_ends

_HISTORY = F.HISTORY_KAFKA_TOPIC.name
OWN_SUFFIX = ".mysql-cdc"
"""What the name of this stream's history has behind that of the connector's, unless a name is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorPlaces:
    """Say where a connector is, and what it has stored.

    Args:
        name: Its name in Kafka Connect; empty for the one that its JSON has.
        connect: Kafka Connect; None where it cannot be asked.
        offsets_topic: Topic of the worker's offsets; empty for none.
        offsets_file: File of a standalone worker, or a saved answer; empty for none.
        history_topic: Topic of its schema history; empty for the one of its JSON.
        history_file: File of its schema history; empty for none.
        own_history: Topic of this stream's own history, if the JSON names the connector's; empty for the default.
    """

    name: str = ""
    connect: ConnectRest | None = None
    offsets_topic: str = ""
    offsets_file: str = ""
    history_topic: str = ""
    history_file: str = ""
    own_history: str = ""


@dataclass(frozen=True, slots=True)
class StreamOfConnector:
    """Hold a stream's configuration in place of a connector's.

    Args:
        cfg: The configuration.
        given: The connector's.
        set: Properties that differ.
    """

    cfg: ConnectorConfig
    given: ConnectorConfig
    set: dict[str, str]

    @classmethod
    def of(cls, given: ConnectorConfig, places: ConnectorPlaces) -> StreamOfConnector:
        """Return the configuration, with a schema history of its own.

        Args:
            given: The connector's configuration.
            places: Where it is.

        Raises:
            SinkError: Kafka cannot be read.
        """
        own = {}
        if places.own_history:
            own = {_HISTORY: places.own_history}
        elif history_of_topic(given, given.history_topic) is not None:
            own = {_HISTORY: f"{given.history_topic}{OWN_SUFFIX}"}
        cfg = ConnectorConfig.from_properties(given.properties() | own) if own else given
        return cls(cfg, given, own)


def connector_name(given: ConnectorConfig, places: ConnectorPlaces) -> str:
    """Return the connector's name; empty where neither says it.

    Args:
        given: The connector's configuration, of which ``name`` is the topic.prefix unless it is set.
        places: Where it is.
    """
    return places.name or (str(given[F.NAME]) if given.is_set(F.NAME) else "")


def import_connector(
    given: ConnectorConfig,
    places: ConnectorPlaces,
    store: OffsetStore | None,
    owner: str,
    log: Log,
    *,
    trusts_offset: bool = False,
    ignores_dumps: bool = False,
) -> dict[str, Any]:
    """Take a stream over from a connector, and return what was done as plain JSON for a person.

    Args:
        given: The connector's configuration.
        places: Where it is.
        store: The offset store; None to say what would be done, and write nothing.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Receives lines of text.
        trusts_offset: Whether records of topics that do not say their place count as before the offset.
        ignores_dumps: Whether somebody may read the binlog under the connector's account.

    Raises:
        CdcError: The stream cannot be taken over; nothing was written.
    """
    stream = StreamOfConnector.of(given, places)
    statements = _statements(given, places)
    name = connector_name(given, places)
    name, checked = _require_stopped(stream.cfg, places, name, ignores_dumps=ignores_dumps)
    offset = _offset(stream.cfg, places, name)  # that of a connector which does not write any more

    def plan(at_server: ConnectorConfig) -> Takeover:
        return plan_takeover(at_server, ConnectorState(offset, statements), log, trusts_offset=trusts_offset)

    takeover = plan(stream.cfg) if store is None else take_over(stream.cfg, store, owner, log, plan)
    return {
        "topic.prefix": given.topic_prefix,
        "connector": name,
        "connector_offset": f"{offset} ({offset.where})",
        "stopped": checked,
        **takeover.to_json(),
        "set": stream.set,
        "stored": store is not None,
    }


def _statements(cfg: ConnectorConfig, places: ConnectorPlaces) -> list[ConnectorStatement] | None:
    if places.history_file:
        return list(read_statements(history_of_file(places.history_file), cfg.topic_prefix))
    topic = places.history_topic or cfg.history_topic
    values = history_of_topic(cfg, topic)
    if values is None and places.history_topic:
        raise ConfigError(
            "this is not the schema history of a connector",
            where=f"topic {topic}",
            why="it does not exist, is empty, or is this stream's own",
            remedy="name the topic of the connector's schema.history.internal.kafka.topic, or leave the option out",
        )
    return None if values is None else list(read_statements(values, cfg.topic_prefix))


def _offset(cfg: ConnectorConfig, places: ConnectorPlaces, name: str) -> DebeziumOffset:
    if places.offsets_topic:
        return offset_of_topic(cfg, places.offsets_topic, name)
    if places.offsets_file:
        return offset_of_file(cfg, places.offsets_file, name)
    if places.connect is None or not name:
        raise ConfigError(
            "it is not said where the connector's offset is",
            remedy="give --connect-url and the connector's name, --offsets-topic or --offsets-file",
        )
    where = places.connect.connector(name, "offsets")
    answer = places.connect.get(where)
    if answer is None:
        raise NoOffsetError(
            "Kafka Connect does not know the connector",
            where=where,
            remedy="check --connector-name; if it was deleted, its offset is still in the topic of the worker's "
            "offset.storage.topic: give --offsets-topic",
        )
    return rest_offset(answer, cfg.topic_prefix, where)


def _require_stopped(
    cfg: ConnectorConfig, places: ConnectorPlaces, name: str, *, ignores_dumps: bool
) -> tuple[str, list[str]]:
    """Check that the connector is stopped; return its name, and what says so."""
    checked = []
    if places.connect is not None:
        found = stopped.require_stopped(places.connect, name, cfg.topic_prefix)
        if found.text:
            return found.name, [found.text]
        checked.append(f"Kafka Connect at {places.connect.url} has no connector of topic.prefix {cfg.topic_prefix}")
    checked.append(stopped.require_still(lambda: (str(_offset(cfg, places, name)), table_ends(cfg)), stopped.WATCH_S))
    if not ignores_dumps:
        with connect(cfg.connection_settings()) as conn:
            checked.append(stopped.require_no_dump(conn, cfg[F.DATABASE_USER], stopped.DUMP_WAIT_S))
    return name, checked
