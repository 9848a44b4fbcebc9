"""Options that say which stream a command is for, and where its offset is stored.

Airflow is imported only when a connection or the asset state is used.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.config import property_sources
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.property_names import connect_properties
from airflow_provider_mysql_cdc.cdc.config.read_properties import canonical_name
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

OFFSET_URL_VARIABLE = "MYSQL_CDC_OFFSET_URL"
"""Environment variable with the offset database's SQLAlchemy URL, which contains a password."""
PROCESS_CONTEXT_VARIABLE = "_AIRFLOW_PROCESS_CONTEXT"


def add_stream_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say which stream, and where its offset is stored.

    Args:
        parser: Takes them.
    """
    store = parser.add_argument_group("where the offset is stored").add_mutually_exclusive_group()
    store.add_argument(
        "--offset-conn-id", metavar="ID", help=f"connection of a database (default: ${OFFSET_URL_VARIABLE}, if set)"
    )
    store.add_argument("--asset", metavar="NAME", help="asset whose state stores it (default: mysql_cdc_offsets)")
    add_which_stream(parser, "; sufficient for show, history and export")


def add_which_stream(parser: argparse.ArgumentParser, prefix_note: str = "") -> None:
    """Declare the options that say which stream.

    Args:
        parser: Takes them.
        prefix_note: End of the help text of ``--topic-prefix``.
    """
    stream = parser.add_argument_group(
        "which stream; properties that are not set here come from MYSQL_CDC_* in the environment"
    )
    stream.add_argument("--mysql-cdc-conn-id", metavar="ID", help="connection of type mysql_cdc")
    stream.add_argument("--kafka-conn-id", metavar="ID", help="connection of type kafka")
    stream.add_argument(
        "--properties", metavar="FILE", help="JSON file with connector properties, or a connector's JSON as it is"
    )
    stream.add_argument("--topic-prefix", metavar="PREFIX", help=f"topic.prefix of the stream{prefix_note}")


@contextmanager
def as_server() -> Iterator[None]:
    """Let Airflow also search for connections in its metadata database, as ``airflow connections get`` does."""
    previous = os.environ.get(PROCESS_CONTEXT_VARIABLE)
    os.environ[PROCESS_CONTEXT_VARIABLE] = previous or "server"
    try:
        yield
    finally:
        if previous is None:
            del os.environ[PROCESS_CONTEXT_VARIABLE]


def read_json(path: str) -> Any:
    """Return the content of a JSON file, or of standard input for ``-``.

    Args:
        path: The file.

    Raises:
        ConfigError: It cannot be read as JSON.
    """
    try:
        return json.loads(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            "the file cannot be read as JSON", where=path, why=str(error), remedy="use a JSON file"
        ) from None


def _file_properties(path: str) -> dict[str, Any]:
    """Return the properties of a file: an object of properties, or a configuration of Kafka Connect."""
    try:
        return connect_properties(read_json(path))
    except ConfigError as error:
        raise ConfigError(error.what, where=error.where or path, why=error.why, remedy=error.remedy) from None


def read_config(arguments: argparse.Namespace, more: Mapping[str, str] = MappingProxyType({})) -> ConnectorConfig:
    """Return the configuration of the stream that the options name.

    Args:
        arguments: The parsed command line.
        more: Properties that replace those of the file.

    Raises:
        ConfigError: A property is wrong or missing.
    """
    properties = _file_properties(arguments.properties) if arguments.properties else {}
    kept = {name: value for name, value in properties.items() if canonical_name(name) not in more}
    properties = {**kept, **more}
    if arguments.topic_prefix:
        properties["topic.prefix"] = arguments.topic_prefix
    if arguments.mysql_cdc_conn_id:
        from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook

        return MySqlCdcHook(arguments.mysql_cdc_conn_id, arguments.kafka_conn_id).get_config(properties)
    return property_sources.load_config(
        [
            property_sources.params_source(properties, arguments.properties or "--topic-prefix"),
            property_sources.environment_source(os.environ),
        ]
    )


def confirmed_config(arguments: argparse.Namespace, more: Mapping[str, str] = MappingProxyType({})) -> ConnectorConfig:
    """Return the configuration of the stream that ``--confirm`` names too.

    Args:
        arguments: The parsed command line.
        more: Properties that replace those of the file.

    Raises:
        ConfigError: ``--confirm`` names another one, or a property is wrong or missing.
    """
    cfg = read_config(arguments, more)
    if arguments.confirm != cfg.topic_prefix:
        raise ConfigError(
            "the command is not confirmed",
            where=f"--confirm {arguments.confirm}",
            why=f"the stream's topic.prefix is {cfg.topic_prefix!r}",
            remedy="set --confirm to the topic.prefix of the stream to change",
        )
    return cfg


def command_owner(command: str, action: str) -> str:
    """Return an owner in the format of a task's owner; it differs for each user and each call.

    Args:
        command: The command, as ``offsets``.
        action: What it does, as ``set``.
    """
    return f"mysql-cdc {command}/{getpass.getuser()}@{socket.gethostname()} {time.time_ns()}/{action}/-1"


def names_store(arguments: argparse.Namespace) -> bool:
    """Return whether options or environment say where the offset is stored.

    Args:
        arguments: The parsed command line.
    """
    return bool(arguments.offset_conn_id or arguments.asset or os.environ.get(OFFSET_URL_VARIABLE))


def _offset_url(arguments: argparse.Namespace) -> str | None:
    return None if arguments.offset_conn_id or arguments.asset else os.environ.get(OFFSET_URL_VARIABLE)


def open_store(arguments: argparse.Namespace, prefix: str) -> OffsetStore:
    """Return the store of the offset.

    Args:
        arguments: The parsed command line.
        prefix: topic.prefix of the stream.

    Raises:
        ConfigError: The store cannot be opened.
    """
    if url := _offset_url(arguments):
        import sqlalchemy

        from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore

        try:
            return SqlOffsetStore(sqlalchemy.create_engine(url), prefix)
        except (sqlalchemy.exc.ArgumentError, ValueError, ImportError) as error:
            # SQLAlchemy's message shows parts of a URL that it cannot parse, possibly of the password.
            why = str(error) if isinstance(error, ImportError) else "it is not an SQLAlchemy URL"
            raise ConfigError(
                "the URL of the offset database cannot be used",
                where=OFFSET_URL_VARIABLE,
                why=why,
                remedy="write it as dialect+driver://account:password@host:port/database; in account and password "
                "write @ : / % as %40 %3A %2F %25",
            ) from None
    if arguments.offset_conn_id:
        from airflow_provider_mysql_cdc.state.offset_database import sql_store

        return sql_store(arguments.offset_conn_id, prefix)
    from airflow_provider_mysql_cdc.operators.asset_events import DEFAULT_ASSET
    from airflow_provider_mysql_cdc.state.asset_store import AssetOffsetStore, MetadataAccessor

    return AssetOffsetStore(MetadataAccessor(arguments.asset or DEFAULT_ASSET), prefix)
