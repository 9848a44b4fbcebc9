"""What the native kernel has decoded, and what it has left to Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record


@dataclass(frozen=True, slots=True)
class NativeCounts(Record):
    """Count what the kernel has done.

    Args:
        rows: Rows that it has decoded.
        declined: Row events that Python has decoded although there is a kernel, by reason (docs/native.md).
    """

    rows: Count = 0
    declined: Mapping[str, Count] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.rows or self.declined)

    def add(self, other: NativeCounts) -> NativeCounts:
        """Return both together.

        Args:
            other: The others.
        """
        declined = dict(self.declined)
        for reason, events in other.declined.items():
            declined[reason] = declined.get(reason, 0) + events
        return NativeCounts(self.rows + other.rows, declined)

    def since(self, before: NativeCounts) -> NativeCounts:
        """Return what has come to an earlier count.

        Args:
            before: The earlier count.
        """
        declined = {reason: n - before.declined.get(reason, 0) for reason, n in self.declined.items()}
        return NativeCounts(self.rows - before.rows, {reason: n for reason, n in declined.items() if n})

    def members(self) -> dict[str, Any]:
        """Return what a task's result says of them; nothing where there is nothing to tell."""
        counts = {"native_rows": self.rows, "native_declined": dict(self.declined)}
        return {name: value for name, value in counts.items() if value}

    def text(self) -> str:
        """Return what the job's log says of them; empty where there is nothing to tell."""
        if not self:
            return ""
        events = sum(self.declined.values())
        reasons = ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in sorted(self.declined.items()))
        declined_text = f", {events:,} row events left to Python ({reasons})" if events else ""
        return f"the native kernel decoded {self.rows:,} rows{declined_text}"
