"""The tables under an ad-hoc snapshot as values: how far each is, and what a signal makes of them.

A table is read in **stretches**: ranges ``low < key <= high`` that follow each other from its first key to the one that
was its last when the scan began (INC-09, INC-19). ``cursor`` is the key up to which everything is done. Several
stretches are read at once, so some behind the cursor may be done already; each of these has a record of its own until
the cursor has passed it (``fold``). So a scan's record does not grow, and whatever ends a run, the next one goes on at
the first key that is missing (INC-17).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, is_text, is_whole, members
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import key_kind_of

ScanKind = Literal["incremental", "blocking"]
ScanState = Literal["waiting", "running", "done", "aborted"]
ENDED: frozenset[str] = frozenset({"done", "aborted"})


@dataclass(frozen=True, slots=True)
class TableScan:
    """Describe the ad-hoc snapshot of one table.

    Args:
        table: The table.
        request: Id of the signal that asked for it.
        order: Its number and its place in the queue; no two scans of a stream ever have the same.
        kind: ``incremental``, or ``blocking``: the stream waits until all tables of the request are read.
        condition: SQL that rows have to fulfil, or None; it came from a channel that is trusted.
        surrogate: Column by which the table is cut instead of its key, or None.
        chunk_size: Rows of a chunk that the request asked for; 0 takes incremental.snapshot.chunk.size.
        state: ``waiting`` until its first and last key are known, ``running``, ``done`` or ``aborted``.
        columns: The columns that bound stretches; empty for a table that is one stretch.
        kinds: What each of them is (``snapshot.key_kinds``).
        last: The last key when the scan began; None for a table that is one stretch.
        cursor: Everything up to this key is done; None before the first stretch.
        number: Number of the first stretch behind the cursor.
        rows: Rows written.
        reason: Why it was aborted.
        begun_ms: When it began, milliseconds since 1970; 0 while it waits.
        since: Where the stream stood when it began; None while it waits.
        form: Digest of what decides how its records look (``basis.form_of``).
    """

    table: TableId
    request: str
    order: int
    kind: ScanKind = "incremental"
    condition: str | None = None
    surrogate: str | None = None
    chunk_size: int = 0
    state: ScanState = "waiting"
    columns: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    last: Bound | None = None
    cursor: Bound | None = None
    number: int = 0
    rows: int = 0
    reason: str = ""
    begun_ms: int = 0
    since: BinlogOffset | None = None
    form: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do."""
        return self.state in ENDED

    def begin(self, columns: tuple[str, ...], kinds: tuple[str, ...], last: Bound | None, now_ms: int) -> TableScan:
        """Return the scan with its range, from the start.

        Args:
            columns: The columns that bound stretches.
            kinds: Their kinds.
            last: The last key; None without columns.
            now_ms: Now, milliseconds since 1970.
        """
        return replace(
            self, state="running", columns=columns, kinds=kinds, last=last, cursor=None, number=0, begun_ms=now_ms
        )

    def resting_on(self, since: BinlogOffset, form: str) -> TableScan:
        """Return the scan with what it rests on from its beginning.

        Args:
            since: Where the stream stands.
            form: Digest of what decides how its records look.
        """
        return replace(self, since=since, form=form)

    def anew(self) -> TableScan:
        """Return the scan as one that waits: what it has read counts for nothing any more."""
        return replace(self, state="waiting", columns=(), kinds=(), last=None, cursor=None, number=0, since=None)

    def abort(self, reason: str) -> TableScan:
        """Return the scan given up."""
        return replace(self, state="aborted", reason=reason)

    def finish(self) -> TableScan:
        """Return the scan with everything read."""
        return replace(self, state="done")

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "db": self.table.db,
            "table": self.table.table,
            "request": self.request,
            "order": self.order,
            "kind": self.kind,
            "condition": None if self.ended else self.condition,
            "surrogate": self.surrogate,
            "chunk_size": self.chunk_size,
            "state": self.state,
            "columns": list(self.columns),
            "kinds": list(self.kinds),
            "last": _listed(self.last),
            "cursor": _listed(self.cursor),
            "number": self.number,
            "rows": self.rows,
            "reason": self.reason,
            "begun_ms": self.begun_ms,
            "since": None if self.since is None else self.since.to_json(),
            "form": self.form,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> TableScan:
        """Read what ``to_json`` wrote; what becomes a part of SQL is checked, whoever wrote it.

        Raises:
            DamagedRecordError: It is something else.
        """
        given = members(data)
        columns, kinds = bounded_by(given)
        return cls(
            TableId(given.text("db"), given.text("table")),
            given.text("request"),
            given.whole("order"),
            cast(ScanKind, given.one_of("kind", get_args(ScanKind))),
            given.text_or_none("condition"),
            given.text_or_none("surrogate"),
            given.whole("chunk_size", 0),
            cast(ScanState, given.one_of("state", get_args(ScanState))),
            columns,
            kinds,
            bound(given, "last", kinds),
            bound(given, "cursor", kinds),
            given.whole("number", 0),
            given.whole("rows", 0),
            given.text("reason", ""),
            given.whole("begun_ms", 0),
            BinlogOffset.from_json(given.object("since")) if given.value("since", None) is not None else None,
            given.text("form", ""),
        )


@dataclass(frozen=True, slots=True)
class Stretch:
    """Describe one range of a table: the rows with ``low < key <= high``.

    Args:
        table: The table.
        scan: ``order`` of its scan.
        number: Place among the scan's stretches; a larger one has larger keys.
        columns: The columns that the bounds speak of.
        kinds: What each of them is.
        low: Exclusive lower bound, or None.
        high: Inclusive upper bound; None for a table that is one stretch.
        final: Whether the scan ends with it.
    """

    table: TableId
    scan: int
    number: int
    columns: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    low: Bound | None = None
    high: Bound | None = None
    final: bool = True

    @property
    def id(self) -> str:
        """Return ``scan/number``, its name in the ledger."""
        return f"{self.scan}/{self.number}"

    def __str__(self) -> str:
        return f"{self.table}, stretch {self.number}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "db": self.table.db,
            "table": self.table.table,
            "scan": self.scan,
            "number": self.number,
            "columns": list(self.columns),
            "kinds": list(self.kinds),
            "low": _listed(self.low),
            "high": _listed(self.high),
            "final": self.final,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> Stretch:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        given = members(data)
        columns, kinds = bounded_by(given)
        return cls(
            TableId(given.text("db"), given.text("table")),
            given.whole("scan"),
            given.whole("number"),
            columns,
            kinds,
            bound(given, "low", kinds),
            bound(given, "high", kinds),
            given.flag("final"),
        )


@dataclass(frozen=True, slots=True)
class DoneStretch:
    """Say that the rows of a stretch are committed; its record is part of their Kafka transaction.

    Args:
        stretch: The stretch.
        rows: Rows written.
        left_out: Rows left out, because an event told of them in the meantime.
    """

    stretch: Stretch
    rows: int
    left_out: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"stretch": self.stretch.to_json(), "rows": self.rows, "left_out": self.left_out}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | Members) -> DoneStretch:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        given = members(data)
        return cls(Stretch.from_json(given.object("stretch")), given.whole("rows"), given.whole("left_out", 0))


def fold(scan: TableScan, done: Iterable[DoneStretch]) -> tuple[TableScan, list[DoneStretch]]:
    """Move a scan's cursor over the stretches that follow it without a gap.

    Args:
        scan: The scan.
        done: Stretches whose rows are committed; those of other scans, or cut by another key, are left out.

    Returns:
        The scan, ``done`` when its last stretch was among them, and the stretches behind the first gap, in order.
    """
    mine = (scan.order, scan.columns, scan.kinds)
    cut_so = [d for d in done if (d.stretch.scan, d.stretch.columns, d.stretch.kinds) == mine]
    rest = sorted(cut_so, key=lambda d: d.stretch.number)
    while rest and not scan.ended and rest[0].stretch.low == scan.cursor:
        here = rest.pop(0)
        scan = replace(
            scan,
            cursor=here.stretch.high,
            number=here.stretch.number + 1,
            rows=scan.rows + here.rows,
            state="done" if here.stretch.final else "running",
        )
    return scan, rest


def gaps(scan: TableScan, done: Iterable[DoneStretch]) -> list[Stretch]:
    """Return the ranges between the cursor and the stretches behind it that are done already.

    Args:
        scan: The scan after ``fold``.
        done: The stretches that ``fold`` returned, in order.
    """
    found, low, number = [], scan.cursor, scan.number
    for there in done:
        stretch = there.stretch
        if stretch.low != low:
            found.append(Stretch(scan.table, scan.order, number, scan.columns, scan.kinds, low, stretch.low, False))
        low, number = stretch.high, stretch.number + 1
    return found


def bounded_by(given: Members) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns and kinds of a record, checked.

    Raises:
        DamagedRecordError: A kind is not known, or they are not as many.
    """
    columns, kinds = given.texts("columns"), given.texts("kinds")
    if not all(columns) or len(kinds) != len(columns):
        raise given.refuse("columns", "a list of column names, with a kind for each")
    if None in map(key_kind_of, kinds):
        raise given.refuse("kinds", "a known kind for each column: SIGNED, DATE, a character set and its collation")
    return columns, kinds


def bound(given: Members, name: str, kinds: tuple[str, ...]) -> Bound | None:
    """Return a bound of a record: one value for each column, of the column's kind.

    Raises:
        DamagedRecordError: It is something else.
    """
    if given.value(name, None) is None:
        return None
    values = given.values(name)
    known = [kind for kind in map(key_kind_of, kinds) if kind is not None]
    plain = all(is_whole(v) or is_text(v) for v in values)
    if not known or len(values) != len(known) or not plain:
        raise given.refuse(name, "a whole number or a text for each column")
    if not all(kind.form(value) for value, kind in zip(values, known, strict=True)):
        raise given.refuse(name, "a value of its column's kind")
    return values


def _listed(values: Bound | None) -> list[Any] | None:
    return None if values is None else list(values)
