"""What the server says about transactions of a stream: sets of GTIDs, and SHOW BINLOG EVENTS."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from topiclib.events import Gtid


@dataclass(frozen=True)
class GtidSet:
    """A set of transactions.

    Args:
        ranges: First and last numbers by source.
    """

    ranges: Mapping[str, tuple[tuple[int, int], ...]]

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Read what ``gtid_executed`` contains."""
        ranges: dict[str, tuple[tuple[int, int], ...]] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            source, *numbers = part.split(":")
            bounds = [number.split("-") for number in numbers]
            ranges[source] = tuple((int(bound[0]), int(bound[-1])) for bound in bounds)
        return cls(ranges)

    def __contains__(self, transaction: Gtid) -> bool:
        """Return whether a transaction is in it."""
        source, number = transaction
        return any(first <= number <= last for first, last in self.ranges.get(source, ()))

    def __and__(self, other: GtidSet) -> GtidSet:
        """Return the transactions that are in both."""
        ranges = {
            source: tuple(
                (max(a, c), min(b, d))
                for a, b in own
                for c, d in other.ranges.get(source, ())
                if max(a, c) <= min(b, d)
            )
            for source, own in self.ranges.items()
        }
        return GtidSet({source: both for source, both in ranges.items() if both})


_GTID = re.compile(r"'([^']+)'")
_TRUNCATE = re.compile(r"use `([^`]+)`; TRUNCATE TABLE `?(\w+)")


@dataclass(frozen=True, slots=True)
class BinlogFacts:
    """What the verifier takes from the binlog.

    Args:
        prepared: Transactions (``source:number``) that end in XA PREPARE: their rows come when they are committed. The
            audit table does not contain all of them: a later view of an interrupted snapshot may have read that table
            with the transaction's rows, while others were read without and their events follow.
        truncations: Transactions that truncated a table, by the table's name, oldest first.
        ranks: The place of each transaction (``source:number``) among all.
    """

    prepared: set[str] = field(default_factory=set)
    truncations: dict[str, list[Gtid]] = field(default_factory=lambda: defaultdict(list))
    ranks: dict[str, int] = field(default_factory=dict)


def read_binlog(conn: Any, since: str, database: str) -> BinlogFacts:
    """Return what the binlog says from a file on.

    Args:
        conn: A root connection.
        since: The first binlog file to look at.
        database: The stream's database.
    """
    facts = BinlogFacts()
    with conn.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        for file in sorted(row[0] for row in cursor.fetchall() if row[0] >= since):
            cursor.execute(f"SHOW BINLOG EVENTS IN '{file}'")
            gtid = None
            for _, _, kind, _, _, info in cursor.fetchall():
                if kind == "Gtid":
                    gtid = _GTID.search(info)
                    if gtid is not None:
                        facts.ranks[gtid[1]] = len(facts.ranks)
                elif gtid is not None:
                    _note_event(facts, gtid[1], kind, info, database)
    return facts


def _note_event(facts: BinlogFacts, gtid: str, kind: str, info: str, database: str) -> None:
    if kind == "XA_prepare" and info.startswith("XA PREPARE"):
        facts.prepared.add(gtid)
    elif kind == "Query" and (truncated := _TRUNCATE.match(info)) is not None and truncated[1] == database:
        source, _, number = gtid.rpartition(":")
        facts.truncations[truncated[2]].append((source, int(number)))
