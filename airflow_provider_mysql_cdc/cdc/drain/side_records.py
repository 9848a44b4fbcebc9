"""Records that come from no row event: truncate events and heartbeats."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.json_dialect import after_row_of
from airflow_provider_mysql_cdc.cdc.emit import source_block
from airflow_provider_mysql_cdc.cdc.emit.heartbeat import heartbeat_record
from airflow_provider_mysql_cdc.cdc.emit.topic_names import heartbeat_topic
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table


def truncate_value(cfg: ConnectorConfig, table: Table, event: Event, writer_position: Any) -> bytes:
    """Return the value of a truncate event (op ``t``, no key, neither image).

    Args:
        cfg: The connector's configuration.
        table: The table.
        event: The TRUNCATE statement's QUERY event.
        writer_position: The writer's position; Debezium gives the time in whole milliseconds here and no thread.
    """
    ctx = EventContext()
    truncate_position = replace(
        writer_position, commit_us=writer_position.commit_us // 1000 * 1000, thread=0, query=None
    )
    source_block.fill(ctx, table_options.table_source_block(cfg, table.id), event, truncate_position)
    options = table_options.table_options(cfg, table)
    payload = f'{{"before":null,"after":null,"source":{ctx.src_head}0{after_row_of(options)(ctx, "t")}'
    schema = table_options.schema_text(cfg, table, options).value_schema
    return (payload if schema is None else f'{{"schema":{schema},"payload":{payload}}}').encode()


def heartbeat(cfg: ConnectorConfig) -> SideRecord:
    """Return a heartbeat record (STRM-27 to STRM-29)."""
    key, value = heartbeat_record(
        cfg[F.TOPIC_PREFIX],
        time.time_ns() // 1_000_000,
        recent=str(cfg[F.EVENT_CONTRACT]) != "1.9",
        key_schema=cfg[F.KEY_SCHEMAS_ENABLE],
        value_schema=cfg[F.VALUE_SCHEMAS_ENABLE],
    )
    topic = heartbeat_topic(cfg[F.TOPIC_PREFIX], cfg[F.TOPIC_HEARTBEAT_PREFIX])
    return record_topics.routed_record(cfg, topic, key, value)
