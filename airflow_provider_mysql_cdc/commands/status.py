"""``mysql-cdc status``: state, lag and metrics of a stream, whether a run of it is active or not.

It changes nothing, and needs no offset store. Airflow is imported only when a connection is used.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TextIO

from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import write_metrics_file
from airflow_provider_mysql_cdc.cdc.operate.stream_status import StreamStatus, read_status
from airflow_provider_mysql_cdc.commands.stream_options import add_which_stream, as_server, read_config

FORMATS: dict[str, Callable[[StreamStatus], str]] = {
    "json": lambda status: json.dumps(status.to_json(), indent=2, ensure_ascii=False) + "\n",
    "prometheus": StreamStatus.prometheus,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options.

    Args:
        parser: Takes them.
    """
    add_which_stream(parser)
    parser.add_argument(
        "--format", choices=FORMATS, default="json", help="how the status is written (default: %(default)s)"
    )
    parser.add_argument(
        "--output", default="-", metavar="FILE", help="file to replace as a whole (default: standard output)"
    )


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Write the status and return the exit code.

    Args:
        arguments: The parsed command line.
        out: Where the command prints.

    Raises:
        CdcError: The configuration is wrong, Kafka does not answer, or the file cannot be written.
    """
    with as_server():
        text = FORMATS[arguments.format](read_status(read_config(arguments)))
    if arguments.output == "-":
        out.write(text)
    else:
        write_metrics_file(arguments.output, text)
    return 0
