"""Incremental snapshots that the soak requests: each is accepted, and its tables are read in full.

A row that was read again is already in the topic, so no comparison of rows shows that a key range was left out.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from topiclib.checks import TableCheck
from topiclib.events import Event, Row

from soaklib.binlog_facts import GtidSet

_ACCEPTED = re.compile(r"\] signal (\S+): incremental snapshot of \d+ table")
_REFUSED = re.compile(r"\] (signal \S+ .* is refused: .*)")
_ENDED = re.compile(r"\] snapshot (\S+): scanned_collection=([\w.]+), total_rows_scanned=\d+, status=(\w+)")
_FIRST = 3


@dataclass
class IncrementalRequests:
    """The requests of one stream.

    Args:
        sent: By id: the tables, and the transactions before the request.
        stopped: Ids and tables that a later signal stops.
        accepted: Ids that a job has accepted.
        ended: What jobs have said of the end, by id and table.
    """

    sent: dict[str, tuple[Sequence[str], GtidSet]] = field(default_factory=dict)
    stopped: set[tuple[str, str]] = field(default_factory=set)
    accepted: set[str] = field(default_factory=set)
    ended: dict[tuple[str, str], str] = field(default_factory=dict)

    def stop(self, tables: Sequence[str]) -> None:
        """Take down that a signal stops the snapshots of tables."""
        self.stopped |= {(request, table) for request in self.sent for table in tables}

    def note(self, output: str) -> list[str]:
        """Take what a job has written; return its lines about signals that it refused."""
        self.accepted |= set(_ACCEPTED.findall(output))
        self.ended |= {(request, table): status for request, table, status in _ENDED.findall(output)}
        return _REFUSED.findall(output)

    def differences(self) -> list[str]:
        """Return the requests that were not accepted, when there is nothing left to drain."""
        return [f"incremental snapshot {request} was not accepted" for request in self.sent.keys() - self.accepted]

    def read_after(self) -> dict[str, GtidSet]:
        """Return the tables that have to be read, each with the transactions before its first request.

        A job says if it gives a table up (SKIPPED). It need not say that it has read one: where it dies after the last
        rows, the next job ends the snapshot without a line.
        """
        out: dict[str, GtidSet] = {}
        for request in sorted(self.accepted & self.sent.keys()):
            names, before = self.sent[request]
            for table in names:
                if (request, table) not in self.stopped and self.ended.get((request, table)) != "SKIPPED":
                    name = table.rpartition(".")[2]
                    out[name] = out.get(name, before) & before
        return out


class ReadAgainCheck:
    """Follow which rows of tables a window has read or a later transaction has changed.

    Args:
        read_after: The tables, each with the transactions before the first request.
        late: Transactions (``source:number``) whose rows are written when they are committed.
    """

    def __init__(self, read_after: Mapping[str, GtidSet], late: Container[str]) -> None:
        self._read_after, self._late = read_after, late
        self._current: dict[str, set[Row]] = {name: set() for name in read_after}

    def note(self, table: str, event: Event) -> None:
        """Take an event of a table."""
        if table not in self._current or event.key is None:
            return
        position = event.position
        if position is None:
            current = event.again
        else:
            current = position.gtid not in self._read_after[table] or position.transaction in self._late
        if current:
            self._current[table].add(event.key)

    def differences(self, table: str, check: TableCheck) -> list[str]:
        """Return the rows at the end that neither a window has read nor a later transaction has changed."""
        if table not in self._current:
            return []
        missing = sorted(check.present_keys() - self._current[table], key=repr)
        shown = ", ".join(repr(key) for key in missing[:_FIRST])
        return [f"{table}: {len(missing)} rows were not read by the incremental snapshot: {shown}"] if missing else []
