"""The output of a driver: everything but its error goes to the task log, because the task ends with that error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from airflow_provider_mysql_cdc.cdc.errors import CdcError, from_message

# The line in which ``spark.main`` names the job's error.
_ERROR_LINE = re.compile(r"\[mysql-cdc\] (\w+Error: .*)")


class DriverOutput:
    """Separate the line that names the job's error from the other lines.

    Args:
        debug: Takes that line.
    """

    def __init__(self, debug: Callable[[str], None] = lambda line: None) -> None:
        self._debug = debug
        self._error_text = ""

    def error(self, *, retriable: bool | None = None) -> CdcError | None:
        """Return the error; None when no line names one.

        Args:
            retriable: Whether a retry can help; None for what the line says.
        """
        return from_message(self._error_text, retriable=retriable) if self._error_text else None

    def other_lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines that do not name the error.

        Args:
            lines: The output.
        """
        for line in lines:
            if match := _ERROR_LINE.match(line.strip()):
                self._error_text = match[1]
                self._debug(line)
            else:
                yield line
