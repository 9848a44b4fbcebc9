"""Ends of topics are those of now, and what an open transaction hides is waited for, then named."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.sink import topic_settings
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import CommittedEnds

pytestmark = pytest.mark.quick


def ends(monkeypatch: pytest.MonkeyPatch, stable_ends: list[int], wait_s: float) -> CommittedEnds:
    """Return the ends of a topic with 20 records, of which more become visible each time that they are asked for."""
    left = list(stable_ends)

    def answer(admin: Any, topics: Any, *, stable: bool = False) -> dict[str, dict[int, tuple[int, int]]]:
        end = (left.pop(0) if len(left) > 1 else left[0]) if stable else 20
        return {topic: {0: (3, 20 if not stable else 25), 1: (0, end)} for topic in topics}

    monkeypatch.setattr(topic_settings, "end_offsets_of_topics", answer)
    monkeypatch.setattr(topic_settings, "_POLL_INTERVAL_S", 0.0)
    admin: Any = None
    return topic_settings.committed_ends(admin, {"t": range(2)}, wait_s)


def test_a_transaction_that_ends_is_waited_for_and_later_records_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ends(monkeypatch, [7, 12, 26], 60) == CommittedEnds({"t": {0: (3, 20), 1: (0, 20)}})


def test_one_that_stays_open_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ends(monkeypatch, [7], 0)
    assert found.bounds == {"t": {0: (3, 20), 1: (0, 7)}}
    assert "from offset 7 of partition 1 on" in found.hidden["t"]
