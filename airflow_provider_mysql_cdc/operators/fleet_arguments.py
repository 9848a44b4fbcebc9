"""What a stream of a fleet has of its own in the DAG file, and that no two take each other's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.operators.arguments import Properties
from airflow_provider_mysql_cdc.operators.asset_events import StreamAssets, reference_alias, reference_asset
from airflow_provider_mysql_cdc.operators.fleet_outcome import FAILED, StreamOutcome
from airflow_provider_mysql_cdc.operators.fleet_run import FleetStream

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig


StreamArguments = Mapping[str, Mapping[str, Any]]
"""By connection: members of ``MEMBERS``."""
MEMBERS = ("properties", "offset_asset", "asset_alias", "pipeline")
"""Connector properties; names of the asset that stores the offset and of the alias of the asset events; and the name of
the pipeline whose DAGs an error of the stream names."""


def check_stream_arguments(given: StreamArguments | None) -> StreamArguments:
    """Return the arguments of the streams.

    Args:
        given: What the operator was given.

    Raises:
        TypeError: They are something else; Airflow must know them when it parses the DAG.
    """
    for conn_id, own in (given or {}).items():
        names = {name: own[name] for name in MEMBERS[1:] if name in own} if isinstance(own, Mapping) else {}
        if (
            not isinstance(own, Mapping)
            or set(own) - set(MEMBERS)
            or not all(isinstance(n, str) for n in names.values())
        ):
            raise TypeError(
                f"stream_arguments of {conn_id} are not a mapping with {', '.join(MEMBERS)}, the last three of which "
                f"are names: {own!r}"[:500]
            )
    return given or {}


def reference_streams(given: StreamArguments, arguments: dict[str, Any]) -> None:
    """Make the assets and aliases of streams inlets and outlets of their task (``reference_asset``).

    Args:
        given: The arguments of the streams.
        arguments: The operator's arguments, which are changed.
    """
    for own in given.values():
        if own.get("offset_asset"):
            reference_asset(own["offset_asset"], arguments)
        if own.get("asset_alias"):
            reference_alias(own["asset_alias"], arguments)


def assets_of(own: Mapping[str, Any], shared: StreamAssets) -> StreamAssets:
    """Return the assets of a stream.

    Args:
        own: Its arguments.
        shared: Those of the operator, for what it has none of its own.
    """
    offset, alias = own.get("offset_asset"), own.get("asset_alias")
    return StreamAssets(Asset(offset) if offset else shared.offset, AssetAlias(alias) if alias else shared.alias)


def own_properties(given: StreamArguments, conn_id: str) -> Properties:
    """Return the properties that only one stream has.

    Args:
        given: The arguments of the streams.
        conn_id: The stream's connection.
    """
    properties: Properties = given.get(conn_id, {}).get("properties") or {}
    return properties


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
