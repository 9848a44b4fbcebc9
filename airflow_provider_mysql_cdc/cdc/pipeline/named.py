"""Name what the clients' libraries raise: nothing else than a CdcError leaves a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pymysql
from confluent_kafka import KafkaException

from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter


@contextmanager
def named_errors(cfg: ConnectorConfig) -> Iterator[None]:
    """Turn errors of the MySQL driver into named ones.

    Args:
        cfg: For the server's address.

    Raises:
        SourceError: The leaf that fits the server's message.
    """
    try:
        yield
    except pymysql.MySQLError as error:
        raise from_exception(error, cfg.connection_settings().address()) from error


@contextmanager
def closed(sink: TransactionalWriter) -> Iterator[TransactionalWriter]:
    """Close a writer at the end, so that the error that ended the block stays the one that is told.

    A producer in a fatal state (librdkafka: after a refused transaction, or when it was fenced) raises that state once
    more from every call. What counts was confirmed by a commit before.

    Args:
        sink: The writer.
    """
    try:
        yield sink
    finally:
        with suppress(KafkaException):
            sink.close()
