"""What a batch takes over from the one before it, besides producer and ledger: dump connection and routes of tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog.stream import BinlogStream
from airflow_provider_mysql_cdc.cdc.drain.kept_routes import KeptRoutes
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, same_fingerprint


@dataclass(slots=True)
class KeptDump:
    """Hold a dump connection from the end of one batch to the start of the next.

    Attributes:
        check: Called while the dump waits, and when something has arrived; that of the batch that is written.
    """

    check: Callable[[], None] = lambda: None
    _stream: BinlogStream | None = None
    _end: BinlogOffset | None = None

    def on_wait(self) -> None:
        """Call the current batch's check (``open_stream``)."""
        self.check()

    def take(self, start: BinlogOffset) -> BinlogStream | None:
        """Return the connection if it stands where a batch starts, on the same server and in the same file.

        It was checked when it was opened, and a server reads one file after the other for it, so nothing can come in
        between. One that stands elsewhere is closed.

        Args:
            start: The batch's start.
        """
        stream, end, self._stream = self._stream, self._end, None
        if stream is None or end is None:
            return None
        same_server = start.server_uuid == end.server_uuid and same_fingerprint(end.origin, start.origin)
        if same_server and stream.reached == (start.file, start.pos):
            return stream
        stream.close()
        return None

    def keep(self, stream: BinlogStream, end: BinlogOffset) -> None:
        """Keep a connection.

        Args:
            stream: The connection; a batch was read to its end.
            end: The batch's end.
        """
        self._stream, self._end, self.check = stream, end, lambda: None

    def close(self) -> None:
        """Close the connection, if one is kept."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


@dataclass(frozen=True, slots=True)
class KeptParts:
    """Hold what a batch takes over from the one before, besides producer and ledger.

    Args:
        dump: The dump connection.
        routes: Routes of tables.
        met_tables: Tables that the producer's client has met (``producer_renewal``).
    """

    dump: KeptDump = field(default_factory=KeptDump)
    routes: KeptRoutes = field(default_factory=KeptRoutes)
    met_tables: set[str] = field(default_factory=set)
