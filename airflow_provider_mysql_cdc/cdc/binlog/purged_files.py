"""Positions in a purged binlog file from which nothing is lost: the stored offset of a stream that had read everything.

A server purges whole files, oldest first; ``gtid_purged`` is then the set executed before the first file that is left.
If this is exactly the set executed up to a position, every transaction after it is in the files that are left.

* A transaction that was purged after the position is in ``gtid_purged`` and not in the position's set. This includes
  one that a writer has committed in part: the position is the boundary before it.
* A transaction of the set that is not in ``gtid_purged`` shows another history: the binary logs were reset, and GTIDs
  and file names come again.
* Without GTIDs, and under the modes in which a transaction may have none, nothing tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number, same_base


def purged_without_loss(offset: BinlogOffset, first_file: str, gtid_mode: str, gtid_purged: str) -> bool:
    """Return whether an offset's file was purged, and no transaction after the offset with it.

    Args:
        offset: The offset.
        first_file: The first binlog file that the server has.
        gtid_mode: The server's gtid_mode.
        gtid_purged: The server's gtid_purged.
    """
    if gtid_mode != "ON" or not offset.gtids or not same_base(first_file, offset.file):
        return False
    if file_number(first_file) <= file_number(offset.file):
        return False
    return GtidSet.parse(gtid_purged) == GtidSet.parse(offset.gtids)


def first_file_after(conn: Any, offset: BinlogOffset, files: Sequence[tuple[str, int]]) -> str | None:
    """Return the file with which a stream continues from an offset whose file was purged without loss.

    Args:
        conn: An open connection to the server that the offset belongs to (``dump.require_same_server``).
        offset: The offset.
        files: What ``position.binary_logs`` returned.

    Returns:
        The first file that the server has; None when events may be lost, or the offset's file is there.

    Raises:
        SourceError: The query fails.
    """
    if not offset.gtids or not files:
        return None
    first_file = files[0][0]
    gtid_mode, gtid_purged = fetch_all(conn, "SELECT @@GLOBAL.gtid_mode, @@GLOBAL.gtid_purged")[0]
    return first_file if purged_without_loss(offset, first_file, str(gtid_mode), str(gtid_purged)) else None
