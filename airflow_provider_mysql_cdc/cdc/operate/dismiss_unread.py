"""Dismiss captured tables that were never read, because their earlier rows are not wanted."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import NeverReadTable, unread_tables
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.plain_writer import write_plain

ALL_TABLES = "all"


def read_unread(cfg: ConnectorConfig) -> list[NeverReadTable]:
    """Return the captured tables that were never read, in order.

    Args:
        cfg: The connector's configuration.

    Raises:
        CdcError: Kafka cannot be reached, or the ledger is another stream's.
    """
    return list(unread_tables(kafka_clients.ledger(cfg).peek()).values())


def dismiss_unread(cfg: ConnectorConfig, names: Sequence[str]) -> list[NeverReadTable]:
    """Delete the records of unread tables, and return those that are left.

    The records are not part of a transaction: a running drain is not disturbed.

    Args:
        cfg: The connector's configuration.
        names: The tables as ``database.table``; ``all`` stands for all of them.

    Raises:
        ConfigError: One of them is not an unread table; none is dismissed then.
        CdcError: Kafka cannot be reached, or the ledger is another stream's.
    """
    unread = read_unread(cfg)
    dismissed = [each for each in unread if str(each.table) in names or ALL_TABLES in names]
    unknown = set(names) - {ALL_TABLES, *(str(each.table) for each in dismissed)}
    if unknown:
        raise ConfigError(
            "the table is none that was never read",
            where=", ".join(sorted(unknown)),
            why="the stream has " + (", ".join(str(each.table) for each in unread[:20]) or "no such table"),
            remedy="write names as the log has them, database.table; nothing was dismissed",
        )
    records = [SideRecord(cfg.ledger_topic, each.ledger_key().encode(), None) for each in dismissed]
    if records:
        write_plain(cfg.kafka_settings(), records)
    return [each for each in unread if each not in dismissed]
