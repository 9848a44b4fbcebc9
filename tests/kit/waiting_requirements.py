"""Requirements that no test carries as a mark, each under the reason why."""

from __future__ import annotations

import re

_REASONS = {
    # Not built yet: until then the property that asks for it is refused by name, or accepted and said to do nothing.
    "a changefeed's id and its placement driver are TiCDC's own control plane": "CFG-129 CFG-130",
    # Done in another way, on purpose.
    "an interrupted snapshot goes on where it stopped, and is as exact (test_kill_driver_during_snapshot...)": """
        SNAP-36 FAULT-18
    """,
    "Percona's backup lock lets InnoDB commit while views open: minimal_percona takes the global lock": "SNAP-32",
    "table locks are released as soon as every view is open, as the global lock is": "SNAP-28",
    "any number of writers keep the order of each key; the run lock refuses a second run of a name": """
        SETUP-35 SETUP-36 FAULT-31
    """,
    "transactions are never held back: MySQL logs a transaction when it commits, binlog.buffer.size is refused": """
        STRM-20..22
    """,
    "there is no queue, poll or connection thread to tune: the property is accepted and said to do nothing (CFG)": """
        STRM-08 STRM-32 STRM-35 SNAP-52..54 SCH-11 SCH-12 FAULT-16
    """,
    "would set up sessions that this provider sets up alone: refused by name (CFG)": "STRM-37",
    # Nothing that a test of this package could show.
    "a duty or a setting of whoever runs MySQL": "CFG-117",
    "of Kafka Connect's worker or its broker's defaults, in whose place Airflow and Spark stand": """
        SETUP-38..42 FAULT-09 CFG-109
    """,
    "an explanation; what follows from it has ids of its own": """
        SETUP-21 SETUP-23 SETUP-33 SCH-04 SCH-25 SCH-27 SNAP-30 SNAP-58 STRM-40 FAULT-27
    """,
    "the manuals differ or slip; the requirement that decides is tested or waits by its own id": """
        DIS-03..07 DIS-09 DIS-10 DIS-13..24 DIS-26 DIS-28..30 DIS-32 DIS-33 DIS-35..39 DIS-41
    """,
}
_ID = re.compile(r"([A-Z0-9]+)-(\d+)(?:\.\.(\d+))?")


def _ids(text: str) -> list[str]:
    found = []
    for word in text.split():
        match = _ID.fullmatch(word)
        assert match is not None, word
        family, first, last = match[1], match[2], match[3] or match[2]
        found += [f"{family}-{number:02d}" for number in range(int(first), int(last) + 1)]
    return found


LISTED: list[tuple[str, str]] = [
    (requirement, reason) for reason, text in _REASONS.items() for requirement in _ids(text)
]
"""Pairs of id and reason, as they stand above."""

WAITING: dict[str, str] = dict(LISTED)
"""The reason by id."""
