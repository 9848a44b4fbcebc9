"""Name the statement whose schema history or schema change record is larger than Kafka accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.classify import classify_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.request_limit import BROKER_LIMIT

_TOPIC = re.compile(r"topic ([^\s,;]+)")
_SHOWN = 200
"""Characters of the statement in the error."""


@dataclass(frozen=True, slots=True)
class LargeStatement:
    """Describe the statement of a record.

    Args:
        where: ``file:position``, or the snapshot.
        db: The session's database; empty for none.
        sql: The statement, or its beginning.
        databases: The databases that it changes.
        tables: The tables that it changes.
    """

    where: str
    db: str
    sql: str
    databases: frozenset[str] = frozenset()
    tables: frozenset[TableId] = frozenset()


def refused_topic(error: RecordTooLargeError) -> str:
    """Return the topic of the record that was refused; empty if the error names none."""
    match = _TOPIC.match(error.where)
    return match[1] if match else ""


def name_statement(
    cfg: ConnectorConfig, error: RecordTooLargeError, statement: LargeStatement | None
) -> RecordTooLargeError:
    """Return the error that names the statement and what helps; the same error if there is no statement.

    Args:
        cfg: The connector's configuration.
        error: Why the record was refused.
        statement: The statement of the record.
    """
    if statement is None:
        return error
    return RecordTooLargeError(
        "the record of a statement is larger than Kafka accepts",
        where=f"{statement.where}, database {statement.db or '(none)'}; {error.where}: {statement.sql[:_SHOWN]}",
        why=error.why,
        remedy="; or ".join(_remedies(cfg, error, statement)),
    )


def _remedies(cfg: ConnectorConfig, error: RecordTooLargeError, statement: LargeStatement) -> Iterable[str]:
    topic = refused_topic(error)
    if BROKER_LIMIT in error.why:
        yield f"raise {BROKER_LIMIT} of the brokers"
    else:
        yield (
            f"raise kafka.message.max.bytes, and max.message.bytes of the topic to the same (kafka-configs.sh --alter "
            f"--entity-type topics --entity-name {topic} --add-config max.message.bytes=BYTES)"
        )
    if statement.databases and not any(map(cfg.captures_database, statement.databases)):
        yield f"set {F.STORE_ONLY_CAPTURED_DATABASES_DDL.name}=true, as none of its databases is captured"
    elif statement.tables and not any(map(cfg.needs_schema, statement.tables)):
        yield f"set {F.STORE_ONLY_CAPTURED_TABLES_DDL.name}=true, as none of its tables is captured"
    if topic not in (cfg.history_topic, cfg.ledger_topic):
        yield f"set {F.INCLUDE_SCHEMA_CHANGES.name}=false"


def statement_of_records(
    cfg: ConnectorConfig, error: RecordTooLargeError, records: Sequence[SideRecord], where: str
) -> LargeStatement | None:
    """Return the statement of the largest record of the refused topic; None if that topic has no statements.

    Args:
        cfg: The connector's configuration.
        error: Why one of the records was refused.
        records: All records of the transaction, as JSON.
        where: Where the statements come from.
    """
    topic = refused_topic(error)
    if topic == cfg.ledger_topic:
        return None
    values = [record.value for record in records if record.topic == topic and record.value is not None]
    document = orjson.loads(max(values, key=len, default=b"{}"))
    document = document.get("payload", document)
    if not isinstance(sql := document.get("ddl"), str):
        return None
    db = str(document.get("databaseName") or "")
    tables = frozenset(classify_ddl(sql, DdlContext(default_db=db), cfg.needs_schema).tables)
    return LargeStatement(where, db, sql, frozenset(table.db for table in tables) or frozenset({db} - {""}), tables)
