"""snapshot.mode=recovery: rebuild a lost or damaged schema history and keep the stored offset (SNAP-08, SCH-16).

The current table structures are read from the server and written as of the stored offset. That is correct only if the
binlog has no DDL of a captured table in between, which is checked.
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_query
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.classify import classify_ddl, in_any_case
from airflow_provider_mysql_cdc.cdc.ddl.lexer import tokenize
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.schema.history import require_own_history
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import unwrap_error
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts

DELETE_SECONDS = 30.0


def is_recovery(cfg: ConnectorConfig) -> bool:
    """Return whether the configuration asks for a recovery."""
    return str(cfg[F.SNAPSHOT_MODE]) == "recovery"


def replace_history(cfg: ConnectorConfig, start: BinlogOffset, end: BinlogOffset) -> None:
    """Delete the history topic after checking that it can be rebuilt; a refused recovery leaves it unchanged.

    Args:
        cfg: The connector's configuration.
        start: The stored offset.
        end: The end of the binlog, read while no captured table can change its structure.

    Raises:
        SchemaError: A captured table changed since the stored offset, the topic has records of others, or it cannot be
            deleted.
    """
    require_no_ddl(cfg, start, end)
    require_own_history(cfg)
    admin = make_admin(cfg.kafka_settings())
    if cfg.history_topic not in all_partition_counts(admin):
        return
    for future in admin.delete_topics([cfg.history_topic]).values():
        try:
            future.result(DELETE_SECONDS)
        except KafkaException as error:
            if unwrap_error(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _not_deleted(cfg, str(unwrap_error(error))) from error
    deadline = time.monotonic() + DELETE_SECONDS
    while cfg.history_topic in all_partition_counts(admin):
        if time.monotonic() > deadline:
            raise _not_deleted(cfg, f"the topic still exists {DELETE_SECONDS:.0f} s after its deletion")
        time.sleep(0.1)


def _not_deleted(cfg: ConnectorConfig, why: str) -> SchemaError:
    return SchemaError(
        "the old schema history cannot be deleted",
        where=f"topic {cfg.history_topic}",
        why=why,
        remedy="grant the Kafka account Delete on the topic, or delete the topic with another account; then run "
        "the task "
        "again",
    )


def require_no_ddl(cfg: ConnectorConfig, start: BinlogOffset, end: BinlogOffset) -> None:
    """Check that the structure of no captured table changed in a range of the binlog.

    Args:
        cfg: The connector's configuration.
        start: The stored offset.
        end: The position at which the structures were read.

    Raises:
        SchemaError: A structure changed; the error names the statement and its position.
    """
    for event in BinlogScan(cfg.connection_settings(), start, end):
        if event.type != c.QUERY_EVENT:
            continue
        query = parse_query(event)
        context = DdlContext.from_query(query)
        classified = classify_ddl(query.sql, context, in_any_case(cfg.captures))
        # The character set of a database only matters to tables created later, which are found themselves. TRUNCATE
        # does not change the structure.
        keywords = set(classified.leading_words.split()[:2])
        if (
            classified.relevant
            and not {"DATABASE", "SCHEMA", "TRUNCATE"} & keywords
            and (context.atomic or not _is_create_if_not_exists(query.sql, context.sql_mode))
        ):
            raise SchemaError(
                "the schema history cannot be rebuilt: the structure of a captured table changed since the "
                "stored offset",
                where=f"{event.file}:{event.start_pos}: {query.sql[:300]}",
                why="the server only has the structure after this statement, not the one at the stored offset",
                remedy="take a new snapshot: mysql_cdc_reset_offset with current (changes that are not drained are "
                "skipped), then mysql_cdc_snapshot with again=true and snapshot.mode=initial",
            )


def _is_create_if_not_exists(sql: str, sql_mode: int) -> bool:
    """Return whether a statement is CREATE TABLE IF NOT EXISTS, which the stream passes over where it has the table.

    It does so unless the server has logged it as an atomic change: then the statement has created the table.
    """
    words = [token.upper for token in tokenize(sql, sql_mode, limit=5)]
    return words[:5] == ["CREATE", "TABLE", "IF", "NOT", "EXISTS"]
