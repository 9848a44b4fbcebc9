"""What a stream of a fleet has of its own in the DAG file, beside what its connection says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Asset, AssetAlias

from airflow_provider_mysql_cdc.operators.arguments import Properties
from airflow_provider_mysql_cdc.operators.asset_events import StreamAssets
from airflow_provider_mysql_cdc.operators.offset_asset import reference_alias, reference_asset

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
