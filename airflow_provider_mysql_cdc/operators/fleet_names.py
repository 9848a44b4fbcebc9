"""Refuse streams of one fleet that would take each other's records for their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.operators.fleet_outcome import FAILED, StreamOutcome
from airflow_provider_mysql_cdc.operators.fleet_run import FleetStream

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

USES: Mapping[str, str] = MappingProxyType(
    {
        "topic.prefix": "it identifies a stream: its ledger, its offset and its lock",
        "ledger.topic": "it holds the plans and markers of one stream",
        "schema.history.internal.kafka.topic": "it holds the structures of the tables of one stream",
    }
)
"""Properties of which each stream needs a value of its own, and what the value is used for."""


def without_same_names(streams: Sequence[FleetStream]) -> tuple[list[FleetStream], list[StreamOutcome]]:
    """Return the streams, and the outcomes of connections that have a name of another one.

    All streams of a first run look into their topics at the same moment, so none of them would find the other there.

    Args:
        streams: The streams.
    """
    by_name: dict[tuple[str, str, str], list[FleetStream]] = {}
    for stream in streams:
        for key in _names(stream.run.cfg):
            by_name.setdefault(key, []).append(stream)
    refused: dict[str, StreamOutcome] = {}
    for (name, value, _), same in by_name.items():
        for stream in same if len(same) > 1 else ():
            error = _same_name_error(name, value, same)
            refused.setdefault(stream.conn_id, StreamOutcome(stream.conn_id, stream.conn_id, FAILED, error=error))
    return [stream for stream in streams if stream.conn_id not in refused], list(refused.values())


def _names(cfg: ConnectorConfig) -> list[tuple[str, str, str]]:
    """Return property, value and where it must be the only one: topics are names in one Kafka."""
    kafka = str(cfg.kafka_settings().get("bootstrap.servers", ""))
    values = (cfg.topic_prefix, cfg.ledger_topic, cfg.history_topic)
    return list(zip(USES, values, ("", kafka, kafka), strict=True))


def _same_name_error(name: str, value: str, streams: Sequence[FleetStream]) -> ConfigError:
    return ConfigError(
        f"connections of the fleet have the same {name}",
        where=f"{value}: {', '.join(stream.conn_id for stream in streams)}",
        why=USES[name],
        remedy=f"set a {name} of its own in the extra of each connection, and none in the properties of the fleet; "
        "shards may share the topics of their tables all the same (docs/fleets.md)",
    )
