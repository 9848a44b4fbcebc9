"""``mysql-cdc history``: delete the beginning of a stream's schema history."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TextIO

from airflow_provider_mysql_cdc.cdc.operate.schema_history import trim_history
from airflow_provider_mysql_cdc.commands.stream_options import (
    add_stream_options,
    as_server,
    command_owner,
    confirmed_config,
    open_store,
    read_config,
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
        purpose = subparser.add_mutually_exclusive_group(required=True)
        purpose.add_argument("--dry-run", action="store_true", help="delete nothing, print what would be deleted")
        purpose.add_argument("--confirm", metavar="PREFIX", help="the stream's topic.prefix, as a confirmation")
        subparser.add_argument(
            "--only-stored",
            action="store_true",
            help="keep only what stored offsets need; the offset can then not be moved back to earlier positions that "
            "the source's binlog still has",
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


def _trim(arguments: argparse.Namespace, out: TextIO) -> int:
    cfg = read_config(arguments) if arguments.dry_run else confirmed_config(arguments)
    result = trim_history(
        cfg,
        open_store(arguments, cfg.topic_prefix),
        command_owner("history", "trim"),
        lambda line: print(line, file=sys.stderr),
        dry_run=arguments.dry_run,
        only_stored=arguments.only_stored,
    )
    document = {
        "topic": cfg.history_topic,
        "first": result.first,
        "kept": result.kept,
        "position": str(result.position),
        "needed_by": result.needed_by,
        "deleted": not arguments.dry_run and result.kept > result.first,
    }
    print(json.dumps(document), file=out)
    return 0


ACTIONS: dict[str, tuple[str, Callable[[argparse.Namespace, TextIO], int]]] = {
    "trim": ("Delete the records before the last full description that everything stored needs.", _trim),
}
