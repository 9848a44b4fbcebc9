"""``mysql-cdc import-debezium`` and ``export-debezium``: take a stream over from a connector, and give it back.

Airflow is imported only when a connection or the asset state is used.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TextIO

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.debezium import stopped
from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import offset_key, rest_document, with_offset
from airflow_provider_mysql_cdc.cdc.debezium.export_connector import (
    ExportedStream,
    export_stream,
    mark_given_back,
    write_history,
    write_offset,
)
from airflow_provider_mysql_cdc.cdc.debezium.import_request import (
    OWN_SUFFIX,
    ConnectorPlaces,
    StreamOfConnector,
    connector_name,
    import_connector,
)
from airflow_provider_mysql_cdc.cdc.debezium.sources import read_file, write_signals_read
from airflow_provider_mysql_cdc.cdc.debezium.stopped import ConnectRest
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.replaced_file import replace_bytes
from airflow_provider_mysql_cdc.commands.stream_options import (
    add_stream_options,
    as_server,
    command_owner,
    confirmed_config,
    open_store,
    read_config,
)

_HISTORY = F.HISTORY_KAFKA_TOPIC.name


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``import-debezium``.

    Args:
        parser: Takes them.
    """
    add_stream_options(parser)
    _add_purpose(parser, "print what would be stored")
    _add_connector(parser)
    source = parser.add_argument_group("the connector's offset; by default Kafka Connect is asked")
    group = source.add_mutually_exclusive_group()
    group.add_argument("--offsets-topic", metavar="TOPIC", help="topic of the worker's offset.storage.topic")
    group.add_argument(
        "--offsets-file",
        metavar="FILE",
        help="file of a standalone worker (offset.storage.file.filename), or what GET /connectors/NAME/offsets answers",
    )
    source.add_argument(
        "--trust-offset",
        action="store_true",
        help="take the offset as it is where records do not say their place (behind a transform): the connector was "
        "stopped, not killed",
    )
    source.add_argument(
        "--ignore-dumps",
        action="store_true",
        help="do not ask whether somebody reads the binlog under the connector's account, as it is asked without "
        "--connect-url",
    )
    history = parser.add_argument_group("the schema history")
    group = history.add_mutually_exclusive_group()
    group.add_argument("--debezium-history-topic", metavar="TOPIC", help=f"the connector's (default: its {_HISTORY})")
    group.add_argument("--debezium-history-file", metavar="FILE", help="the connector's, in a file")
    _add_own_history(history)


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``export-debezium``.

    Args:
        parser: Takes them.
    """
    add_stream_options(parser)
    _add_purpose(parser, "write nothing, print the offset as the body of PATCH /connectors/NAME/offsets")
    _add_connector(parser)
    history = parser.add_argument_group("the schema history")
    group = history.add_mutually_exclusive_group()
    group.add_argument(
        "--debezium-history-topic",
        metavar="TOPIC",
        help="the connector's, to which the structures are appended; created if it is missing (default: the one that "
        f"{_HISTORY} names, if it is the connector's)",
    )
    group.add_argument("--debezium-history-file", metavar="FILE", help="the connector's, in a file")
    _add_own_history(history)
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--offsets-topic", metavar="TOPIC", help="write the offset into the topic of the worker's offsets"
    )
    group.add_argument("--offsets-file", metavar="FILE", help="write it into the file of a standalone worker")


def _add_own_history(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--history-topic",
        metavar="TOPIC",
        help=f"topic of this stream's own history, if {_HISTORY} names the connector's (default: that name and "
        f"{OWN_SUFFIX})",
    )


def _add_purpose(parser: argparse.ArgumentParser, text: str) -> None:
    purpose = parser.add_mutually_exclusive_group(required=True)
    purpose.add_argument("--dry-run", action="store_true", help=text)
    purpose.add_argument("--confirm", metavar="PREFIX", help="the stream's topic.prefix, as a confirmation")


def _add_connector(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the connector")
    group.add_argument("--connector-name", metavar="NAME", help="its name in Kafka Connect (default: that of its JSON)")
    group.add_argument("--connect-url", metavar="URL", help="Kafka Connect's REST interface, as http://HOST:8083")


def run_import(arguments: argparse.Namespace, out: TextIO) -> int:
    """Take a stream over and return the exit code.

    Args:
        arguments: The parsed command line.
        out: Where the result is printed.

    Raises:
        CdcError: The stream cannot be taken over.
    """
    with as_server():
        given = read_config(arguments) if arguments.dry_run else confirmed_config(arguments)
        document = import_connector(
            given,
            _places(arguments),
            None if arguments.dry_run else open_store(arguments, given.topic_prefix),
            command_owner("import-debezium", "take-over"),
            _log,
            trusts_offset=arguments.trust_offset,
            ignores_dumps=arguments.ignore_dumps,
        )
    print(json.dumps(document, indent=2), file=out)
    return 0


def _places(arguments: argparse.Namespace) -> ConnectorPlaces:
    return ConnectorPlaces(
        name=arguments.connector_name or "",
        connect=ConnectRest.at(arguments.connect_url) if arguments.connect_url else None,
        offsets_topic=arguments.offsets_topic or "",
        offsets_file=arguments.offsets_file or "",
        history_topic=arguments.debezium_history_topic or "",
        history_file=arguments.debezium_history_file or "",
        own_history=arguments.history_topic or "",
    )


def run_export(arguments: argparse.Namespace, out: TextIO) -> int:
    """Give a stream back and return the exit code.

    Args:
        arguments: The parsed command line.
        out: Where the result is printed.

    Raises:
        CdcError: The stream cannot be given back.
    """
    places = _places(arguments)
    with as_server():
        given = read_config(arguments) if arguments.dry_run else confirmed_config(arguments)
        stream = StreamOfConnector.of(given, places)
        cfg, name = stream.cfg, connector_name(given, places)
        history = places.history_topic or (given.history_topic if stream.set else "")
        store = open_store(arguments, cfg.topic_prefix)
        exported = export_stream(cfg, store, command_owner("export-debezium", "give-back"), _log)
        if not arguments.dry_run:
            if places.connect is not None:
                _log(stopped.require_stopped(places.connect, name, cfg.topic_prefix).text)
            _write(arguments, cfg, name, history, exported)
            mark_given_back(cfg, exported)
    json.dump(rest_document(exported.offset, cfg.topic_prefix), out, indent=2)
    print(file=out)
    return 0


def _write(
    arguments: argparse.Namespace, cfg: ConnectorConfig, name: str, history: str, exported: ExportedStream
) -> None:
    """Write history and offset where the options say; the history first, without which an offset is of no use."""
    if arguments.debezium_history_file:
        _append(arguments.debezium_history_file, b"".join(value + b"\n" for value in exported.history))
    elif history:
        _log(f"{write_history(cfg, history, exported)} record(s) appended to the history topic {history}")
    else:
        raise ConfigError(
            "it is not said where the connector's schema history is",
            why=f"{_HISTORY} names this stream's own, which a connector cannot use",
            remedy="give --debezium-history-topic, the topic of the connector's JSON or a new one, or "
            "--debezium-history-file",
        )
    if exported.signals is not None:
        write_signals_read(cfg, exported.signals)
        _log(f"group {cfg[F.SIGNAL_KAFKA_GROUP_ID]} goes on at offset {exported.signals} of the signal topic")
    if not (arguments.offsets_topic or arguments.offsets_file):
        return
    if not name:
        raise ConfigError("the connector's name is missing", remedy="give --connector-name")
    if arguments.offsets_topic:
        write_offset(cfg, arguments.offsets_topic, name, exported)
        _log(f"the offset is written to topic {arguments.offsets_topic}")
        return
    path = Path(arguments.offsets_file)
    data = with_offset(
        read_file(str(path)) if path.exists() else b"",
        offset_key(name, cfg.topic_prefix),
        exported.offset,
        str(path),
    )
    try:
        replace_bytes(path, data, path.stat().st_mode & 0o777 if path.exists() else 0o600)
    except OSError as error:
        raise ConfigError("the file cannot be written", where=str(path), why=str(error), remedy="check it") from None
    _log(f"the offset is written to {path}")


def _append(path: str, data: bytes) -> None:
    try:
        with Path(path).open("ab") as file:
            file.write(data)
    except OSError as error:
        raise ConfigError("the file cannot be written", where=path, why=str(error), remedy="check its name") from None


def _log(line: str) -> None:
    print(line, file=sys.stderr)
