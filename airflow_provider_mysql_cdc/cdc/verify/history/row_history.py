"""Check the records of each key one after the other where they say the row after a change alone, as TiCDC's do.

A record has the timestamp of its transaction, and a delete has nothing. So it shows that a record came twice or behind
a later one, and that a row was updated although it was deleted; a lost update, or an insert between two deletes, does
not show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_provider_mysql_cdc.cdc.verify.history.key_history import HistoryRules, KeyStep
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind

ROWS_ONLY_REASON = (
    "records of TiCDC's protocol have no row before a change: only an update of a deleted row shows that one is missing"
)
NO_TIMES_REASON = "records without enable-tidb-extension do not say their order: of histories only doubled deletes show"
_DELETE, _UPDATE = "d", "u"
_CREATE = "c"
_UNKNOWN = 0
_Facts = tuple[int, str, int] | tuple[int, str, int, int]
"""Time, operation and row of a record, and what names its event."""


def check_row_history(steps: Sequence[KeyStep], rules: HistoryRules) -> Iterator[tuple[DifferenceKind, KeyStep]]:
    """Yield what is wrong with the records of one key, with the record at which it shows.

    A delete behind a delete counts as one that came twice: whether the row was there in between does not show.

    Args:
        steps: The records of the key, in any order; those of several partitions are not compared.
        rules: What holds for the topic.
    """
    last: KeyStep | None = None
    latest, seen = _UNKNOWN, set[_Facts]()
    for step in sorted(steps):
        if last is None or last.partition != step.partition:
            latest = _UNKNOWN
        elif (kind := _kind_of_break(last, step, latest, seen, rules)) is not None:
            yield kind, step
        seen |= {_facts(step), (*_facts(step), step.identity)}
        last, latest = step, max(latest, step.order)


def _facts(step: KeyStep) -> tuple[int, str, int]:
    return step.order, step.op, step.after


def _kind_of_break(
    last: KeyStep, step: KeyStep, latest: int, seen: set[_Facts], rules: HistoryRules
) -> DifferenceKind | None:
    if step.op == _DELETE:
        return DifferenceKind.DUPLICATE if rules.gapless and last.op == _DELETE else None
    if step.order == _UNKNOWN:
        return None
    if step.order < latest:
        return DifferenceKind.DUPLICATE if _facts(step) in seen else DifferenceKind.REORDERED
    if step.identity != _UNKNOWN and (*_facts(step), step.identity) in seen:
        return DifferenceKind.DUPLICATE
    # A change that the record does not show, of a column that is left out or masked, leaves an equal record. So does a
    # snapshot right behind the transaction that has inserted the row; only the names of the events differ then.
    if rules.whole_rows and step.op != _CREATE and _facts(step) == _facts(last):
        return DifferenceKind.DUPLICATE
    return DifferenceKind.GAP if rules.gapless and step.op == _UPDATE and last.op == _DELETE else None
