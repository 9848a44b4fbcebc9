"""The one channel from a task's process to Airflow, for tasks that use it in several threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

CHANNEL_LOCK = threading.RLock()
"""Held for each request of a thread. Airflow's own channel has a lock (``CommsDecoder``); that of ``dag.test`` has
none, and is away while it answers (``InProcessTestSupervisor``, 3.3)."""


@dataclass(frozen=True, slots=True)
class LockedAccessor:
    """Use Airflow's accessor of an asset's state in several threads.

    Args:
        accessor: ``context["asset_state_store"][asset]``.
    """

    accessor: Any

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        with CHANNEL_LOCK:
            return self.accessor.get(key, default)

    def set(self, key: str, value: Any) -> None:
        """Store a JSON value."""
        with CHANNEL_LOCK:
            self.accessor.set(key, value)
