"""Positions in the binlog, and prepared XA transactions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from msgspec import Meta

from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record


def file_number(name: str) -> int:
    """Return the number at the end of a binlog file name: ``binlog.000012`` gives 12.

    MySQL goes from ``.999999`` to ``.1000000``, so files are ordered by number, never as text.
    """
    return int(name.rpartition(".")[2])


def same_base(a: str, b: str) -> bool:
    """Return whether two binlog files have one base name (``log_bin``); numbers of different ones have no order."""
    return a.rpartition(".")[0] == b.rpartition(".")[0]


def same_fingerprint(a: str | None, b: str | None) -> bool:
    """Return whether two fingerprints of a binlog file can be of one file; one that is not known contradicts nothing.

    A fingerprint (``binlog.file_fingerprint``) grows by one part when the file gets its first transaction, so the
    parts that both have decide. What follows ``/`` is of the server.
    """
    return a is None or b is None or all(x == y for x, y in zip(_parts(a), _parts(b), strict=False))


def _parts(fingerprint: str) -> list[str]:
    return fingerprint.partition("/")[0].split(".")


def same_place(a: BinlogOffset | None, b: BinlogOffset | None) -> bool:
    """Return whether two offsets are one but for what a later look at its file has added to the fingerprint."""
    if a is None or b is None:
        return a is b
    return replace(a, origin=None) == replace(b, origin=None) and same_fingerprint(a.origin, b.origin)


BinlogFile = Annotated[str, Meta(pattern=r"\A[^\x00]{1,500}\.[0-9]{1,18}\Z")]
"""Name of a binlog file; it ends in a number."""
_UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_TAG = ":[A-Za-z_][A-Za-z0-9_]{0,31}"
_NUMBERS = ":[1-9][0-9]{0,18}(?:-[0-9]{1,19})?"
Gtids = Annotated[str, Meta(pattern=rf"\A(?:\s*{_UUID}(?:(?:{_TAG})?{_NUMBERS})+\s*(?:,|\Z))*\s*\Z")]
"""A GTID set in MySQL's text form."""
LastCommit = Annotated[str, Meta(pattern=rf"\A{_UUID}(?:{_TAG})?:[1-9][0-9]{{0,18}}@[1-9][0-9]{{0,18}}\Z")]
"""A GTID and a time."""


@dataclass(frozen=True, slots=True)
class BinlogOffset(Record):
    """Stand at a transaction boundary of one server's binlog.

    Args:
        file: Binlog file name.
        pos: Byte position in it.
        gtids: GTID set executed up to here (MySQL's text form), or None when GTIDs are off or not known.
        server_uuid: The server that file and position belong to, or None when not known.
        origin: Which file of this name it is (``binlog.file_fingerprint``): names and positions come again after a
            RESET, on a restored backup and on a copied server, also under the same uuid. None when not known.
        last_commit: GTID of the last transaction that was read before the place, ``@``, and the microseconds since the
            epoch at which the server that executed it first committed it: a GTID that is used again after a RESET has
            another time. None when not known.
        read_empty: GTIDs of transactions before the place that were read as empty ones, without a change or a
            statement, or that the server has in no file: another one may have changes under them. None for none.
        read_as_text: GTIDs of transactions before the place that were logged as statements which concern no captured
            table: a replica, which logs rows, may have them as empty ones. None for none.
    """

    file: BinlogFile
    pos: Count
    gtids: Gtids | None = None
    server_uuid: str | None = None
    origin: str | None = None
    last_commit: LastCommit | None = field(default=None, compare=False)
    read_empty: Gtids | None = field(default=None, compare=False)
    read_as_text: Gtids | None = field(default=None, compare=False)

    def key(self) -> tuple[int, int]:
        """Return (file number, position); only ``compare_offsets`` and its kin may compare it, which ask whose it
        is.
        """
        return file_number(self.file), self.pos

    def with_position(self, file: str, pos: int, gtids: str | None = None) -> BinlogOffset:
        """Return this offset moved to another place of the same server."""
        origin = self.origin if file == self.file else None
        return replace(self, file=file, pos=pos, gtids=gtids, origin=origin, last_commit=None)

    def remembering(self, other: BinlogOffset) -> BinlogOffset:
        """Return this offset with the transactions that another one remembers."""
        return replace(self, read_empty=other.read_empty, read_as_text=other.read_as_text)

    def covers(self, file: str, pos: int) -> bool:
        """Return whether a place of the stream in which this offset stands lies at or before it.

        Args:
            file: Binlog file, read in that same stream.
            pos: Position in it.
        """
        return (file_number(file), pos) <= self.key()

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


def comparable(a: BinlogOffset, b: BinlogOffset) -> bool:
    """Return whether file and position of two offsets speak of one binlog, as far as both tell.

    Another server's uuid says no, and so does another file of the same name. Two files of different names cannot show
    that a reset lies between; where that matters, both are first compared with the server (``check_available``).
    Files of another base name (``log_bin`` was changed) are numbered from 1 again, so they have no order either.
    """
    if a.server_uuid and b.server_uuid and a.server_uuid.lower() != b.server_uuid.lower():
        return False
    return same_base(a.file, b.file) if a.file != b.file else same_fingerprint(a.origin, b.origin)


def compare_offsets(a: BinlogOffset, b: BinlogOffset) -> int:
    """Return -1, 0 or 1: whether ``a`` lies before ``b``, at the same place, or behind it.

    Raises:
        StateError: They stand in different binlogs, where file and position mean nothing to each other.
    """
    if not comparable(a, b):
        other_server = a.server_uuid and b.server_uuid and a.server_uuid.lower() != b.server_uuid.lower()
        raise StateError(
            "two binlog positions of different origin cannot be compared",
            where=f"{a} and {b}",
            why=f"one was read on server {a.server_uuid}, the other on {b.server_uuid}"
            if other_server
            else f"the files of that name are different ones ({a.origin} and {b.origin}): the binary logs were reset"
            if a.file == b.file
            else "the files have different base names: log_bin was changed",
            remedy="connect to the server of the first position; or give it up (DAG mysql_cdc_reset_offset)",
        )
    a_key, b_key = a.key(), b.key()
    return (a_key > b_key) - (a_key < b_key)


def same_position(a: BinlogOffset | None, b: BinlogOffset | None) -> bool:
    """Return whether two offsets stand at the same place.

    On different servers the GTID sets decide. After a reset of one server they decide nothing: GTIDs come again too.
    """
    if a is None or b is None:
        return a is b
    if not comparable(a, b):
        return a.server_uuid != b.server_uuid and bool(a.gtids) and a.gtids == b.gtids
    return a.key() == b.key()


def moves_back(old: BinlogOffset | None, new: BinlogOffset) -> bool:
    """Return whether ``new`` lies before ``old`` in the same binlog; positions of different ones have no order."""
    return old is not None and comparable(old, new) and new.key() < old.key()


@dataclass(frozen=True, slots=True)
class ResumePosition(Record):
    """Say how far a writer got: a boundary, and how much of the transaction after it.

    Args:
        offset: The last transaction boundary passed.
        events: Row events of the transaction that begins there which are already committed to Kafka.
            MySQL cuts a statement's rows into events of about 8 KB, so an event is small and never split.
        statements: QUERY events of that transaction which are passed as well: its BEGIN, and the structure of an atomic
            CREATE TABLE ... SELECT (MySQL 8.0.21 and later), which stands in the same transaction as its rows.
        gtid: That transaction's GTID; None at a boundary, and when it is not known.
        row_bytes: Sum of the lengths of these row events' bodies, by which they are known again on another server.
    """

    offset: BinlogOffset
    events: Count = 0
    statements: Count = 0
    gtid: Gtids | None = None
    row_bytes: Count = 0

    @property
    def is_boundary(self) -> bool:
        """Whether nothing of the transaction after the boundary is passed."""
        return not self.events and not self.statements


@dataclass(frozen=True, slots=True)
class PreparedXa(Record):
    """Say where the binlog holds the rows of an XA transaction.

    Args:
        xid: The transaction's id as the binlog writes it: ``X'6f6e65',X'',1``.
        file: Binlog file; a transaction never spans two.
        start: Position of its first event (the GTID event).
        end: Position after its last one.
    """

    xid: str
    file: BinlogFile
    start: Count
    end: Count

    def __str__(self) -> str:
        return f"{self.xid} at {self.file}:{self.start}"
