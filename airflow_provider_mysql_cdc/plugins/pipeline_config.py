"""The configuration of a pipeline as its tasks use it, read where the API server runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.plugins.serialized_tasks import PipelineTask

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
    from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.operate.lag_history import LagPoint
    from airflow_provider_mysql_cdc.state.asset_store import AssetOffsetStore

TIMEOUTS = {
    "connect.timeout.ms": 3_000,
    "source.silence.timeout.ms": 10_000,
    "database.query.timeout.ms": 10_000,
}
"""A person waits for the page; a server that takes longer is one that does not answer."""
RUNS_CODE = frozenset(
    {"plugin.library.paths", "ssl.engine.location", "ssl.provider.location", "ssl.providers", "sasl.kerberos.kinit.cmd"}
)
"""Kafka settings with which the client loads a library or runs a command; authors of DAGs have no code in the API
server."""


def read_config(task: PipelineTask) -> ConnectorConfig:
    """Return the configuration of the pipeline that a task works for, with short timeouts.

    Args:
        task: The task.

    Raises:
        ConfigError: A connection does not exist, a property is wrong or missing, or the Kafka client would run code.
    """
    from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
    from airflow_provider_mysql_cdc.hooks.schema_registry import REGISTRY_CONN_ID

    properties: dict[str, Any] = {**_variable_properties(task), **task.properties, **TIMEOUTS}
    if task.registry_conn_id:
        properties[REGISTRY_CONN_ID] = task.registry_conn_id
    cfg = MySqlCdcHook(task.conn_id, task.kafka_conn_id or None).get_config(properties)
    _refuse_code(cfg)
    return cfg


def _refuse_code(cfg: ConnectorConfig) -> None:
    from airflow_provider_mysql_cdc.cdc.errors import ConfigError

    names = {name for settings in cfg.families.kafka_settings.values() for name in settings}
    if found := RUNS_CODE & names:
        raise ConfigError(
            "the page does not read this pipeline",
            where=", ".join(sorted(found)),
            why="with these settings the Kafka client loads a library or runs a command, which the page must not do in "
            "Airflow's API server; tasks of the pipeline are not affected",
            remedy="see its status with mysql-cdc status on a worker, or do without these settings",
        )


def _variable_properties(task: PipelineTask) -> dict[str, Any]:
    """Return the properties in the Airflow Variable of the DAGs that come with this package."""
    if not task.variables:
        return {}
    from airflow.models.variable import Variable

    from airflow_provider_mysql_cdc.operators.dag_params import PROPERTIES_VARIABLE

    stored = Variable.get(PROPERTIES_VARIABLE, default_var={}, deserialize_json=True)
    return dict(stored) if isinstance(stored, dict) else {}


@dataclass(frozen=True, slots=True)
class StoreContent:
    """Hold what an offset store has of a stream.

    Args:
        state: Its state; None where nothing is stored.
        points: How far it was behind in the last day, oldest first.
    """

    state: StoredState | None = None
    points: Sequence[LagPoint] = ()


def read_store(task: PipelineTask, prefix: str) -> StoreContent:
    """Return what the offset store has of a stream; nothing where the task names no store.

    Args:
        task: The task.
        prefix: topic.prefix.

    Raises:
        CdcError: The store does not answer, or its value is damaged.
    """
    if task.offset_conn_id:
        return _from_database(task.offset_conn_id, prefix)
    if not task.offset_asset:
        return StoreContent()
    from airflow_provider_mysql_cdc.state.asset_store import AssetOffsetStore
    from airflow_provider_mysql_cdc.state.metadata_accessor import MetadataAccessor

    return _content(AssetOffsetStore(MetadataAccessor(task.offset_asset), prefix))


def _content(store: AssetOffsetStore | SqlOffsetStore) -> StoreContent:
    from airflow_provider_mysql_cdc.cdc.operate.lag_history import read_points

    return StoreContent(store.load(), read_points(store))


def _from_database(conn_id: str, prefix: str) -> StoreContent:
    """Return the content of an offset database; tables that are missing are not created by a look at them."""
    import sqlalchemy

    from airflow_provider_mysql_cdc.cdc.commit.sql_schema import TABLES
    from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
    from airflow_provider_mysql_cdc.connections import find_connection
    from airflow_provider_mysql_cdc.state.offset_database import open_engine

    engine = open_engine(find_connection(conn_id, "offset database"))
    try:
        if not set(TABLES) <= set(sqlalchemy.inspect(engine).get_table_names()):
            return StoreContent()
        return _content(SqlOffsetStore(engine, prefix))
    finally:
        engine.dispose()
