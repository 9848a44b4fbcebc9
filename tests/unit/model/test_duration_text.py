"""Durations as people write them."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.model.clock import duration_text


def test_a_duration_has_the_unit_of_which_there_are_two() -> None:
    seconds = (0.4, 119, 120, 7_199, 7_200, 9_000, 172_799, 172_800, 216_000)
    written = ["0 s", "119 s", "2 min", "120 min", "2 h", "2.5 h", "48 h", "2 d", "2.5 d"]
    assert [duration_text(s) for s in seconds] == written
