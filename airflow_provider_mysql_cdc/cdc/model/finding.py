"""What a check before a run has found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.errors import CdcError

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """Report one thing a person should know before a run.

    Args:
        level: ``error`` keeps the run from starting, ``warning`` does not.
        what: What is wrong, one sentence without the trailing period.
        why: Why it matters.
        fix: What to do.
        error: The error to raise; None for a warning.
    """

    level: str
    what: str
    why: str
    fix: str
    error: CdcError | None = None

    def __str__(self) -> str:
        return f"{self.level}: {self.what} ({self.why}); {self.fix}"


def error_finding(error: CdcError) -> Finding:
    """Return the finding of an error."""
    return Finding(ERROR, error.what, error.why, error.remedy, error)


def raise_first_error(findings: Iterable[Finding]) -> None:
    """Raise the first error among findings, if there is one."""
    for finding in findings:
        if finding.error is not None:
            raise finding.error
