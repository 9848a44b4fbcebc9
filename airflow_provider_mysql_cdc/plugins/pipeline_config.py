"""The configuration of a pipeline as its tasks use it, read where the API server runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.plugins.serialized_tasks import PipelineTask

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

TIMEOUTS = {
    "connect.timeout.ms": 3_000,
    "source.silence.timeout.ms": 10_000,
    "database.query.timeout.ms": 10_000,
}
"""A person waits for the page; a server that takes longer is one that does not answer."""


def read_config(task: PipelineTask) -> ConnectorConfig:
    """Return the configuration of the pipeline that a task works for, with short timeouts.

    Args:
        task: The task.

    Raises:
        ConfigError: A connection does not exist, or a property is wrong or missing.
    """
    from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
    from airflow_provider_mysql_cdc.hooks.schema_registry import REGISTRY_CONN_ID

    properties: dict[str, Any] = {**_variable_properties(task), **task.properties, **TIMEOUTS}
    if task.registry_conn_id:
        properties[REGISTRY_CONN_ID] = task.registry_conn_id
    return MySqlCdcHook(task.conn_id, task.kafka_conn_id or None).get_config(properties)


def _variable_properties(task: PipelineTask) -> dict[str, Any]:
    """Return the properties in the Airflow Variable of the DAGs that come with this package."""
    if not task.variables:
        return {}
    from airflow.models.variable import Variable

    from airflow_provider_mysql_cdc.operators.dag_params import PROPERTIES_VARIABLE

    stored = Variable.get(PROPERTIES_VARIABLE, default_var={}, deserialize_json=True)
    return dict(stored) if isinstance(stored, dict) else {}


def read_stored_state(task: PipelineTask, prefix: str) -> StoredState | None:
    """Return what the offset store has of a stream; None where it has nothing, or the task names no store.

    Args:
        task: The task.
        prefix: topic.prefix.

    Raises:
        CdcError: The store does not answer, or its value is damaged.
    """
    if task.offset_conn_id:
        return _from_database(task.offset_conn_id, prefix)
    if not task.offset_asset:
        return None
    from airflow_provider_mysql_cdc.state.asset_store import AssetOffsetStore
    from airflow_provider_mysql_cdc.state.metadata_accessor import MetadataAccessor

    return AssetOffsetStore(MetadataAccessor(task.offset_asset), prefix).load()


def _from_database(conn_id: str, prefix: str) -> StoredState | None:
    """Return the state in an offset database; tables that are missing are not created by a look at them."""
    import sqlalchemy

    from airflow_provider_mysql_cdc.cdc.commit.sql_schema import OFFSETS_TABLE
    from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
    from airflow_provider_mysql_cdc.connections import find_connection
    from airflow_provider_mysql_cdc.state.offset_database import open_engine

    engine = open_engine(find_connection(conn_id, "offset database"))
    try:
        if not sqlalchemy.inspect(engine).has_table(OFFSETS_TABLE):
            return None
        return SqlOffsetStore(engine, prefix).load()
    finally:
        engine.dispose()
