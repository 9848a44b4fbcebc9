"""The output of a driver: everything but its error goes to the task log, because the task ends with that error."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.errors import CdcError, from_message

# The line in which ``spark.main`` names the job's error.
_ERROR_LINE = re.compile(r"\[mysql-cdc\] (\w+Error: .*)")
# The line of ``spark.main``; those of spark-submit in deploy mode cluster (org.apache.spark.deploy.yarn.Client and
# org.apache.spark.deploy.k8s.submit.LoggingPodStatusWatcherImpl, 4.3).
_APPLICATION = re.compile(
    r"\[mysql-cdc\] Spark application ([^\s,]+)|Submitted application (application_\w+)|"
    r"spark-app-selector -> (spark-\w+)"
)
_PAGE = re.compile(r"\[mysql-cdc\] Spark application \S+, page (https?://\S+)|tracking URL: (https?://\S+)")
TAIL_LINES = 50
"""Lines of a driver's output that one look brings at most: the newest ones."""
TAIL_BYTES = 1 << 16
"""Bytes of it that one look reads at most."""
LINE_CHARS = 1000
"""Characters of a line that a look brings at most."""
LEFT_OUT = "(lines of the driver were left out)"


@dataclass(frozen=True, slots=True)
class SparkApplication:
    """Name a Spark application.

    Args:
        id: Its id; empty as long as it is not known.
        page: Address of its web page while it runs, if it has one.
    """

    id: str = ""
    page: str = ""

    def with_line(self, line: str) -> SparkApplication:
        """Return it with what a line of output says.

        Args:
            line: A line of the driver, or of spark-submit.
        """
        found, page = _APPLICATION.search(line), _PAGE.search(line)
        if found is None and page is None:
            return self
        return SparkApplication(_group(found) or self.id, _group(page) or self.page)


def _group(match: re.Match[str] | None) -> str:
    return "" if match is None else str(match[match.lastindex or 0])


class DriverOutput:
    """Separate the line that names the job's error from the other lines, and find the one that names the application.

    Args:
        debug: Takes the line that names the error.
        on_application: Takes the Spark application each time more is known about it.
    """

    def __init__(
        self,
        debug: Callable[[str], None] = lambda line: None,
        on_application: Callable[[SparkApplication], None] = lambda application: None,
    ) -> None:
        self._debug, self.on_application = debug, on_application
        self.application = SparkApplication()
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
                continue
            if (application := self.application.with_line(line)) != self.application:
                self.application = application
                self.on_application(application)
            yield line


@dataclass(slots=True)
class OutputTail:
    """Read the output of a running driver little by little, as much of it as a log can bear.

    Args:
        path: File with the output; it may not exist.
        position: Bytes of it that were read.
    """

    path: Path
    position: int = 0

    def new_lines(self) -> list[str]:
        """Return the lines that were written since the last look, without the one that names the job's error.

        At most ``TAIL_LINES`` of the last ``TAIL_BYTES`` are returned, behind a note if there were more. A line that is
        still being written comes with the next look.
        """
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                start = max(self.position, end - TAIL_BYTES)
                file.seek(start)
                block = file.read(end - start)
        except OSError:
            return []
        cut = start > self.position
        if cut:  # it begins inside a line
            start, block = start + block.find(b"\n") + 1, block[block.find(b"\n") + 1 :]
        whole = block[: block.rfind(b"\n") + 1]
        self.position = start + len(whole)
        lines = list(DriverOutput().other_lines(whole.decode(errors="replace").splitlines()))
        shown = [line[:LINE_CHARS] for line in lines[-TAIL_LINES:]]
        return [LEFT_OUT, *shown] if cut or len(lines) > TAIL_LINES else shown
