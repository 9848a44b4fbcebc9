"""The whole stream as interleavings: resets by hand, failovers, resets of the binary logs, topics changed by hand.

The drivers, the operators' work and the reset are the product's own code over memory (``stream_stage``); the promises
stand in ``stream_oracle``. Whatever happened, undisturbed runs, with the reset that an error asks for, bring the stream
to the end of the binlog. Each protection is also taken away, one at a time, and then the walks of the suite must find a
violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from first_seeds import WALKS, breaks_a_promise
from memo import read_once
from stream_interleaving import living_walk, random_walk
from stream_oracle import Reads
from stream_stage import ModelWriter, on_stage
from stream_world import StagedLedger

from airflow_provider_mysql_cdc.cdc.binlog import connect as mysql_connect
from airflow_provider_mysql_cdc.cdc.binlog import dump, position
from airflow_provider_mysql_cdc.cdc.binlog import file_fingerprint as origin
from airflow_provider_mysql_cdc.cdc.commit import reconcile, takeover
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.drain import committer, topic_shares
from airflow_provider_mysql_cdc.cdc.formats import record_topics as owner
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.job import config_guard as pinned_plan
from airflow_provider_mysql_cdc.cdc.job import topic_guard
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate import prepare_snapshot as before_snapshot
from airflow_provider_mysql_cdc.cdc.operate import reset_offset
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_driver

BLOCK_WALKS = WALKS // 10
LIVING_WALKS = WALKS // 20
LOOKED_FOR = 1000
"""Walks in which a protection that is taken away has to be missed: those of the suite."""
BLOCKS = 5


@pytest.fixture(autouse=True)
def stage() -> Iterator[pytest.MonkeyPatch]:
    """Put the product on the stage; return what takes it back."""
    with pytest.MonkeyPatch.context() as patch:
        on_stage(patch)
        read_once(patch)
        yield patch


@pytest.mark.timeout(0 if BLOCK_WALKS > 1500 else 600)
@pytest.mark.req("FAULT-11")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_promises_hold_over_many_random_interleavings(block: int) -> None:
    for seed in range(block, BLOCK_WALKS, BLOCKS):
        try:
            random_walk(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


@pytest.mark.req("STRM-33", "FAULT-10")
@pytest.mark.parametrize("block", range(2))
def test_promises_hold_where_writers_live_from_batch_to_batch(block: int) -> None:
    for seed in range(block, LIVING_WALKS, 2):
        try:
            living_walk(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


def test_a_scan_that_waits_again_is_read_again() -> None:
    """A reset to the stored offset lets scans begin again, with the same position."""
    reads, running = Reads(), TableScan(TableId("d", "t"), "snapshot-1", 0, state="running", initial=True)
    reads.noted(0, running, None)
    read = reads.read_of(0)
    reads.noted(0, replace(running, rows=2), None)
    assert reads.read_of(0) == read
    reads.noted(0, replace(running, state="waiting"), None)
    reads.noted(0, running, None)
    assert reads.read_of(0) != read


def _reset_without_fencing(patch: pytest.MonkeyPatch) -> None:
    fence = StagedLedger.fence

    def only_for_batches(self: StagedLedger, writers: Iterable[int | str]) -> None:
        plan = self.peek().plan
        if plan is None or plan.kind != "reset":
            fence(self, writers)

    patch.setattr(StagedLedger, "fence", only_for_batches)


def _number_of_ids_forgotten(patch: pytest.MonkeyPatch) -> None:
    ids = LedgerState.writer_ids
    patch.setattr(LedgerState, "writer_ids", lambda self, writers=0: ids(replace(self, writer_count=0), writers))


def _topics_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(topic_guard, "topic_differences", lambda *_: {})


def _born_topics_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        topic_shares.TopicShares, "_recorded_topics", property(lambda _: {}, lambda _, __: None), raising=False
    )


def _partitions_of_today(patch: pytest.MonkeyPatch) -> None:
    """Let a writer take the partitions that a topic has when it starts, not those of the plan."""

    def share(plan: Any, writer: int, topic: str, default: int) -> Any:
        return owner.topic_share(replace(plan, partitions=ModelWriter.world.partitions), writer, topic, default)

    patch.setattr(topic_shares, "topic_share", share)
    _topics_not_compared_at_commits(patch)


def _topics_not_compared_at_commits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(committer.WrittenTopics, "require_same", lambda *_: None)


def _topics_remembered_by_a_reset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reset_offset, "topic_record", lambda ledger, topic, _: SideRecord(ledger, b"none", b"{}"))


def _pins_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pinned_plan, "require_same_pins", lambda *_: None)


def _binlogs_of_one_name_alike(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(origin, "require_same_file", lambda _, offset: offset)
    patch.setattr(position, "require_same_file", lambda _, offset: offset)
    patch.setattr(origin, "require_creation_time", lambda *_: None)


def _dump_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(origin, "require_creation_time", lambda *_: None)


def _servers_alike(patch: pytest.MonkeyPatch) -> None:
    """Take servers for one another, of which the fingerprints say nothing."""
    _binlogs_of_one_name_alike(patch)
    for module in (dump, position):
        patch.setattr(module, "require_same_server", lambda *_: None)
    patch.setattr(mysql_connect, "_require_server", lambda *_: None)


def _snapshot_leaves_a_gap(patch: pytest.MonkeyPatch) -> None:
    for module in (before_snapshot, snapshot_driver):
        patch.setattr(module, "require_drained", lambda *_: None)


def _stream_before_a_snapshot_forgotten(patch: pytest.MonkeyPatch) -> None:
    target = reconcile._state_from_ledger

    def forgetful(ledger: Any, stored: Any, plan: Any, at_ms: int) -> Any:
        found = target(ledger, stored, plan, at_ms)
        return found if plan.kind == "drain" or found.pending is None else replace(found, committed=stored.committed)

    patch.setattr(reconcile, "_state_from_ledger", forgetful)


def _any_plan_may_follow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(takeover, "_require_next_plan", lambda *_: None)


WITHOUT: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    _reset_without_fencing,
    _number_of_ids_forgotten,
    _topics_not_compared,
    _born_topics_not_compared,
    _partitions_of_today,
    _topics_not_compared_at_commits,
    _topics_remembered_by_a_reset,
    _pins_not_compared,
    _binlogs_of_one_name_alike,
    _dump_not_compared,
    _servers_alike,
    _snapshot_leaves_a_gap,
    _stream_before_a_snapshot_forgotten,
    _any_plan_may_follow,
)


SHOWN_BY = {
    "reset_without_fencing": 279,
    "number_of_ids_forgotten": 133,
    "topics_not_compared": 32,
    "born_topics_not_compared": 230,
    "partitions_of_today": 26,
    "topics_not_compared_at_commits": 675,
    "topics_remembered_by_a_reset": 21,
    "pins_not_compared": 241,
    "binlogs_of_one_name_alike": 15,
    "dump_not_compared": 231,
    "servers_alike": 15,
    "snapshot_leaves_a_gap": 58,
    "stream_before_a_snapshot_forgotten": 70,
    "any_plan_may_follow": 38,
}
"""Seeds whose walks miss a protection; the others show at once."""


@pytest.mark.parametrize("take_away", WITHOUT, ids=lambda f: f.__name__.strip("_"))
def test_without_a_protection_an_interleaving_finds_a_violation(
    take_away: Callable[[pytest.MonkeyPatch], None], stage: pytest.MonkeyPatch
) -> None:
    take_away(stage)
    shown_by = SHOWN_BY.get(take_away.__name__.strip("_"), 0)
    # Where a run begins, topics are compared in any case.
    walk = living_walk if take_away is _topics_not_compared_at_commits else random_walk
    assert breaks_a_promise(walk, shown_by, range(LOOKED_FOR)), f"no promise was broken in {LOOKED_FOR} walks"
