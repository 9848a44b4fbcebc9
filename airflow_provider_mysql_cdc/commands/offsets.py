"""``mysql-cdc offsets``: show, history, set, export and import of a stream's stored offset.

Airflow is imported only when a connection or the asset state is used; with ``MYSQL_CDC_OFFSET_URL`` and properties
from a file or the environment it need not be installed.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.config import property_sources
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.operate.export_offsets import (
    export_document,
    import_offsets,
    past_offsets,
    read_document,
)
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset

OFFSET_URL_VARIABLE = "MYSQL_CDC_OFFSET_URL"
"""Environment variable with the offset database's SQLAlchemy URL, which contains a password."""
PROCESS_CONTEXT_VARIABLE = "_AIRFLOW_PROCESS_CONTEXT"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands and their options.

    Args:
        parser: Takes them.
    """
    commands = parser.add_subparsers(dest="action", required=True)
    for name, (text, _) in ACTIONS.items():
        subparser = commands.add_parser(name, help=text, description=text)
        _add_stream_options(subparser)
        if name == "history":
            subparser.add_argument(
                "--limit", type=int, default=20, help="number of offsets to show (default: %(default)s)"
            )
        if name == "export":
            subparser.add_argument(
                "--output", default="-", metavar="FILE", help="file to write (default: standard output)"
            )
        if name == "import":
            subparser.add_argument("file", help="file that export wrote; - for standard input")
            subparser.add_argument("--replace", action="store_true", help="replace a state that is already stored")
        if name == "set":
            subparser.add_argument(
                "offset", help="stored, current, earliest, or file:position at a transaction boundary"
            )
        if name in ("set", "import"):
            subparser.add_argument(
                "--confirm", required=True, metavar="PREFIX", help="the stream's topic.prefix, as a confirmation"
            )


def _add_stream_options(parser: argparse.ArgumentParser) -> None:
    store = parser.add_argument_group("where the offset is stored").add_mutually_exclusive_group()
    store.add_argument(
        "--offset-conn-id", metavar="ID", help=f"connection of a database (default: ${OFFSET_URL_VARIABLE}, if set)"
    )
    store.add_argument("--asset", metavar="NAME", help="asset whose state stores it (default: mysql_cdc_offsets)")
    stream = parser.add_argument_group(
        "which stream; properties that are not set here come from MYSQL_CDC_* in the environment"
    )
    stream.add_argument("--mysql-cdc-conn-id", metavar="ID", help="connection of type mysql_cdc")
    stream.add_argument("--kafka-conn-id", metavar="ID", help="connection of type kafka")
    stream.add_argument("--properties", metavar="FILE", help="JSON file with connector properties")
    stream.add_argument(
        "--topic-prefix", metavar="PREFIX", help="topic.prefix of the stream; sufficient for show, history and export"
    )


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Run a command and return the exit code.

    Args:
        arguments: The parsed command line.
        out: Where the command prints.

    Raises:
        CdcError: The command failed.
    """
    with _as_server():
        return ACTIONS[arguments.action][1](arguments, out)


@contextmanager
def _as_server() -> Iterator[None]:
    """Let Airflow also search for connections in its metadata database, as ``airflow connections get`` does."""
    previous = os.environ.get(PROCESS_CONTEXT_VARIABLE)
    os.environ[PROCESS_CONTEXT_VARIABLE] = previous or "server"
    try:
        yield
    finally:
        if previous is None:
            del os.environ[PROCESS_CONTEXT_VARIABLE]


def _show(arguments: argparse.Namespace, out: TextIO) -> int:
    prefix = _prefix(arguments)
    state = _store(arguments, prefix).load()
    if state is None:
        print(
            f"no offset is stored for {prefix}; the next run restores it from the ledger, if there is one",
            file=sys.stderr,
        )
        return 1
    visible = {name: value for name, value in state.to_json().items() if name not in ("history", "stamp", "version")}
    json.dump({"topic.prefix": prefix, **visible}, out, indent=2)
    print(file=out)
    return 0


def _history(arguments: argparse.Namespace, out: TextIO) -> int:
    prefix = _prefix(arguments)
    for entry in past_offsets(_store(arguments, prefix), arguments.limit):
        at = datetime.fromtimestamp(entry.at_ms / 1000, UTC).isoformat(timespec="seconds")
        print(f"{at}  epoch {entry.epoch}  {entry.offset}", file=out)
    return 0


def _export(arguments: argparse.Namespace, out: TextIO) -> int:
    prefix = _prefix(arguments)
    text = json.dumps(export_document(_store(arguments, prefix), prefix), indent=1) + "\n"
    if arguments.output == "-":
        out.write(text)
    else:
        try:
            Path(arguments.output).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                "the export cannot be written", where=arguments.output, why=str(error), remedy="use another file"
            ) from None
    return 0


def _import(arguments: argparse.Namespace, out: TextIO) -> int:
    cfg = _confirmed_config(arguments)
    imported = read_document(_read_json(arguments.file), arguments.file)
    store = _store(arguments, cfg.topic_prefix)
    state = import_offsets(cfg, store, imported, _owner("import"), _log, replace=arguments.replace)
    return _print_committed(state, out)


def _set(arguments: argparse.Namespace, out: TextIO) -> int:
    cfg = _confirmed_config(arguments)
    store = _store(arguments, cfg.topic_prefix)
    reset_offset(cfg, store, _owner("set"), _log, to=arguments.offset)
    return _print_committed(store.load(), out)


ACTIONS: dict[str, tuple[str, Callable[[argparse.Namespace, TextIO], int]]] = {
    "show": ("Print the stored state as JSON.", _show),
    "history": ("Print the last committed offsets, newest first.", _history),
    "set": ("Move the offset, as the DAG mysql_cdc_reset_offset does.", _set),
    "export": ("Write state and history as a document.", _export),
    "import": ("Store an exported document, as far as the ledger confirms its offset.", _import),
}


def _print_committed(state: StoredState | None, out: TextIO) -> int:
    print(state.committed if state else None, file=out)
    return 0


def _log(line: str) -> None:
    print(line, file=sys.stderr)


def _owner(action: str) -> str:
    """Return an owner in the format of a task's owner; it differs for each user and each call."""
    return f"mysql-cdc offsets/{getpass.getuser()}@{socket.gethostname()} {time.time_ns()}/{action}/-1"


def _read_json(path: str) -> Any:
    try:
        return json.loads(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            "the file cannot be read as JSON", where=path, why=str(error), remedy="use a JSON file"
        ) from None


def _config(arguments: argparse.Namespace) -> ConnectorConfig:
    properties = _read_json(arguments.properties) if arguments.properties else {}
    if not isinstance(properties, dict):
        raise ConfigError(
            "the properties are not a JSON object",
            where=arguments.properties,
            remedy='write the file as {"topic.prefix": "shop", ...}',
        )
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


def _confirmed_config(arguments: argparse.Namespace) -> ConnectorConfig:
    cfg = _config(arguments)
    if arguments.confirm != cfg.topic_prefix:
        raise ConfigError(
            "the command is not confirmed",
            where=f"--confirm {arguments.confirm}",
            why=f"the stream's topic.prefix is {cfg.topic_prefix!r}",
            remedy="set --confirm to the topic.prefix of the stream to change",
        )
    return cfg


def _prefix(arguments: argparse.Namespace) -> str:
    return str(arguments.topic_prefix or _config(arguments).topic_prefix)


def _url(arguments: argparse.Namespace) -> str | None:
    return None if arguments.offset_conn_id or arguments.asset else os.environ.get(OFFSET_URL_VARIABLE)


def _store(arguments: argparse.Namespace, prefix: str) -> OffsetStore:
    if url := _url(arguments):
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
    from airflow_provider_mysql_cdc.operators.offset_asset import DEFAULT_ASSET
    from airflow_provider_mysql_cdc.state.asset_store import AssetOffsetStore
    from airflow_provider_mysql_cdc.state.metadata_accessor import MetadataAccessor

    return AssetOffsetStore(MetadataAccessor(arguments.asset or DEFAULT_ASSET), prefix)
