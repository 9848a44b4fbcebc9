"""The place of a GTID set among a server's transactions, where some servers' transactions do not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kit.cases import for_each
from kit.store_contract import START

from airflow_provider_mysql_cdc.cdc.drain.failover import failover
from airflow_provider_mysql_cdc.cdc.drain.failover.requested_position import GtidSearch, shown_gtids
from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet

UUIDS = {"c": "cccccccc-0000-0000-0000-000000000001", "u": "bbbbbbbb-0000-0000-0000-000000000002"}
TAGGED = {"t": f"{UUIDS['c']}:blue"}


def gtid(name: str) -> str:
    """Return the GTID of a name as c1 (counts), u2 (does not), t3 (counts, with a tag)."""
    return f"{(UUIDS | TAGGED)[name[0]]}:{name[1:]}"


def gtids(names: str) -> GtidSet:
    return GtidSet.parse(",".join(map(gtid, names.split())))


def search(
    stored: str, binlog: str, *, counts: Callable[[str], bool] = UUIDS["c"].__eq__, previous: str = ""
) -> GtidSearch:
    found = GtidSearch(gtids(stored), gtids(previous), counts)
    for number, name in enumerate(binlog.split()):
        if found.add(gtid(name), ("b.1", number), ("b.1", 4) if number == 0 else None):
            break
    return found


def test_the_way_out_of_lost_transactions_is_a_set_of_what_the_server_has_and_what_it_has_purged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_: Any, __: Any, why: str, remedy: str, *, retriable: bool) -> ServerChangedError:
        return ServerChangedError("refused", why=why, remedy=remedy, retriable=retriable)

    monkeypatch.setattr(failover, "refused_server", refused)
    for status in ([], [{"Replica_IO_Running": "Yes"}]):
        monkeypatch.setattr(failover, "replica_status", lambda _, status=status: status)
        error = failover._missing_error(None, START, gtids("c1 c2 c3"), gtids("c3"), gtids("u1"))
        assert f"offset={gtids('c1 c2 u1')}," in error.remedy and str(gtids("u1")) in error.why
        assert error.can_retry == bool(status) == ("run the task again" in error.remedy)


def test_a_set_is_shown_whole_in_messages_unless_it_is_long() -> None:
    assert shown_gtids(gtids("c1 c2 u1")) == str(gtids("c1 c2 u1"))
    long = gtids(" ".join(f"c{n}" for n in range(1, 400, 2)))
    assert shown_gtids(long) == f"{str(long)[:300]}..."


@for_each(
    ("stored", "binlog", "place"),
    [
        ("c1 c2", "c1 c2 c3 c4", 2),
        ("c1 c2", "c1 c2", None),
        ("c1 t1", "c1 t1 t2 c2", 2),
        ("c1 u1", "c1 u1 u2 c2", 2),
        ("c1 c2", "c1 u1 c2 u2 c3", 3),
        ("c1 c2 u2", "c1 u1 u2 c2 c3", 4),
        ("c1 u1", "c1 c2 u1 c3", 1),
        ("c1 u1", "c1 u2 u1 c2", 1),
    ],
)
def test_the_place_divides_what_was_drained_from_what_was_not(stored: str, binlog: str, place: int | None) -> None:
    found = search(stored, binlog)
    assert (found.place and found.place[1]) == place
    assert found.next_gtid == (None if place is None else gtid(binlog.split()[place]))
    assert not found.errant and not found.unread()


@for_each(
    ("stored", "binlog", "passed_over", "repeated"),
    [
        ("c1 c2", "c1 u1 c2 u2 c3", "u1", ""),
        ("c1 u1", "c1 c2 u1 c3", "", "u1"),
        ("c1 c2 u2", "c1 u1 u2 c2 u3 c3", "u1", ""),
        ("c1 c2", "c1 c2 u1 c3", "", ""),
    ],
)
def test_transactions_on_the_wrong_side_of_the_place_are_known(
    stored: str, binlog: str, passed_over: str, repeated: str
) -> None:
    found = search(stored, binlog)
    assert (found.passed_over, found.repeated) == (gtids(passed_over), gtids(repeated))


def test_no_place_divides_a_transaction_that_counts_from_one_that_was_drained_behind_it() -> None:
    assert search("c1 c3", "c1 c2 c3 c4").errant == gtids("c2")
    assert search("c1 c3", "c1 c2 u1 c3").errant == gtids("c2")
    assert search("c1 c2", "c1 u1 c2", counts=lambda uuid: True).errant == gtids("u1")
    assert search("c1 c2 t1", "c1 t2 c2 t1").errant == gtids("t2")


def test_what_is_not_in_the_binlog_is_unread() -> None:
    assert search("c1 c2", "c2 c3").unread() == gtids("c1")
    assert not search("c1 c2", "c2 c3", previous="c1").unread()


def test_the_first_transaction_of_a_file_is_reached_at_its_beginning() -> None:
    assert search("c1", "c2", previous="c1").boundary == ("b.1", 4)
    assert search("c1", "c1 c2").boundary == ("b.1", 1)
