"""Work that only reads is done again where its connection breaks, and only there."""

from __future__ import annotations

import pymysql
import pytest

from airflow_provider_mysql_cdc.cdc.binlog.broken_connections import again_if_broken, reconnect_delays
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import DUMP_BROKE
from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError, SourceConnectionError, SourceError

BROKEN = SourceConnectionError(DUMP_BROKE, where="db:3306")


class Work:
    """Raise errors, one a call, then return how often it was called."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.calls = list(errors), 0

    def __call__(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls


def test_a_connection_that_breaks_is_tried_again_as_often_as_is_said() -> None:
    lines: list[str] = []
    assert again_if_broken(Work(BROKEN, BROKEN), (0, 0), lines.append) == 3
    assert [line.partition("; ")[2] for line in lines] == [f"attempt {n} to read again, in 0.0 s" for n in (1, 2)]
    work = Work(BROKEN, BROKEN, BROKEN)
    with pytest.raises(SourceConnectionError):
        again_if_broken(work, (0, 0))
    assert work.calls == 3
    with pytest.raises(SourceConnectionError):
        again_if_broken(Work(BROKEN), reconnect_delays(0))


def test_what_the_driver_of_mysql_says_of_it_counts_as_well() -> None:
    lost = pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")
    assert again_if_broken(Work(lost), (0,)) == 2
    refused = Work(pymysql.err.ProgrammingError(1064, "syntax"))
    with pytest.raises(pymysql.MySQLError):
        again_if_broken(refused, (0,))
    assert refused.calls == 1


@pytest.mark.parametrize(
    "error",
    [
        SourceConnectionError("neither an event nor a heartbeat arrived for 60 s", where="db:3306"),
        SourceConnectionError("MySQL cannot be reached", where="db:3306"),
        ServerChangedError("another server", where="db:3306"),
    ],
)
def test_silence_and_refusals_end_it(error: SourceError) -> None:
    """A dead network is named in bounded time, and so is a server that does not answer."""
    work = Work(error)
    with pytest.raises(type(error)):
        again_if_broken(work, (0, 0))
    assert work.calls == 1


def test_the_delay_doubles_up_to_a_limit() -> None:
    assert list(reconnect_delays(8)) == [0.5, 1, 2, 4, 8, 16, 30, 30]
