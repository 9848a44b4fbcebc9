"""The error for views that cannot be opened at one position."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceError, SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.incremental.watermarks import WatermarkUnavailable
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import GRANT_OF_LOCKS


def view_error(of_what: str, unavailable: WatermarkUnavailable) -> CdcError:
    """Return the error of a job that needs views at one position.

    Args:
        of_what: The job, for example ``a verification``.
        unavailable: Why there is no such position; its cause, if it has one, says what to do.
    """
    what, cause = f"the views of {of_what} cannot be opened at one position", unavailable.__cause__
    if not isinstance(cause, CdcError):
        return SourceError(what, why=str(unavailable), retriable=True)
    why = f"{cause.what}: {cause.why}" if cause.why else cause.what
    where, remedy = cause.where, cause.remedy
    if isinstance(cause, SourcePrivilegeError):  # the lock is taken whatever snapshot.locking.mode says
        where, remedy = "", GRANT_OF_LOCKS
    return type(cause)(what, where=where, why=why, remedy=remedy, retriable=cause.can_retry)
