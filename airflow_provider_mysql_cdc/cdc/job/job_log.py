"""The log of a job."""

from __future__ import annotations

from collections import deque

from airflow_provider_mysql_cdc.cdc.model.log import Log

KEPT_LINES = 50
"""Last lines that the progress record has."""
KEPT_CHARS = 300
"""Characters of a line there."""


class JobLog:
    """Write the log of a job.

    Args:
        log: Takes one line of text.
    """

    def __init__(self, log: Log) -> None:
        self._log, self._logged = log, set[str]()
        self._written, self._kept = 0, deque[tuple[int, str]](maxlen=KEPT_LINES)

    def __call__(self, line: str) -> None:
        """Write a line."""
        self._log(line)
        self._written += 1
        self._kept.append((self._written, line[:KEPT_CHARS]))

    def last_lines(self) -> list[tuple[int, str]]:
        """Return the last lines, each with its number in the log, from 1."""
        return list(self._kept)

    def once(self, line: str) -> None:
        """Write a line unless the job has written it before."""
        if line not in self._logged:
            self._logged.add(line)
            self(line)
