"""Positions in a purged binlog file from which nothing is lost: the stored offset of a stream that had read everything.

A server purges whole files, oldest first; ``gtid_purged`` is then the set executed before the first file that is left.
If this is exactly the set executed up to a position, every transaction with a GTID after it is in the files that are
left.

* A transaction that was purged after the position is in ``gtid_purged`` and not in the position's set. This includes
  one that a writer has committed in part: the position is the boundary before it.
* A transaction of the set that is not in ``gtid_purged`` shows another history: the binary logs were reset, and GTIDs
  and file names come again.
* The two sets are equal by chance where a reset or a restored backup lies between, and transactions under the same
  GTIDs are others. There was none if the server has run since the position's file was begun and has carried out no
  RESET since the file was looked at: that is why a fingerprint ends with the state of the server (``ServerState``).
* A transaction without a GTID is in no set, and its file may be purged. There was none if the mode was not set either
  since the file was begun (``performance_schema.variables_info``, MySQL 8.0). Each change of the mode begins a new
  file, so the file that an offset names was written under one mode.
* Without GTIDs, and under the modes in which a transaction may have none, nothing tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import MAX_COPIED_CHARS, GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number, same_base

# Uptime is the time of the statement less that of the start. The start gives each variable a time as well, of which a
# fraction of a second may lie behind that of the file that the start begins; only a SET counts.
_ON_SINCE = (
    "SELECT CEIL(GREATEST(IF(v.VARIABLE_SOURCE = 'DYNAMIC', COALESCE(UNIX_TIMESTAMP(v.SET_TIME), 0), 0), "
    "UNIX_TIMESTAMP() - s.VARIABLE_VALUE)) "
    "FROM performance_schema.variables_info v, performance_schema.global_status s "
    "WHERE v.VARIABLE_NAME = 'gtid_mode' AND s.VARIABLE_NAME = 'Uptime'"
)

_SINCE_PRECISION_S = 2
"""Seconds by which two readings of one start differ: the time of a statement is that of its begin, and the server tells
how long it runs, in whole seconds, somewhat later."""


class PurgeLoss(Enum):
    """Say whether transactions after an offset were purged together with its file."""

    NONE = "none was"
    POSSIBLE = "some may have been"
    UNPROVEN = "none under another GTID was, and nothing shows that there were no others"


@dataclass(frozen=True, slots=True)
class ServerState:
    """Say how long a server has logged one history, each transaction with a GTID.

    Args:
        since_s: When it was started or its gtid_mode was set, whichever is later, in seconds since 1970.
        resets: How many RESET statements it has carried out since its start; ``FLUSH STATUS`` leaves the count. What
            the C function ``mysql_refresh`` resets on MySQL 8.0 is not in it; 9.7.4 has the command no more.
    """

    since_s: int
    resets: int

    @classmethod
    def read(cls, conn: MySqlConnection) -> ServerState | None:
        """Read it from the server; MySQL 5.7 does not say when a variable was set.

        Args:
            conn: An open connection.

        Raises:
            SourceConnectionError: The connection breaks.
        """
        try:
            since, resets = fetch_all(conn, _ON_SINCE), fetch_all(conn, "SHOW GLOBAL STATUS LIKE 'Com_reset'")
        except SourceConnectionError:
            raise
        except SourceError:
            return None
        return cls(int(since[0][0]), int(resets[0][1])) if since and resets else None

    def continues(self, former: str) -> bool:
        """Return whether the server has gone on in one history since a former state was read.

        Args:
            former: The text of that state; empty where it was not known.
        """
        since, _, resets = former.partition("-")
        if not since.isdecimal() or resets != str(self.resets):
            return False
        return abs(int(since) - self.since_s) <= _SINCE_PRECISION_S

    def __str__(self) -> str:
        return f"{self.since_s}-{self.resets}"


@dataclass(frozen=True, slots=True)
class ServerGtids:
    """Hold what a server says of the transactions that it has purged.

    Args:
        mode: Its gtid_mode.
        purged: Its gtid_purged.
        state: Since when it has logged one history; None where nothing tells.
    """

    mode: str
    purged: str = ""
    state: ServerState | None = None

    @classmethod
    def read(cls, conn: MySqlConnection) -> ServerGtids:
        """Read it from the server.

        Args:
            conn: An open connection.

        Raises:
            SourceError: A query fails.
        """
        mode, purged = fetch_all(conn, "SELECT @@GLOBAL.gtid_mode, @@GLOBAL.gtid_purged")[0]
        return cls(str(mode), str(purged), ServerState.read(conn))


def purge_loss(offset: BinlogOffset, first_file: str, gtids: ServerGtids) -> PurgeLoss:
    """Return whether transactions after an offset were purged together with its file.

    Args:
        offset: The offset.
        first_file: The first binlog file that the server has; the offset's is not among them.
        gtids: What the server says.
    """
    if gtids.mode != "ON" or not offset.gtids or not same_base(first_file, offset.file):
        return PurgeLoss.POSSIBLE
    if file_number(first_file) <= file_number(offset.file):
        return PurgeLoss.POSSIBLE
    if GtidSet.parse(gtids.purged) != GtidSet.parse(offset.gtids):
        return PurgeLoss.POSSIBLE
    created_s, state = _created_s(offset), gtids.state
    if created_s is None or state is None or state.since_s > created_s:
        return PurgeLoss.UNPROVEN
    return PurgeLoss.NONE if state.continues((offset.origin or "").partition("/")[2]) else PurgeLoss.UNPROVEN


def unproven_reason(offset: BinlogOffset) -> str:
    """Return why transactions may have been purged after an offset although gtid_purged has none of them.

    Args:
        offset: The offset.
    """
    return (
        f"its file was purged, and although gtid_purged has no transaction more than were read, transactions that were "
        f"purged may have had no GTID, or those of others: after the file was begun ({_created_text(offset)}) the "
        "server was started (maybe from a restored backup), its gtid_mode was set, or a RESET was carried out (of "
        "binary logs, or of replication)"
    )


def unproven_remedy(offset: BinlogOffset) -> str:
    """Return what to do where transactions may have been purged after an offset.

    Args:
        offset: The offset.
    """
    gtids = offset.gtids or ""
    requested = gtids if len(gtids) <= MAX_COPIED_CHARS else "the set of gtid_purged"
    return (
        "take a new snapshot (trigger mysql_cdc_snapshot with again=true), then trigger mysql_cdc_verify with "
        "repair=yes, as rows that were deleted meanwhile are still in the topics; or, if you know that since "
        f"{_created_text(offset)} the server was not restored from a backup, its binary logs were not reset, and "
        "gtid_mode has been ON without interruption (its error log names starts and changes): continue behind what was "
        f"read, trigger mysql_cdc_reset_offset with offset={requested}, then mysql_cdc_drain, then mysql_cdc_verify, "
        "which shows whether anything is missing"
    )


def _created_s(offset: BinlogOffset) -> int | None:
    """Return when the offset's file was begun (``file_fingerprint``), in seconds since 1970."""
    seconds = (offset.origin or "").partition(".")[0]
    return int(seconds) if seconds.isdigit() else None


def _created_text(offset: BinlogOffset) -> str:
    seconds = _created_s(offset)
    return "a time that is not known" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%F %T} UTC"


def loss_behind(conn: MySqlConnection, offset: BinlogOffset, files: Sequence[tuple[str, int]]) -> PurgeLoss:
    """Return whether transactions after an offset were purged together with its file, which the server has no more.

    Args:
        conn: An open connection to the server that the offset belongs to (``dump.require_same_server``).
        offset: The offset.
        files: What ``position.binary_logs`` returned.

    Raises:
        SourceError: A query fails.
    """
    if not offset.gtids or not files:
        return PurgeLoss.POSSIBLE
    return purge_loss(offset, files[0][0], ServerGtids.read(conn))
