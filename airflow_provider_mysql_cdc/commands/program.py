"""The program ``mysql-cdc``: commands for use outside of Airflow."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

from airflow_provider_mysql_cdc import __version__
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.commands import (
    changefeed,
    debezium,
    history,
    offsets,
    preflight,
    spark_classes,
    status,
    unread,
    verify,
)
from airflow_provider_mysql_cdc.environment import __main__

_DOCUMENT_COMMANDS = {
    "offsets": offsets.run,
    "history": history.run,
    "preflight": preflight.run,
    "status": status.run,
    "unread": unread.run,
    "verify": verify.run,
    "changefeed": changefeed.run,
    "spark-classes": spark_classes.run,
    "import-debezium": debezium.run_import,
    "export-debezium": debezium.run_export,
}
"""Commands that print a document, or a setting to copy, to standard output."""


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="mysql-cdc", description="Commands for use outside of Airflow.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    text = "Show and move the stored offset of a stream."
    offsets.add_arguments(commands.add_parser("offsets", help=text, description=text))
    text = "Delete the beginning of a stream's schema history that nothing needs any more."
    history.add_arguments(commands.add_parser("history", help=text, description=text))
    text = "Check the source, Kafka and the schema registry of a stream, as the test button of its connection does."
    preflight.add_arguments(commands.add_parser("preflight", help=text, description=text))
    text = "Show state, lag and metrics of a stream."
    status.add_arguments(commands.add_parser("status", help=text, description=text))
    text = "Show the captured tables of a stream that were never read, or dismiss them."
    unread.add_arguments(commands.add_parser("unread", help=text, description=text))
    text = (
        "Print the last verdict about each table of a stream: whether its topic equals it. Exit code: 0 equal, "
        "1 differences are left, 3 something was not judged."
    )
    verify.add_arguments(commands.add_parser("verify", help=text, description=text))
    text = "Pack the Python environment of Spark's drivers and executors, without Airflow."
    __main__.add_arguments(commands.add_parser("environment", help=text, description=text))
    text = "Print the connector properties that are equivalent to a TiCDC changefeed."
    changefeed.add_arguments(commands.add_parser("changefeed", help=text, description=text))
    text = "Store the classes of Spark's driver in an archive, with which its JVM starts faster."
    spark_classes.add_arguments(commands.add_parser("spark-classes", help=text, description=text))
    text = "Take a stream over from a Debezium connector that is stopped: its offset, and the structures there."
    debezium.add_import_arguments(commands.add_parser("import-debezium", help=text, description=text))
    text = "Give a stream back: write the offset and the structures from which a Debezium connector goes on."
    debezium.add_export_arguments(commands.add_parser("export-debezium", help=text, description=text))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code: 0 for success, 1 for a named error, 2 for a wrong command line.

    ``verify`` returns 3 where something could not be judged.

    Args:
        argv: Command line without the program's name; None uses the process's.
    """
    arguments = command_line().parse_args(argv)
    if arguments.command == "environment":
        return __main__.run(arguments)
    out = sys.stdout
    try:
        # Airflow logs to standard output, where only the command's document may go.
        with redirect_stdout(sys.stderr):
            return _DOCUMENT_COMMANDS[arguments.command](arguments, out)
    except CdcError as error:
        print(f"{type(error).__name__}: {error.message()}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
