"""Take the rows out of many events at once, where all of them end as the last one that was read."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from airflow_provider_mysql_cdc.cdc.verify.recent_tails import RecentTails

_NUMBERS = re.compile(rb"[0-9]+")
_AS_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)


class EventRuns:
    """Take the rows out of the events of a chunk of a snapshot, which differ in their rows and in their times.

    Each step is one look at all events, and takes half the time of a look at each of them. What it accepts is what
    ``RecentTails.read_end`` accepts.

    Args:
        new_row: What values of events begin with that have a row after them alone, up to the brace of that.
        recent: The text behind the rows of the last event that was read, and its operation.
        operations: Operations that such events have.
    """

    def __init__(self, new_row: bytes, recent: RecentTails[bytes], operations: Collection[bytes]) -> None:
        self._new_row, self._recent, self._operations = new_row, recent, operations

    def rows_of(self, values: Sequence[bytes]) -> list[bytes] | None:
        """Return the texts of the rows after events; None where not all events are like the last one.

        Args:
            values: The values of their records.
        """
        last, new_row = self._recent.last(), self._new_row
        if last is None or not values or last[2] not in self._operations:
            return None
        head, times = b"}" + last[0], last[1]
        begin, times_begin, row_end = len(new_row) - 1, -len(times), 1 - len(head) - len(times)
        if not values[-1].endswith(head, begin, times_begin):  # changes differ from each other
            return None
        rows = [
            value[begin:row_end]
            for value in values
            if value.startswith(new_row) and value.endswith(head, begin, times_begin)
        ]
        return rows if len(rows) == len(values) and _are_times(times, values) else None


def _are_times(times: bytes, values: Sequence[bytes]) -> bool:
    """Return whether values end with times that have as many digits as others.

    Args:
        times: The others.
        values: The values; none is shorter.
    """
    size = len(times)
    ends = b"".join([value[-size:] for value in values])
    if ends.translate(_AS_ZEROS) != times.translate(_AS_ZEROS) * len(values):
        return False
    numbers = (number.span() for number in _NUMBERS.finditer(times))
    return not any(b"0" in ends[begin::size] for begin, end in numbers if end - begin > 1)
