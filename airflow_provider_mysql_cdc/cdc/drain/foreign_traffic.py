"""What others have logged behind the committed offset: transactions that change no table of the stream.

They make no records, and a batch that only moves the offset costs as much as one with records. While a run waits it
looks at what is new with SHOW BINLOG EVENTS, over the connection that it has, and lets the offset wait where nothing
can concern the stream. Only events that are known to be harmless count as such: a statement, a compressed transaction,
anything unknown, or very much at once is left to a batch, which reads all of it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_dicts
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.classify import in_any_case
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId

MAX_WAIT_S = 10.0
"""Seconds for which the offset stays behind what others have logged."""
MAX_EVENTS = 200
"""Events of one look; where there are more, a batch reads them for less."""
_ROWS = frozenset(f"{kind}_rows{form}" for kind in ("Write", "Update", "Delete") for form in ("", "_v1", "_partial"))
_HARMLESS = _ROWS | {"Gtid", "Gtid_tagged", "Anonymous_Gtid", "Xid", "Rows_query"}
"""Event_type of events that name no table; for rows the TABLE_MAP event before them does."""
_TABLE_MAP = re.compile(r"table_id: \d+ \((.*)\)", re.DOTALL)


class ForeignTraffic:
    """Say whether what was logged since a batch can wait, because it is about no table of the stream.

    Args:
        cfg: The connector's configuration.
        start: The committed offset, where the batch ended.
        clock: Seconds of a clock that is never set back.

    Attributes:
        waits: Whether something was logged that the offset is behind.
    """

    def __init__(self, cfg: ConnectorConfig, start: BinlogOffset, clock: Callable[[], float] = time.monotonic) -> None:
        self._start, self._clock, self.waits = start, clock, False
        self._needs = in_any_case(cfg.needs_schema)
        # With transaction metadata, transactions of others have records.
        self._is_foreign = not cfg[F.PROVIDE_TRANSACTION_METADATA]
        self._looked_at, self._wait_until = start.pos, 0.0

    def may_wait(self, conn: Any, end: BinlogOffset) -> bool:
        """Return whether nothing up to the end of the binlog needs a batch now; once it does, it goes on to.

        Args:
            conn: An open connection to the source.
            end: The end of the binlog; something was logged before it.

        Raises:
            SourceConnectionError: The connection is broken.
        """
        if self._is_foreign:
            self._is_foreign = self._is_same_file(end) and self._looked_to(conn, end)
        if self._is_foreign and not self.waits:
            self.waits, self._wait_until = True, self._clock() + MAX_WAIT_S
        return self._is_foreign and self._clock() < self._wait_until

    def _is_same_file(self, end: BinlogOffset) -> bool:
        return (end.server_uuid, end.file) == (self._start.server_uuid, self._start.file)

    def _looked_to(self, conn: Any, end: BinlogOffset) -> bool:
        """Look at what was logged since the last look; return whether all of it up to the end is harmless."""
        if end.pos == self._looked_at:
            return True
        try:
            query = f"SHOW BINLOG EVENTS IN %s FROM {self._looked_at} LIMIT {MAX_EVENTS}"
            events = fetch_dicts(conn, query, (end.file,))
        except SourceConnectionError:
            raise
        except SourceError:  # a right that is missing, or a place where no event begins: the batch says what is wrong
            return False
        if not events or len(events) == MAX_EVENTS or not all(map(self._is_harmless, events)):
            return False
        self._looked_at = int(events[-1]["End_log_pos"])
        return self._looked_at >= end.pos

    def _is_harmless(self, event: dict[str, Any]) -> bool:
        kind, info = event["Event_type"], str(event["Info"])
        if kind == "Query":
            return info in ("BEGIN", "COMMIT")
        if kind != "Table_map":
            return kind in _HARMLESS
        named = _TABLE_MAP.fullmatch(info)  # long names are cut off
        if named is None or "." not in named[1]:
            return False
        # Names may have dots, so all ways to read them count.
        parts = named[1].split(".")
        return not any(self._needs(TableId(".".join(parts[:n]), ".".join(parts[n:]))) for n in range(1, len(parts)))
