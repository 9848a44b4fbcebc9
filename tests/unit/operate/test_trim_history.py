"""What of the schema history a trim may delete."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.errors import SchemaError, StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.operate import schema_history as module
from airflow_provider_mysql_cdc.cdc.operate.schema_history import NeededOffset, choose_trim, needed_offsets
from airflow_provider_mysql_cdc.cdc.schema.history import DescriptionPlace
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord


def at(pos: int, server: str = "s1") -> BinlogOffset:
    return BinlogOffset("binlog.000001", pos, None, server)


def described(offset: int, pos: int, server: str = "s1") -> DescriptionPlace:
    ddl = "SET character_set_server=latin1, collation_server=latin1_swedish_ci"
    return DescriptionPlace(offset, HistoryRecord("p", at(pos, server), 1, 0, "", ddl, snapshot=True))


PLACES = [described(0, 100), described(50, 1000), described(90, 2000), described(130, 3000)]
PLAN = BatchPlan(7, "drain", at(2500), at(3500), writers=1, owner="o", created_ms=0)
STORED = StoredState(epoch=7, committed=at(2500), pending=PLAN)


def needs(*positions: int) -> list[NeededOffset]:
    return [NeededOffset(f"n{pos}", at(pos)) for pos in positions]


@for_each(
    ("positions", "kept", "needed_by"),
    [((3500,), 130, "n3500"), ((2999, 3500), 90, "n2999"), ((3500, 1000), 50, "n1000"), ((150, 9000), 0, "n150")],
)
def test_the_earliest_of_all_needed_descriptions_is_kept(positions: tuple[int, ...], kept: int, needed_by: str) -> None:
    result = choose_trim(PLACES, needs(*positions), 0)
    assert (result.first, result.kept, result.needed_by) == (0, kept, needed_by)


def test_the_last_one_in_the_topic_counts_although_its_position_is_earlier() -> None:
    moved_back = [*PLACES, described(170, 1500)]
    assert choose_trim(moved_back, needs(3500), 0).kept == 170
    assert choose_trim(moved_back, needs(3500, 1200), 0).kept == 50


@pytest.mark.parametrize("offset", [at(99), at(3500, "s2")])
def test_nothing_is_deleted_if_no_description_is_early_enough(offset: BinlogOffset) -> None:
    with pytest.raises(SchemaError, match=f"nothing of the schema history can be deleted.*scan, {offset}.*do this"):
        choose_trim(PLACES, [*needs(3500), NeededOffset("scan", offset, "do this")], 0)


def test_all_stored_offsets_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = LedgerState(plan=PLAN)
    needed = needed_offsets(STORED, ledger)
    assert [(each.what, each.offset.pos) for each in needed] == [
        ("the stored offset", 2500),
        ("the start of batch 7", 2500),
        ("the pending plan of the offset store", 2500),
    ]
    done = Marker(7, 0, PLAN.start, PLAN.end, ResumePosition(PLAN.end, 0), done=True, counts={})
    needed = needed_offsets(replace(STORED, committed=at(1800), pending=None), replace(ledger, markers={0: done}))
    assert [each.offset.pos for each in needed] == [1800, 2500, 3500]

    scans = [SimpleNamespace(table=name, start_offset=since) for name, since in (("d.t", at(1200)), ("d.u", None))]
    monkeypatch.setattr(module, "read_incremental_state", lambda _: SimpleNamespace(active_scans=scans))
    assert needed_offsets(STORED, ledger)[-1] == NeededOffset("the ad-hoc snapshot of d.t", at(1200))


def test_a_stream_without_an_offset_or_with_an_unfinished_snapshot_is_not_trimmed() -> None:
    for stored, ledger in (
        (None, LedgerState(plan=PLAN)),
        (StoredState(epoch=7), LedgerState(plan=PLAN)),
        (STORED, LedgerState()),
    ):
        with pytest.raises(StateError, match="before the stream has an offset"):
            needed_offsets(stored, ledger)
    with pytest.raises(StateError, match="while a snapshot is not finished"):
        needed_offsets(STORED, LedgerState(plan=replace(PLAN, kind="snapshot")))
