"""``mysql-cdc offsets``: show, history, set, export and import of a stream's stored offset.

Airflow is imported only when a connection or the asset state is used; with ``MYSQL_CDC_OFFSET_URL`` and properties
from a file or the environment it need not be installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.stored_record import VERSION_MEMBER
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.operate.stored_offset import (
    PrefixLister,
    export_document,
    import_offsets,
    past_offsets,
    read_document,
)
from airflow_provider_mysql_cdc.commands.stream_options import (
    add_stream_options,
    as_server,
    command_owner,
    confirmed_config,
    open_store,
    read_config,
    read_json,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands and their options.

    Args:
        parser: Takes them.
    """
    commands = parser.add_subparsers(dest="action", required=True)
    for name, (text, _) in ACTIONS.items():
        subparser = commands.add_parser(name, help=text, description=text)
        add_stream_options(subparser)
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
                "offset",
                help="stored, current, earliest, file:position at a transaction boundary, or the GTID set executed "
                "before it",
            )
        if name in ("set", "import"):
            subparser.add_argument(
                "--confirm", required=True, metavar="PREFIX", help="the stream's topic.prefix, as a confirmation"
            )


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Run a command and return the exit code.

    Args:
        arguments: The parsed command line.
        out: Where the command prints.

    Raises:
        CdcError: The command failed.
    """
    with as_server():
        return ACTIONS[arguments.action][1](arguments, out)


def _show(arguments: argparse.Namespace, out: TextIO) -> int:
    prefix = _prefix(arguments)
    store = open_store(arguments, prefix)
    state = store.load()
    if state is None:
        print(_describe_unknown(store, prefix), file=sys.stderr)
        return 1
    hidden = ("history", "stamp", VERSION_MEMBER)
    visible = {name: value for name, value in state.to_json().items() if name not in hidden}
    json.dump({"topic.prefix": prefix, **visible}, out, indent=2)
    print(file=out)
    return 0


def _describe_unknown(store: OffsetStore, prefix: str) -> str:
    """Return what can be said of a topic.prefix without a stored offset, which may be misspelt."""
    stored = store.prefixes() if isinstance(store, PrefixLister) else []
    others = f"; it has offsets of {', '.join(stored)}" if stored else ""
    return (
        f"nothing is known of topic.prefix={prefix}: the store has no offset of it{others}. Check the spelling. If a "
        "stream of this name has run, its next run restores the offset from the ledger"
    )


def _history(arguments: argparse.Namespace, out: TextIO) -> int:
    prefix = _prefix(arguments)
    for entry in past_offsets(open_store(arguments, prefix), arguments.limit):
        at = datetime.fromtimestamp(entry.at_ms / 1000, UTC).isoformat(timespec="seconds")
        print(f"{at}  epoch {entry.epoch}  {entry.offset}", file=out)
    return 0


def _export(arguments: argparse.Namespace, out: TextIO) -> int:
    prefix = _prefix(arguments)
    text = json.dumps(export_document(open_store(arguments, prefix), prefix), indent=1) + "\n"
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
    cfg = confirmed_config(arguments)
    imported = read_document(read_json(arguments.file), arguments.file)
    store = open_store(arguments, cfg.topic_prefix)
    state = import_offsets(cfg, store, imported, command_owner("offsets", "import"), _log, replace=arguments.replace)
    return _print_committed(state, out)


def _set(arguments: argparse.Namespace, out: TextIO) -> int:
    cfg = confirmed_config(arguments)
    store = open_store(arguments, cfg.topic_prefix)
    reset_offset(cfg, store, command_owner("offsets", "set"), _log, to=arguments.offset)
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


def _prefix(arguments: argparse.Namespace) -> str:
    return str(arguments.topic_prefix or read_config(arguments).topic_prefix)
