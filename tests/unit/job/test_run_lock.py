"""The run lock, on a server that a test makes up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.errors import RunInProgressError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.lock_recovery import ServerStart
from airflow_provider_mysql_cdc.cdc.job.run_lock import RunLock, acquire


class Server:
    """Named locks of a server, seen from one connection."""

    def __init__(self, me: int, holders: dict[str, int] | None = None) -> None:
        self.me, self.holders = me, holders if holders is not None else {}
        self.said: list[tuple[str, tuple[Any, ...]]] = []
        self._row: tuple[Any, ...] = ()

    def cursor(self) -> Server:
        return self

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, sql: str, given: tuple[Any, ...] = ()) -> None:
        self.said.append((sql, given))
        if sql.startswith("KILL"):
            for name in [n for n, holder in self.holders.items() if holder == given[0]]:
                del self.holders[name]
        elif "GET_LOCK" in sql:
            got = int(self.holders.setdefault(given[0], self.me) == self.me)
            self._row = (got, self.holders[given[0]])[: sql.count("(%s")]
        elif "Uptime" in sql:
            self._row = ("Uptime", "60")
        elif "@@server_uuid" in sql:
            self._row = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", self.me)
        elif "RELEASE_ALL_LOCKS" in sql:
            self.holders.clear()
        elif "RELEASE_LOCK" in sql:
            self.holders.pop(given[0], None)
        elif "CONNECTION_ID" in sql:
            self._row = (int(self.holders.get(given[0]) == self.me),)
        elif "<=>" in sql:
            self._row = (int(self.holders.get(given[0]) == given[1]),)
        elif "IS_USED_LOCK" in sql:
            self._row = (self.holders.get(given[0]),)

    def fetchone(self) -> tuple[Any, ...]:
        return self._row

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [self._row]


def killed(server: Server) -> list[Any]:
    return [given[0] for sql, given in server.said if sql.startswith("KILL")]


def test_the_server_frees_the_lock_of_a_holder_that_gives_no_sign_of_life() -> None:
    server = Server(1)
    acquire(server, "p", "dag/run/task/-1", 2.5)
    assert ("SET SESSION wait_timeout = %s", (3,)) in server.said
    assert set(server.holders.values()) == {1} and len(server.holders) == 2


def test_another_owners_run_is_left_alone() -> None:
    first = Server(1)
    acquire(first, "p", "dag/run/task/-1")
    second = Server(2, first.holders)
    with pytest.raises(RunInProgressError, match="another run") as caught:
        acquire(second, "p", "dag/other/task/-1")
    assert killed(second) == [] and set(first.holders.values()) == {1} and "connection 1" in caught.value.why


class Ending(Server):
    """A server that frees the locks of connection 1 between two questions, the owner's first."""

    def execute(self, sql: str, given: tuple[Any, ...] = ()) -> None:
        if sql.startswith("SELECT IS_USED_LOCK"):
            self.holders.clear()
        super().execute(sql, given)


@pytest.mark.parametrize("next_owner", ["dag/run/task/-1", "dag/other/task/-1"])
def test_a_run_that_ended_between_two_questions_is_not_in_the_way(next_owner: str) -> None:
    first = Server(1)
    acquire(first, "p", "dag/run/task/-1")
    second = Ending(2, first.holders)
    acquire(second, "p", next_owner)
    assert killed(second) == [] and set(first.holders.values()) == {2} and len(first.holders) == 2


def test_an_older_attempt_of_the_same_owner_is_ended() -> None:
    first = Server(1)
    acquire(first, "p", "dag/run/task/-1")
    second = Server(2, first.holders)
    acquire(second, "p", "dag/run/task/-1")
    assert killed(second) == [1] and set(first.holders.values()) == {2}


class Failing(Server):
    """A server that answers one statement with an error."""

    def __init__(self, me: int, holders: dict[str, int], statement: str, error: Exception) -> None:
        super().__init__(me, holders)
        self.statement, self.error = statement, error

    def execute(self, sql: str, given: tuple[Any, ...] = ()) -> None:
        if sql.startswith(self.statement):
            self.holders.clear()
            raise self.error
        super().execute(sql, given)


@for_each("statement", ["SET", "SELECT GET_LOCK", "SELECT IS_USED", "KILL"])
def test_a_connection_that_breaks_while_the_lock_is_taken_has_a_named_error(statement: str) -> None:
    first = Server(1)
    acquire(first, "p", "dag/run/task/-1")
    lost = pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")
    with pytest.raises(SourceConnectionError, match="A retry can help"):
        acquire(Failing(2, first.holders, statement, lost), "p", "dag/run/task/-1")


def test_an_older_attempt_that_ends_by_itself_before_it_is_ended_is_not_in_the_way() -> None:
    first = Server(1)
    acquire(first, "p", "dag/run/task/-1")
    second = Failing(2, first.holders, "KILL", pymysql.err.OperationalError(1094, "Unknown thread id: 1"))
    acquire(second, "p", "dag/run/task/-1")
    assert set(first.holders.values()) == {2}


def run(monkeypatch: pytest.MonkeyPatch, server: Server, inside: Callable[[RunLock], object], lease_s: float) -> None:
    monkeypatch.setattr(run_lock, "connect", lambda _: contextlib.nullcontext(server))
    settings = SimpleNamespace(silence_timeout_s=lease_s)
    with run_lock.hold_run_lock(settings, "p", "dag/run/task/-1") as lock:  # type: ignore[arg-type]
        inside(lock)


def test_a_run_that_ends_frees_its_lock_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    server, seen = Server(1), list[int]()
    run(monkeypatch, server, lambda _: seen.append(len(server.holders)), 60.0)
    assert (seen, server.holders) == ([2], {})


class Broken(Server):
    """A server whose connection breaks at the first sign of life."""

    def execute(self, sql: str, given: tuple[Any, ...] = ()) -> None:
        super().execute(sql, given)
        if "IS_USED_LOCK(%s) = CONNECTION_ID" in sql:
            raise OSError("gone")


def test_a_connection_that_failed_is_not_asked_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Broken(1)
    run(monkeypatch, server, lambda lock: lock._thread.join(30), 1.0)
    assert len(server.holders) == 2 and "CONNECTION_ID" in server.said[-1][0]


class Silent(Server):
    """A server that does not answer when a run ends."""

    def __init__(self) -> None:
        super().__init__(1)
        self.asked, self.woken = threading.Event(), threading.Event()
        self._sock = SimpleNamespace(shutdown=lambda _: self.woken.set())

    def execute(self, sql: str, given: tuple[Any, ...] = ()) -> None:
        if "RELEASE" in sql:
            self.asked.set()
            assert self.woken.wait(30)
            raise OSError("shut down")
        super().execute(sql, given)


def test_a_server_that_does_not_answer_does_not_hold_up_a_run_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    server, locks = Silent(), list[RunLock]()
    run(monkeypatch, server, locks.append, 1.0)
    assert server.asked.is_set() and server.woken.is_set() and not locks[0]._thread.is_alive()
    assert len(server.holders) == 2


@pytest.mark.parametrize(("answer", "text"), [(0, "no longer counts it"), (OSError("gone"), "gone")])
def test_a_run_that_has_lost_its_lock_finds_out(
    monkeypatch: pytest.MonkeyPatch, answer: int | OSError, text: str
) -> None:
    asked, answers = threading.Event(), [1, answer]

    def fetch_all(*_: Any) -> Any:
        found = answers.pop(0)
        if not answers:
            asked.set()
        if isinstance(found, OSError):
            raise found
        return [(found,)]

    monkeypatch.setattr(run_lock, "fetch_all", fetch_all)
    lock = RunLock(None, "p", 0.01)
    assert asked.wait(30)
    lock._thread.join(30)
    with pytest.raises(RunInProgressError, match="lost its lock") as caught:
        lock.require()
    assert text in caught.value.why and answers == []


OWNER, OTHER = "dag/run/task/-1", "dag/other/task/-1"


def test_a_driver_that_only_compares_lets_other_runs_start_and_is_still_known_to_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, seen = Server(1), list[Any]()

    def compare(lock: RunLock) -> None:
        lock.release_prefix()
        other = Server(2, server.holders)
        acquire(other, "p", OTHER)
        seen.append(run_lock.lock_connection(server, "p", OWNER))
        seen.append(run_lock.holds_prefix(server, "p", 1))
        seen.append(run_lock.holds_prefix(server, "p", 2))
        lock._woken.set()
        lock._thread.join(0.2)
        lock.require()

    run(monkeypatch, server, compare, 60.0)
    assert seen == [1, False, True]
    assert run_lock.lock_connection(server, "p", OWNER) is None


def test_a_later_try_ends_a_driver_of_its_own_run_that_compares_and_that_one_finds_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, later = Server(1), list[Server]()

    def compare(lock: RunLock) -> None:
        lock.release_prefix()
        later.append(Server(2, server.holders))
        acquire(later[0], "p", OWNER)
        lock._woken.set()
        lock._thread.join(30)
        with pytest.raises(RunInProgressError, match="lost its lock"):
            lock.require()

    run(monkeypatch, server, compare, 60.0)
    assert killed(later[0]) == [1]
    assert set(server.holders.values()) == {2} and len(server.holders) == 2, "a run frees only its own locks"


def test_a_server_that_has_restarted_is_known_by_its_start_and_by_the_ids_of_its_connections() -> None:
    held_on = ServerStart("a", 100.0, 40)
    same, later, soon_again, other = (
        ServerStart("a", 101.0, 41),
        ServerStart("a", 103.0, 41),
        ServerStart("a", 101.0, 8),
        ServerStart("b", 103.0, 8),
    )
    assert [held_on.was_restarted(now) for now in (same, later, soon_again, other)] == [False, True, True, False]
