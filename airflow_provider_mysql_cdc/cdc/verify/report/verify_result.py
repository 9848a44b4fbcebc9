"""What a verification is asked for, and what it found: one verdict for each table, with counts and examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Members, Record, read_as

MAX_EXAMPLES = 100
"""Most examples of each kind that a report holds for one table."""


class RepairMode(StrEnum):
    """Say what a verification does about differences."""

    NO = "no"
    DRY_RUN = "dry-run"
    YES = "yes"


@dataclass(frozen=True, slots=True)
class VerifyRequest(Record):
    """Hold what a verification is asked for.

    Args:
        tables: Regular expressions of tables (``database.table``), as in table.include.list; empty means all captured
            tables.
        sample_percent: Share of the keys that is compared, above 0 and at most 100.
        repair: What is done about differences.
        examples: Examples of each kind of difference in the report, per table.
        show_values: Whether examples hold values of rows; their keys are always shown.
        history: Whether the events of each key are also checked one after the other (``history.key_history``).
        checksums: Whether the server adds up checksums of rows where it can; otherwise tasks encode all rows.
    """

    tables: tuple[str, ...] = ()
    sample_percent: float = 100.0
    repair: RepairMode = RepairMode.NO
    examples: int = 10
    show_values: bool = True
    history: bool = False
    checksums: bool = True


class DifferenceKind(StrEnum):
    """Name a kind of difference between a table and its topic."""

    MISSING = "missing"
    """A row of the table has no event, or its last one is a delete."""
    GHOST = "ghost"
    """The last event of a key is not a delete, and the table has no such row."""
    DIFFERING = "differing"
    """The last event of a row has other values than the row."""
    UNREADABLE = "unreadable"
    """A record cannot be read as an event of the topic's tables."""
    WRONG_PARTITION = "wrong-partition"
    """A record is in another partition than the one of its key."""
    DUPLICATE = "duplicate"
    """An event of the binlog is in the topic twice."""
    REORDERED = "reordered"
    """An event follows a later one of the same key."""
    GAP = "gap"
    """An event does not continue the row that the one before it of the same key led to: another is missing."""
    NO_TOMBSTONE = "no-tombstone"
    """A delete event has no tombstone behind it, although tombstones.on.delete is set."""
    TORN_TRANSACTION = "torn-transaction"
    """A topic has other events of a transaction than its END record counts, or it has no BEGIN or END record."""

    LOST_RECORD = "lost-record"
    """A topic has fewer records of a batch than the ledger counts."""


LASTING_DIFFERENCES = frozenset({DifferenceKind.TORN_TRANSACTION, DifferenceKind.LOST_RECORD})
"""Differences that no later record can mend."""
STATE_DIFFERENCES = frozenset({DifferenceKind.MISSING, DifferenceKind.GHOST, DifferenceKind.DIFFERING})
"""Differences after which the topic, folded by key, does not equal the table; the others are about single records."""


HISTORY_DIFFERENCES = frozenset(
    {
        DifferenceKind.DUPLICATE,
        DifferenceKind.REORDERED,
        DifferenceKind.GAP,
        DifferenceKind.NO_TOMBSTONE,
        *LASTING_DIFFERENCES,
    }
)
"""Differences that only a verification of histories looks for."""


class VerdictKind(StrEnum):
    """Say in a word what a verification came to."""

    EQUAL = "equal"
    """All that was asked for was compared, and nothing was found."""
    DIFFERENT = "different"
    """Something was found, also if it was repaired."""
    NOT_JUDGED = "not judged"
    """Nothing was found, and a table, rows or values of it could not be judged."""


def verdict_of_all(verdicts: Iterable[VerdictKind]) -> VerdictKind:
    """Return the verdict about several tables; without any nothing was judged."""
    found = set(verdicts) or {VerdictKind.NOT_JUDGED}
    return next(each for each in (VerdictKind.DIFFERENT, VerdictKind.NOT_JUDGED, VerdictKind.EQUAL) if each in found)


class NotCompared(StrEnum):
    """Say why a table is neither equal to its topic nor different from it."""

    UNREAD = "unread"
    """The table could not be read: a later verification may be able to."""
    UNDECIDABLE = "undecidable"
    """Without a key, the topic's events do not say which rows they are about."""


@dataclass(frozen=True, slots=True)
class Example(Record):
    """Show one difference.

    Args:
        finding: Its kind.
        key: The row's key as the topic's records have it; for a table without a key its values, where they are shown.
        columns: Columns that differ.
        table_row: Values of the row in the table; None when there is no row, or values are not shown.
        topic_row: Values of the last event; None when there is none, or values are not shown.
        record: Where the event is, ``topic[partition]@offset``; empty when there is none.
    """

    finding: DifferenceKind
    key: Mapping[str, Any]
    columns: tuple[str, ...] = ()
    table_row: Mapping[str, Any] | None = None
    topic_row: Mapping[str, Any] | None = None
    record: str = ""


@dataclass(frozen=True, slots=True)
class TableVerdict(Record):
    """Hold what was found about one table.

    Args:
        table: ``database.table``.
        rows: Rows of the table that were compared.
        records: Records of the topic that were read; of a topic that several tables share, the records of this table.
        findings: Number of differences of each kind; kinds without any are left out.
        columns: Number of differing rows by column.
        repaired: Number of differences that were repaired, by kind.
        unknown: One sentence for each thing that cannot be judged, for example because the topic was compacted.
        examples: Examples, at most as many of each kind as were asked for.
        not_compared: Why the table was not compared, where it was not; ``unknown`` says more.
        offset: The position at which it was compared; None where it was not.
        lasting: Number of the differences that no repair can mend.
        by_checksums: Whether checksums were equal, so that rows were not compared one by one.
        unjudged: Rows, keys and values that were seen and cannot be judged; ``unknown`` says why.
    """

    table: str
    topic: str
    rows: Count = 0
    records: Count = 0
    findings: Mapping[DifferenceKind, Count] = field(default_factory=dict)
    columns: Mapping[str, Count] = field(default_factory=dict)
    repaired: Mapping[DifferenceKind, Count] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    not_compared: NotCompared | None = None
    offset: BinlogOffset | None = None
    lasting: Count = 0
    by_checksums: bool = False
    unjudged: Count = 0

    @property
    def verdict(self) -> VerdictKind:
        """Return the verdict in a word."""
        if self.different:
            return VerdictKind.DIFFERENT
        return VerdictKind.EQUAL if self.judged else VerdictKind.NOT_JUDGED

    @property
    def judged(self) -> bool:
        """Return whether the table was compared, and all of its rows that were seen."""
        return self.not_compared is None and not self.unjudged

    @property
    def state_differs(self) -> bool:
        """Return whether the topic, folded by key, was found not to equal the table."""
        return any(self.findings.get(finding) for finding in STATE_DIFFERENCES)

    @property
    def equal(self) -> bool:
        """Return whether the topic equals the table; a repaired difference counts as one."""
        return self.judged and not self.state_differs

    @property
    def different(self) -> bool:
        """Return whether anything was found."""
        return any(self.findings.values())

    def counts_json(self) -> dict[str, Any]:
        """Return the verdict and its counts as plain JSON."""
        return {
            "verdict": str(self.verdict),
            "rows": self.rows,
            "records": self.records,
            "findings": counts_json(self.findings),
            "repaired": counts_json(self.repaired),
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, with the verdict in a word."""
        return self.counts_json() | Record.to_json(self) | self.counts_json()


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """Hold the result of a verification.

    Args:
        prefix: topic.prefix.
        offset: The position at which the last tables and topics were compared.
        started_ms: When the verification began, milliseconds since 1970.
        ended_ms: When it ended.
        request: What was asked for.
        tables: The verdicts.
        earlier: When the verdicts of earlier runs were made that this one has not judged again, by table.
    """

    run: str
    prefix: str
    offset: BinlogOffset
    started_ms: Count
    ended_ms: Count
    request: VerifyRequest
    tables: tuple[TableVerdict, ...]
    earlier: Mapping[str, Count] = field(default_factory=dict)

    @property
    def verdict(self) -> VerdictKind:
        """Return the verdict about all tables in a word."""
        return verdict_of_all(verdict.verdict for verdict in self.tables)

    @property
    def equal(self) -> bool:
        """Return whether there are tables, all were compared, and every topic equals its table."""
        return bool(self.tables) and all(verdict.equal for verdict in self.tables)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, with the verdicts."""
        tables = {verdict.table: verdict.to_json() for verdict in self.tables}
        return self.summary_json() | {"tables": tables, "earlier": dict(self.earlier)}

    def summary_json(self) -> dict[str, Any]:
        """Return plain JSON without the verdicts, each of which is a ledger record of its own."""
        return {
            "run": self.run,
            "prefix": self.prefix,
            "offset": self.offset.to_json(),
            "started_ms": self.started_ms,
            "ended_ms": self.ended_ms,
            "request": self.request.to_json(),
            "verdict": str(self.verdict),
            "equal": self.equal,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> VerifyResult:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        members = Members(data)
        verdicts = list(members.object("tables").as_dict().values())
        return read_as(cls, {**members.as_dict(), "tables": verdicts})


def counts_json(counts: Mapping[DifferenceKind, int]) -> dict[str, int]:
    """Return counts as plain JSON, in the order in which the kinds are declared, without zeros."""
    return {str(kind): counts[kind] for kind in DifferenceKind if counts.get(kind)}
