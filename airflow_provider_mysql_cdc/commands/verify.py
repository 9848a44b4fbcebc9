"""``mysql-cdc verify``: the last verdict about each table of a stream, as the ledger has it.

It starts none: the Spark job needs Airflow's offset store, connections and Spark settings. From a shell,
``airflow dags trigger mysql_cdc_verify`` starts one. Airflow is imported only when a connection is used.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TextIO

from airflow_provider_mysql_cdc.cdc.operate.settle import NOT_JUDGED_EXIT, exit_code, last_verification
from airflow_provider_mysql_cdc.cdc.verify.report.report_text import report_text
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyResult
from airflow_provider_mysql_cdc.commands.stream_options import add_which_stream, as_server, read_config

REPORTS: dict[str, Callable[[VerifyResult], str]] = {
    "text": lambda result: report_text(result) + "\n",
    "json": lambda result: json.dumps(result.to_json(), indent=1, default=str) + "\n",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_which_stream(parser)
    parser.add_argument(
        "--format", choices=REPORTS, default="text", help="how the report is printed (default: %(default)s)"
    )


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the report of the last verdicts; return 1 if differences are left, 3 if something was not judged.

    Raises:
        CdcError: The configuration is wrong, or Kafka does not answer.
    """
    with as_server():
        cfg = read_config(arguments)
        result = last_verification(cfg)
    if result is None:
        print(
            f"topic.prefix={cfg.topic_prefix} was never verified. The DAG mysql_cdc_verify does it: "
            "airflow dags trigger mysql_cdc_verify",
            file=sys.stderr,
        )
        return NOT_JUDGED_EXIT
    out.write(REPORTS[arguments.format](result))
    return exit_code(result)
