"""XA transactions: their rows are produced when they commit, not when they are prepared.

``XA PREPARE`` writes the rows into the binlog; ``XA COMMIT`` or ``XA ROLLBACK`` follow as groups of their own, any time
later, also after a restart of the server (MySQL manual, "Restrictions on XA Transactions"). So the writer remembers the
position of prepared rows, across batches, and reads them again when the transaction commits. A prepared transaction
keeps its metadata locks, so the tables still have the structure that the rows were written with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs
from airflow_provider_mysql_cdc.cdc.binlog.purged_files import ServerState
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import READ_AGAIN, BinlogPurgedError, UnsupportedEventError
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, PreparedXa, file_number

_VERBS = frozenset({"START", "END", "COMMIT", "ROLLBACK"})
_STATEMENT = re.compile(r"XA\s+(\w+)\s+(.*)", re.IGNORECASE | re.DOTALL)


def parse_xa(sql: str) -> tuple[str, str] | None:
    """Return verb and xid of an XA statement as the binlog holds it, or None for any other statement."""
    match = _STATEMENT.match(sql)
    return (match[1].upper(), "".join(match[2].split())) if match else None


def require_xa(sql: str, where: str) -> tuple[str, str]:
    """Return verb and xid of an XA statement that the binlog may hold: START, END, COMMIT or ROLLBACK.

    Args:
        sql: The statement.
        where: Its ``file:position``, for the error.

    Raises:
        UnsupportedEventError: It is another one, and rows depend on whether its transaction commits.
    """
    statement = parse_xa(sql)
    if statement is None or statement[0] not in _VERBS:
        raise UnsupportedEventError(
            "an XA statement is not understood",
            where=f"{where}: {sql[:200]}",
            why="which rows are produced depends on whether its transaction commits",
            remedy="report the statement; no setting skips it",
        )
    return statement


def is_one_phase(event: Event) -> bool:
    """Return whether an XA_PREPARE event is an ``XA COMMIT ... ONE PHASE`` (first byte of its body)."""
    return event.buf[event.body] != 0


class XaTransactions:
    """Keep track of the prepared XA transactions of a stream.

    Args:
        prepared: Those prepared before the batch and not decided yet.
        searched: Whether the batch commits one that was prepared before the stream began.
    """

    def __init__(self, prepared: Iterable[PreparedXa] = (), *, searched: bool = False) -> None:
        self.searched = searched
        self._prepared = {xa.xid: xa for xa in prepared}
        self._open: tuple[str, BinlogOffset] | None = None

    @property
    def open(self) -> bool:
        """Whether the stream is inside the rows of an XA transaction."""
        return self._open is not None

    @property
    def prepared(self) -> tuple[PreparedXa, ...]:
        """The transactions that are prepared and not decided yet."""
        return tuple(self._prepared.values())

    def start(self, xid: str, boundary: BinlogOffset) -> None:
        """Enter an XA transaction, whose first event is at ``boundary``."""
        self._open = xid, boundary

    def abandon(self) -> None:
        """Forget that the stream is inside an XA transaction, because it is read again from its beginning."""
        self._open = None

    def end(self, event: Event) -> PreparedXa | None:
        """Leave the XA transaction at its XA_PREPARE event; return it when it commits in one phase."""
        if self._open is None:
            return None
        xid, boundary = self._open
        self._open = None
        xa = PreparedXa(xid, boundary.file, boundary.pos, event.end_pos)
        if is_one_phase(event):
            return xa
        self._prepared[xid] = xa
        return None

    def take_prepared(self, xid: str) -> PreparedXa | None:
        """Forget a transaction that commits or rolls back, and return it; None when its rows were not read."""
        return self._prepared.pop(xid, None)


def read_rows(
    cfg: ConnectorConfig, xa: PreparedXa, server_uuid: str | None, on_wait: Callable[[], None] | None = None
) -> Iterable[Event]:
    """Return the events of a prepared transaction, to be read again.

    Args:
        cfg: The connector's configuration.
        xa: The transaction.
        server_uuid: The server whose binlog contains it; None if it is not known.
        on_wait: Called while the stream waits (``open_stream``).

    Raises:
        BinlogPurgedError: The binlog no longer contains it.
        ServerChangedError: Another server answers.
    """
    start, end = BinlogOffset(xa.file, xa.start, server_uuid=server_uuid), BinlogOffset(xa.file, xa.end)
    return BinlogScan(cfg.connection_settings(), start, end, reads_rows=True, **_waits(cfg, on_wait))


def _waits(cfg: ConnectorConfig, on_wait: Callable[[], None] | None) -> dict[str, Any]:
    return {"silence_timeout_s": cfg[F.SOURCE_SILENCE_TIMEOUT_MS] / 1000, "on_wait": on_wait}


def find_prepared(
    cfg: ConnectorConfig,
    xid: str,
    before: BinlogOffset,
    log: Log,
    on_wait: Callable[[], None] | None = None,
) -> PreparedXa | None:
    """Search the whole binlog for a transaction that was prepared before the stream began.

    Args:
        cfg: The connector's configuration.
        xid: Its id.
        before: The transaction boundary before its XA COMMIT.
        log: Takes one line of text.
        on_wait: Called while the search waits (``open_stream``).

    Returns:
        The transaction, or None when the binlog is complete and does not contain it: it had no rows.

    Raises:
        BinlogPurgedError: It may have been prepared in a file that was purged.
        ServerChangedError: Another server answers.
    """
    with connect(cfg.connection_settings()) as conn:
        first = binary_logs(conn)[0][0]
        ((purged,),) = fetch_all(conn, "SELECT @@GLOBAL.gtid_purged")
        state = ServerState.read(conn)
    log(f"XA transaction {xid} was prepared before this stream began; searching the binlog from {first} on")
    transactions, complete = XaTransactions(), False
    boundary = BinlogOffset(first, FILE_START, server_uuid=before.server_uuid)
    for event in BinlogScan(cfg.connection_settings(), boundary, before, **_waits(cfg, on_wait)):
        if event.type == c.PREVIOUS_GTIDS_LOG_EVENT and event.file == first:
            # The tables of a copied server have transactions that its binlog never had: they count as purged. After a
            # RESET the first file has that number again, and a transaction may have been prepared before it.
            complete = file_number(first) == 1 and not purged and not str(ev.parse_previous_gtids(event))
            complete = complete and state is not None and not state.resets and state.since_s <= event.timestamp
        elif event.type == c.QUERY_EVENT:
            statement = parse_xa(ev.parse_query(event).sql.strip())
            if statement is not None and statement[0] == "START":
                transactions.start(statement[1], boundary)
            elif statement is not None and statement[0] in ("COMMIT", "ROLLBACK"):
                transactions.take_prepared(statement[1])
        elif event.type == c.XA_PREPARE_LOG_EVENT:
            transactions.end(event)
        elif event.type in c.GTID_EVENTS:
            boundary = boundary.with_position(event.file, event.start_pos)
    prepared = transactions.take_prepared(xid)
    if prepared is None and not complete:
        raise BinlogPurgedError(
            f"the rows of XA transaction {xid} are no longer in the binlog",
            where=f"XA COMMIT at {before}",
            why=f"it was prepared before this stream began, and the server's binlog begins with {first}, before which "
            "there may have been another one",
            remedy=f"{READ_AGAIN}: the rows are in the tables",
        )
    return prepared
