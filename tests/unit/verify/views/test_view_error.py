import pytest

from airflow_provider_mysql_cdc.cdc.errors import SourceError, SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.incremental.watermarks import WatermarkUnavailable
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import GRANT_OF_LOCKS
from airflow_provider_mysql_cdc.cdc.verify.views.view_batch import view_error

pytestmark = pytest.mark.quick


def test_the_cause_says_what_to_do_once() -> None:
    unavailable = WatermarkUnavailable("text of the cause")
    unavailable.__cause__ = SourcePrivilegeError(
        "the account may not lock",
        where="snapshot.locking.mode",
        why="denied",
        remedy="set snapshot.locking.mode=none",
        retriable=False,
    )
    error = view_error("a repair", unavailable)
    assert type(error) is SourcePrivilegeError and not error.can_retry
    assert error.why == "the account may not lock: denied" and error.remedy == GRANT_OF_LOCKS
    assert "locking.mode" not in error.message(), "the views need a lock in every mode"
    assert error.message().count("What to do") == 1


def test_without_a_cause_the_reason_is_told() -> None:
    error = view_error("a verification", WatermarkUnavailable("commits are running"))
    assert type(error) is SourceError and error.can_retry and "commits are running" in error.message()
