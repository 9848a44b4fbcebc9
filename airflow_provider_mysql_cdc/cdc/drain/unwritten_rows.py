"""Changed rows of which the stream has no record: writers of a window report them, and its driver adds them up.

Only the writer that leaves a row out knows of it, but each task of the window reads rows of all keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.table import TableId

MAX_BYTES = 1 << 20
"""Bytes of keys that are reported; JSON makes up to six bytes of each, and a message has at most 16 MB. A table with
more is read in a later window."""


@dataclass(slots=True)
class UnwrittenRows:
    """Collect changes of rows that the stream has no record of.

    Args:
        keys: Number of such changes by table and key, the keys as ``WindowKeys`` has them.
        tables: Tables of which it is not known which rows these are, or whose rows changed their key by it.
    """

    keys: dict[TableId, dict[bytes, int]] = field(default_factory=dict)
    tables: set[TableId] = field(default_factory=set)
    _bytes: int = field(default=0, compare=False)

    def __bool__(self) -> bool:
        return bool(self.keys or self.tables)

    def add(self, table: TableId, key: bytes, changes: int = 1) -> None:
        """Add changes of one row.

        Args:
            table: Its table.
            key: Its key.
            changes: Their number.
        """
        if table in self.tables:
            return
        counts = self.keys.setdefault(table, {})
        if key not in counts:
            self._bytes += len(key)
        if self._bytes > MAX_BYTES:
            self.add_table(table)
            return
        counts[key] = counts.get(key, 0) + changes

    def add_table(self, table: TableId) -> None:
        """Add a table that cannot be read in this window.

        Args:
            table: The table.
        """
        self.tables.add(table)
        self._bytes -= sum(map(len, self.keys.pop(table, ())))

    def merge(self, other: UnwrittenRows) -> None:
        """Add what another writer has reported.

        Args:
            other: Its rows.
        """
        for table in other.tables:
            self.add_table(table)
        for table, counts in other.keys.items():
            for key, changes in counts.items():
                self.add(table, key, changes)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        keys = [
            [table.db, table.table, {key.decode("latin-1"): n for key, n in counts.items()}]
            for table, counts in self.keys.items()
        ]
        return {"keys": keys, "tables": [[table.db, table.table] for table in sorted(self.tables, key=str)]}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> UnwrittenRows:
        """Read what ``to_json`` wrote."""
        keys = {
            TableId(db, name): {key.encode("latin-1"): int(n) for key, n in counts.items()}
            for db, name, counts in members["keys"]
        }
        size = sum(len(key) for counts in keys.values() for key in counts)
        return cls(keys, {TableId(db, name) for db, name in members["tables"]}, size)
