"""``mysql-cdc preflight``: check the source, Kafka and the schema registry, as the test button of a connection does.

Airflow is imported only when a connection or the asset state is used.
"""

from __future__ import annotations

import argparse
from typing import TextIO

from airflow_provider_mysql_cdc.cdc.operate.check_setup import check_setup
from airflow_provider_mysql_cdc.commands.stream_options import (
    add_stream_options,
    as_server,
    names_store,
    open_store,
    read_config,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options.

    Args:
        parser: Takes them.
    """
    add_stream_options(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print everything that was found; return 1 if an error is among it, which would end a job.

    Args:
        arguments: The parsed command line.
        out: Where the command prints.

    Raises:
        CdcError: The configuration is wrong, or the offset store cannot be read.
    """
    with as_server():
        cfg = read_config(arguments)
        state = open_store(arguments, cfg.topic_prefix).load() if names_store(arguments) else None
        reports = check_setup(cfg, state)
    for report in reports:
        for line in report.lines():
            print(line, file=out)
    return 0 if all(report.ok for report in reports) else 1
