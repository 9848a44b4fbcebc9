"""A job is not at its end where a connection breaks: what is left is done, as often as it is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.binlog import broken_connections
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import server_error
from airflow_provider_mysql_cdc.cdc.errors import CdcError, RunInProgressError, SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import breaks_connection, go_on_where_broken
from airflow_provider_mysql_cdc.cdc.job import owner_wait

BROKEN = server_error(2013, "Lost connection", "db:3306")
DOWN = server_error(2003, "Can't connect", "db:3306")


class Job:
    """A job whose attempts end as is said; each name that was called is kept."""

    def __init__(self, *ends: CdcError | int) -> None:
        self.ends, self.calls, self.lines = list(ends), list[str](), list[str]()
        self.done = 0

    def attempt(self, name: str) -> Callable[[], dict[str, int]]:
        def work() -> dict[str, int]:
            self.calls.append(name)
            end = self.ends.pop(0)
            if isinstance(end, CdcError):
                raise end
            return {"t": end}

        return work

    def run(self, most: int = 2, progress: Callable[[], object] = lambda: None) -> dict[str, int]:
        cfg = config(**{"connect.max.attempts": str(most)})
        return go_on_where_broken(cfg, "o", self.lines.append, self.attempt("all"), self.attempt("rest"), progress)


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(broken_connections, "FIRST_DELAY_S", 0.0)
    monkeypatch.setattr(owner_wait, "wait_as_owner", lambda *given, **more: found.append((given[2:], more)))
    return found


def test_the_rest_is_done_where_a_connection_breaks(waits: list[Any]) -> None:
    job = Job(BROKEN, DOWN, 7)
    assert job.run() == {"t": 7}
    assert job.calls == ["all", "rest", "rest"], "behind a connection that broke, a server that does not answer counts"
    assert waits == [(("o", 0.0), {"even_if_free": True})] * 2
    assert ["attempt 1" in job.lines[0], "attempt 2" in job.lines[1]] == [True, True]


@pytest.mark.parametrize("error", [DOWN, RunInProgressError("lost"), server_error(1064, "syntax", "db")])
def test_other_errors_end_it_at_once(error: CdcError) -> None:
    job = Job(error)
    with pytest.raises(type(error)):
        job.run()
    assert job.calls == ["all"]


def test_the_error_stands_when_the_attempts_are_used_up() -> None:
    job = Job(*[BROKEN] * 3)
    with pytest.raises(SourceConnectionError):
        job.run()
    assert job.calls == ["all", "rest", "rest"]
    job = Job(BROKEN)
    with pytest.raises(SourceConnectionError):
        job.run(0)


def test_attempts_are_counted_anew_behind_each_progress() -> None:
    job = Job(*[BROKEN] * 5, 1)
    assert job.run(1, lambda: len(job.calls)) == {"t": 1}


def test_without_a_server_it_just_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise DOWN

    monkeypatch.setattr(owner_wait, "wait_as_owner", refuse)
    assert Job(BROKEN, 1).run() == {"t": 1}


def test_whoever_ends_the_run_while_it_waits_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_: Any, **__: Any) -> None:
        raise RunInProgressError("another driver of this run is active")

    monkeypatch.setattr(owner_wait, "wait_as_owner", ended)
    job = Job(BROKEN, 1)
    with pytest.raises(RunInProgressError):
        job.run()
    assert job.calls == ["all"]


def test_an_error_that_was_raised_from_a_broken_connection_is_one() -> None:
    named = SourceError("the views cannot be opened at one position", retriable=True)
    assert not breaks_connection(named)
    named.__cause__ = RuntimeError()
    named.__cause__.__cause__ = BROKEN
    assert breaks_connection(named)
