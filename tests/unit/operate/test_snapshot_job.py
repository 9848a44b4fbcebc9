"""What a snapshot whose view broke goes on with: its tables from the beginning, or a drain that reads the rest."""

from __future__ import annotations

from typing import Any

import pytest
from kit.memory_job import config
from test_interrupted_snapshot import A0, A1, B0, B1, OWNER, Rig

from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.operate import snapshot_job


def begins_again(rig: Rig, **options: Any) -> bool:
    stored = rig.store.load()
    assert stored is not None and stored.pending is not None
    spec = JobSpec("snapshot", {}, stored.pending.to_json(), OWNER, options=options)
    return snapshot_job._hand_over(rig.cfg, spec, rig.lines.append)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch, config())


def test_without_a_view_or_a_committed_row_it_begins_again(rig: Rig) -> None:
    assert begins_again(rig)
    assert begins_again(rig.read()) and not rig.ledger.complete() and rig.checked == ["mode", "binlog"]


@pytest.mark.parametrize("read", [(A0,), (A0, A1, B0, B1)])
def test_what_is_committed_stays_and_a_drain_reads_the_rest(rig: Rig, read: tuple[str, ...]) -> None:
    assert not begins_again(rig.read(*read))
    assert rig.ledger.complete() and [state for _, state in rig.scans] == (
        ["running", "waiting"] if len(read) == 1 else []
    )
    assert not begins_again(rig), "it was handed over before"


def test_the_rest_of_some_tables_is_for_the_next_try(rig: Rig) -> None:
    """Drains capture all tables of the stream, and the job knows its own alone."""
    with pytest.raises(StateError) as caught:
        begins_again(rig.read(A0), some_tables=True)
    assert caught.value.can_retry and rig.scans == []
    assert not rig.ledger.complete()
