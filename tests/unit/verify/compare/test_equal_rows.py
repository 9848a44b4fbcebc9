"""Equal rows of a table without a key are counted from their events."""

from __future__ import annotations

import pytest

from airflow_provider_mysql_cdc.cdc.verify.compare.key_state import EqualRowEvent, StreamPasses, count_rows

pytestmark = pytest.mark.quick


def change(offset: int, identity: int, pass_start: int = 0, *, added: bool = True) -> EqualRowEvent:
    return EqualRowEvent(0, offset, added, b"", identity, pass_start)


def test_an_event_that_an_earlier_pass_has_counts_once() -> None:
    first = [change(0, 11), change(1, 12), change(2, 13, added=False)]
    again = [change(10, 12, 10), change(11, 13, 10, added=False), change(12, 14, 10)]
    assert count_rows(first) == 1 and count_rows(first + again) == 2
    assert count_rows([*first, *again, *(e._replace(offset=e.offset + 10, pass_start=20) for e in again)]) == 2


def test_equal_events_of_one_pass_all_count() -> None:
    assert count_rows([change(0, 11), change(1, 11), change(2, 11)]) == 3
    assert count_rows([change(0, 11), change(1, 11), change(7, 11, 7), change(8, 11, 7)]) == 2


def test_events_that_nothing_tells_apart_all_count() -> None:
    assert count_rows([change(0, 0), change(7, 0, 7)]) == 2


def test_an_event_of_an_earlier_pass_that_a_view_has_read_since_does_not_count_again() -> None:
    view = EqualRowEvent(0, 5, True, b"view")
    assert count_rows([change(0, 11), view, change(9, 11, 9), change(10, 12, 9)]) == 2


def test_a_pass_ends_where_places_go_back() -> None:
    passes = StreamPasses()
    starts = [passes.start_of(0, offset, order) for offset, order in enumerate((5, 5, 9, 5, 6, 4, 8), start=100)]
    assert starts == [100, 100, 100, 103, 103, 105, 105]
    assert passes.start_of(1, 50, 1) == 50


def test_a_view_in_another_partition_than_the_stream_s_replaces_nothing() -> None:
    view, other = EqualRowEvent(0, 5, True, b"10/7"), EqualRowEvent(2, 0, True, b"10/67")
    assert count_rows([view, other], moving=False) == 2 and count_rows([view, other]) == 1
    assert count_rows([view, other, change(9, 12, added=False)], moving=False) == 1
    assert count_rows([view, view._replace(offset=9, view=b"20/9"), other], moving=False) == 2


def test_a_view_from_before_the_last_snapshot_replaces_none_that_the_ledger_knows() -> None:
    earlier, known = EqualRowEvent(0, 5, True, b"<10/7"), EqualRowEvent(0, 6, True, b"20/9")
    assert count_rows([change(1, 0), earlier]) == 1 == count_rows([earlier, known])
    assert count_rows([known, earlier._replace(offset=7)]) == 2


def test_events_of_several_partitions_are_in_the_order_of_their_times() -> None:
    earlier, view = change(0, 0)._replace(partition=2, order=3), EqualRowEvent(0, 9, True, b"5", order=5)
    assert count_rows([earlier, view]) == 1
    assert count_rows([earlier, view, change(1, 0)._replace(partition=1, order=7)]) == 2


def test_a_row_that_the_topic_never_had_is_not_taken_from_those_that_it_has() -> None:
    gone, again = EqualRowEvent(0, 1, False, b""), EqualRowEvent(0, 2, True, b"")
    assert count_rows([gone]) == 0
    assert count_rows([gone, gone._replace(offset=3), again._replace(offset=4)]) == 1
    assert count_rows([again, gone._replace(offset=3)]) == 0
