"""How a scan of an interrupted snapshot begins or continues in a window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.decode_builder import column, table
from kit.store_contract import END

from airflow_provider_mysql_cdc.cdc.incremental import scan_bounds
from airflow_provider_mysql_cdc.cdc.incremental.scan_bounds import (
    TableUnreadable,
    begin_scan,
    resume_scan,
    with_last_key,
)
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan

KEYED = table(column("id", "INT", nullable=False), column("n", "INT"), key=("id",))
KEYLESS = table(column("n", "INT"))
WAITING = TableScan(KEYED.id, "snapshot-1", 0, "blocking", start_offset=END, format_digest="f", initial=True)
RUNNING = replace(WAITING, state="running", columns=("id",), kinds=("SIGNED",), cursor=(5,), next_number=7, rows=5)


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the source says; a test changes it."""
    says: dict[str, Any] = {"exists": False, "last": (99,), "asked": []}

    def find_bound(conn: Any, table_id: Any, columns: Any, kinds: Any, **more: Any) -> Any:
        says["asked"].append((columns, more["last"]))
        return says["last"]

    monkeypatch.setattr(scan_bounds, "table_exists", lambda conn, table_id: says["exists"])
    monkeypatch.setattr(scan_bounds, "find_bound", find_bound)
    return says


@pytest.mark.parametrize("scan", [WAITING, RUNNING], ids=["waiting", "running"])
@pytest.mark.parametrize(("exists", "captured"), [(False, True), (True, False), (False, False)])
def test_a_table_that_is_gone_or_excluded_is_done(
    source: dict[str, Any], scan: TableScan, exists: bool, captured: bool
) -> None:
    """The drain has its rows to the end; one that was renamed has a scan under its new name."""
    source["exists"] = exists
    ended = resume_scan(None, scan, None, captured=captured)
    assert ended == scan.finish(ended.reason) and "does not contain the table" in ended.reason
    ad_hoc = resume_scan(None, replace(scan, initial=False), None, captured=captured)
    assert ad_hoc.state == "aborted" and "does not contain the table" in ad_hoc.reason


def test_a_table_that_is_not_in_the_history_yet_waits(source: dict[str, Any]) -> None:
    source["exists"], lines = True, list[str]()
    waiting = resume_scan(None, WAITING, None, on_deferred=lines.append)
    assert waiting == replace(WAITING, reason=waiting.reason) and "schema-changes" in waiting.reason
    assert lines == [waiting.reason]
    ad_hoc = replace(WAITING, initial=False)
    assert resume_scan(None, ad_hoc, None, on_deferred=lines.append) is ad_hoc and len(lines) == 2
    with pytest.raises(TableUnreadable) as caught:
        begin_scan(None, ad_hoc, None)
    assert caught.value.transient


def test_what_the_view_has_read_stays(source: dict[str, Any]) -> None:
    assert resume_scan(None, RUNNING, KEYED) is RUNNING and source["asked"] == []


def test_what_continues_ends_with_the_last_key_that_the_table_has_now(
    source: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last chunk of a snapshot has no end, but rows that are inserted later are in the stream."""
    bounded = with_last_key(None, RUNNING)
    assert bounded == replace(RUNNING, last_key=(99,)) and source["asked"] == [(("id",), True)]
    for scan in (bounded, WAITING, replace(RUNNING, columns=(), kinds=()), RUNNING.finish()):
        assert with_last_key(None, scan) is scan
    assert len(source["asked"]) == 1

    def denied(*_: Any, **__: Any) -> Any:
        raise TableUnreadable("denied")

    monkeypatch.setattr(scan_bounds, "find_bound", denied)
    assert with_last_key(None, RUNNING) is RUNNING


@pytest.mark.parametrize(
    "now",
    [
        table(column("id", "BIGINT", unsigned=True, nullable=False), key=("id",)),
        table(column("id", "INT", nullable=False), column("n", "INT", nullable=False), key=("n", "id")),
        KEYLESS,
    ],
    ids=["another kind", "another key", "no key"],
)
def test_a_table_with_another_key_begins_anew(now: Any) -> None:
    begun = resume_scan(None, RUNNING, now)
    assert begun is not RUNNING and begun.cursor is None and begun.state == "running" and begun.initial


def test_a_scan_that_may_not_continue_begins_anew(source: dict[str, Any]) -> None:
    begun = resume_scan(None, RUNNING, KEYED, invalid=True)
    assert (begun.cursor, begun.next_number, begun.last_key, begun.state) == (None, 0, (99,), "running")
    assert source["asked"] == [(("id",), True)]


def test_a_statement_of_the_configuration_reads_its_table_in_one_key_range(source: dict[str, Any]) -> None:
    """Its rows may have other keys than the table has; and an empty table may have rows for it."""
    source["last"] = None
    begun = resume_scan(None, WAITING, KEYED, whole_table=True)
    assert (begun.state, begun.columns, begun.kinds, begun.last_key) == ("running", (), (), None)
    assert source["asked"] == []
    ad_hoc = replace(WAITING, initial=False)
    assert resume_scan(None, ad_hoc, KEYED).state == "done", "no row, no key range"
    assert resume_scan(None, replace(ad_hoc, initial=True), KEYED).state == "running", "another table may have its name"
    assert resume_scan(None, begun, KEYED, whole_table=True).columns == (), "it is read at once or from its beginning"


def test_a_statement_that_is_configured_later_is_read_once() -> None:
    """The key ranges that are left would each read the whole statement."""
    begun = resume_scan(None, RUNNING, KEYED, whole_table=True)
    assert begun is not RUNNING and (begun.columns, begun.cursor, begun.next_number) == ((), None, 0)
    whole = replace(RUNNING, columns=(), kinds=())
    assert resume_scan(None, whole, KEYED).columns == ("id",), "the statement was removed from the configuration"


def test_a_table_without_a_key_is_one_key_range() -> None:
    begun = begin_scan(None, replace(WAITING, table=KEYLESS.id), KEYLESS)
    assert (begun.state, begun.columns) == ("running", ())
