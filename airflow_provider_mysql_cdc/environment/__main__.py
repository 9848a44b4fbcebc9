"""The command that packs the environment of Spark's drivers and executors.

``python -m airflow_provider_mysql_cdc.environment --output environment.tar.gz``
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.environment.packed import pack


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options.

    Args:
        parser: Takes them.
    """
    parser.add_argument("--output", type=Path, default=Path("environment.tar.gz"), help="file to write (%(default)s)")
    parser.add_argument("--python", help="interpreter to pack, as a path or version (default: the current one)")
    parser.add_argument(
        "--on-nodes",
        metavar="PATH",
        help="pack no interpreter; use this one, which must exist on every machine of the cluster",
    )
    parser.add_argument(
        "--with",
        dest="more",
        action="append",
        default=[],
        metavar="NAME",
        help="additional installed package; repeatable",
    )


def run(arguments: argparse.Namespace) -> int:
    """Pack and print how to use the archive; return the exit code.

    Args:
        arguments: The parsed command line.
    """
    try:
        pack(arguments.output, python=arguments.python, on_nodes=arguments.on_nodes, more=arguments.more)
    except CdcError as error:
        print(f"{type(error).__name__}: {error.message()}", file=sys.stderr)
        return 1
    print(f"to use it, pass this to the operators: archives={str(arguments.output) + '#environment'!r}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_mysql_cdc.environment",
        description="Pack the Python environment of Spark's drivers and executors, without Airflow.",
    )
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
