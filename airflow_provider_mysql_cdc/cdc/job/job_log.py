"""The log of a job."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.model.log import Log


class JobLog:
    """Write the log of a job.

    Args:
        log: Takes one line of text.
    """

    def __init__(self, log: Log) -> None:
        self._log, self._logged = log, set[str]()

    def __call__(self, line: str) -> None:
        """Write a line."""
        self._log(line)

    def once(self, line: str) -> None:
        """Write a line unless the job has written it before."""
        if self.is_new(line):
            self._log(line)

    def is_new(self, subject: str) -> bool:
        """Return whether the job asks this for the first time.

        Args:
            subject: A line, or the key of what is logged.
        """
        new = subject not in self._logged
        self._logged.add(subject)
        return new
