"""What of the differences that were found is read once more, to be repaired."""

from __future__ import annotations

import pytest
from kit.table_records import TableRecords

from airflow_provider_mysql_cdc.cdc.verify.compare.folding import FoundDifference
from airflow_provider_mysql_cdc.cdc.verify.compare.suspects import collect_suspects
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import LASTING_DIFFERENCES
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import compared_table

pytestmark = pytest.mark.quick

RECORDS = TableRecords("CREATE TABLE t (id INT PRIMARY KEY)")
COMPARED = compared_table(RECORDS.cfg, 0, RECORDS.table)


def test_all_differences_of_a_key_are_one_suspect() -> None:
    found = [
        FoundDifference(0, Kind.DUPLICATE, b"k", record=(0, 5), last=(0, 9)),
        FoundDifference(0, Kind.DUPLICATE, b"k", record=(0, 7), last=(0, 9)),
        FoundDifference(0, Kind.DIFFERING, b"k", event_row=b"row", record=(0, 9), last=(0, 9)),
        FoundDifference(0, Kind.UNREADABLE, b"k", record=(1, 3), last=(0, 9), places=((1, 3),)),
    ]
    ((suspect,),) = (each.suspects for each in collect_suspects([COMPARED], found, {}))
    assert suspect.kinds == {Kind.DUPLICATE: 2, Kind.DIFFERING: 1, Kind.UNREADABLE: 1}
    assert (suspect.event_row, suspect.record, suspect.places) == (b"row", (0, 9), ((1, 3),))


def test_what_no_repair_can_mend_and_what_is_not_judged_are_no_suspects() -> None:
    found = [FoundDifference(0, kind, b"k") for kind in (*LASTING_DIFFERENCES, Kind.MISSING)]
    ((suspect,),) = (each.suspects for each in collect_suspects([COMPARED], found, {}))
    assert suspect.kinds == {Kind.MISSING: 1}
    assert collect_suspects([COMPARED], found, {RECORDS.table.id: [Kind.MISSING]}) == ()
