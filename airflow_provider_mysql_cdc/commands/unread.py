"""``mysql-cdc unread``: captured tables that were never read, and how to dismiss them.

Airflow is imported only when a connection is used.
"""

from __future__ import annotations

import argparse
import json
from typing import TextIO

from airflow_provider_mysql_cdc.cdc.operate.reset_offset import dismiss_unread, read_unread
from airflow_provider_mysql_cdc.commands.stream_options import add_which_stream, as_server, read_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options.

    Args:
        parser: Takes them.
    """
    add_which_stream(parser)
    parser.add_argument(
        "--dismiss",
        nargs="+",
        default=[],
        metavar="DATABASE.TABLE",
        help="tables whose earlier rows are not wanted: drains do not name them any more; all stands for all of them",
    )


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the tables as JSON, those that were dismissed left out.

    Args:
        arguments: The parsed command line.
        out: Where the command prints.

    Raises:
        CdcError: The configuration is wrong, Kafka does not answer, or a table to dismiss is none of them.
    """
    with as_server():
        cfg = read_config(arguments)
        unread = dismiss_unread(cfg, arguments.dismiss) if arguments.dismiss else read_unread(cfg)
    tables = [{"table": str(each.table), "where": each.where, "why": each.why} for each in unread]
    out.write(json.dumps(tables, indent=1, ensure_ascii=False) + "\n")
    return 0
