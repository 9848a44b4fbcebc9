"""Look into a part of the binlog beside the writers, over a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog.connect import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.binlog.dump import UNREGISTERED_SERVER_ID
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.stream import BinlogStream, open_stream
from airflow_provider_mysql_cdc.cdc.binlog.unused_rows import no_rows
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset


@dataclass(slots=True)
class BinlogScan:
    """Iterate over the events between two transaction boundaries; what ends the iteration closes the connection.

    Args:
        settings: How to reach the server.
        start: The first boundary.
        end: The last one, which the server has reached.
        server_id: Id to read with; one of the stream's ends the dump of a writer that lives.
        reads_rows: Whether rows are used; large row events come with their beginning only where they are not.
        silence_timeout_s: As for ``open_stream``.
        on_wait: As for ``open_stream``.
        stream: The stream of the iteration, also behind its end.

    Raises:
        SourceError: The binlog cannot be read.
    """

    settings: ConnectionSettings
    start: BinlogOffset
    end: BinlogOffset
    server_id: int = UNREGISTERED_SERVER_ID
    reads_rows: bool = False
    silence_timeout_s: float | None = None
    on_wait: Callable[[], None] | None = None
    stream: BinlogStream = field(init=False)

    def __iter__(self) -> Iterator[Event]:
        self.stream = open_stream(
            self.settings,
            self.start,
            server_id=self.server_id,
            silence_timeout_s=self.silence_timeout_s,
            on_wait=self.on_wait,
        )
        with closing(self.stream):
            yield from self.stream.events(self.end, unused=None if self.reads_rows else no_rows)
