"""The bound of time of a verification's queries, over a made-up connection."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest
from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.errors import SourceError, SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.incremental.watermarks import WatermarkUnavailable
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import GRANT_OF_LOCKS
from airflow_provider_mysql_cdc.cdc.verify.views.view_batch import rows_per_query, time_limit, view_error

pytestmark = pytest.mark.quick

ENDED = pymysql.OperationalError(3024, "Query execution was interrupted, maximum statement execution time exceeded")


class Connection:
    """Keeps the statements that it is given."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def cursor(self) -> Connection:
        return self

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def execute(self, sql: str, args: tuple[Any, ...] | None = None) -> None:
        self.statements.append(sql % (args or ()))

    def fetchall(self) -> list[tuple[Any, ...]]:
        return []


def test_the_session_has_the_limit_for_as_long_as_the_verification_reads() -> None:
    conn = Connection()
    with time_limit(config(**{"verify.max.execution.time.ms": "1500"}), conn):
        assert conn.statements == ["SET SESSION max_execution_time = 1500"]
    assert conn.statements[1:] == ["SET SESSION max_execution_time = 0"]
    with time_limit(config(), unlimited := Connection()):
        pass
    assert unlimited.statements == []


@pytest.mark.parametrize("error", [ENDED, None], ids=["raw", "named"])
def test_a_query_that_the_server_ends_says_what_to_do(error: Exception | None) -> None:
    def fail() -> None:
        if error is not None:
            raise error
        raise from_exception(ENDED, "chunk 3 of shop.orders") from ENDED

    with (
        pytest.raises(SourceError) as raised,
        time_limit(config(**{"verify.max.execution.time.ms": "9"}), Connection()),
    ):
        fail()
    assert raised.value.where.startswith("verify.max.execution.time.ms=9")
    assert ("chunk 3 of shop.orders" in raised.value.where) is (error is None)
    assert raised.value.can_retry and "snapshot.chunk.rows" in raised.value.remedy


def test_another_error_stays_what_it_is() -> None:
    other = pymysql.OperationalError(1205, "Lock wait timeout exceeded")
    with (
        pytest.raises(pymysql.OperationalError) as raised,
        time_limit(config(**{"verify.max.execution.time.ms": "9"}), Connection()),
    ):
        raise other
    assert raised.value is other


@for_each(
    ("limit", "rate", "rows"),
    [("0", "100", 5_000), ("60000", "0", 5_000), ("60000", "100", 1_500), ("60000", "100000", 5_000), ("1", "1", 1)],
)
def test_a_query_reads_what_fits_into_its_time_at_the_rate_of_rows(limit: str, rate: str, rows: int) -> None:
    cfg = config(
        **{"verify.max.execution.time.ms": limit, "verify.rows.per.second": rate, "snapshot.chunk.rows": "5000"}
    )
    assert rows_per_query(cfg, 2) == rows


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
