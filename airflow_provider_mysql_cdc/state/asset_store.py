"""The offset store in Airflow's own asset state (Airflow 3.3 and later)."""

from __future__ import annotations

from typing import Any, Protocol

from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState, conflict_error, is_same_write, next_revision
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, require_version, versioned

POINTS_PREFIX = "lag/"
"""Begins the key of the points of a stream's lag (``operate.lag_history``)."""
KEY_PREFIX = "offset/"
"""Begins the key of a stream's state; its topic.prefix follows."""


class StateAccessor(Protocol):
    """The methods of Airflow's ``AssetStateStoreAccessor`` that the store uses."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default."""

    def set(self, key: str, value: Any) -> None:
        """Store a JSON value."""


class AssetOffsetStore:
    """Keep the whole stored state under one key of an asset's state.

    One key, because setting a key is the only atomic operation that Airflow has here. It can be read and edited on the
    asset's page, tab "Asset state store".

    Limitation: Airflow has no compare-and-swap for asset state, so ``save`` reads, compares and writes; two saves
    within the same few milliseconds can both succeed. The lock on the source server and Kafka's fencing of the epoch
    catch that. The scheduler deletes the state of an asset that no DAG references any more; the next run restores it
    from the ledger.

    Args:
        accessor: ``context["asset_state_store"][asset]``.
        prefix: topic.prefix; pipelines may share an asset.
    """

    def __init__(self, accessor: StateAccessor, prefix: str) -> None:
        self._accessor = accessor
        self.key = f"{KEY_PREFIX}{prefix}"
        self.points_key = f"{POINTS_PREFIX}{prefix}"

    def prefixes(self) -> list[str]:
        """Return the ``topic.prefix`` of each stored state, in order; none where the accessor cannot list its keys."""
        keys: list[str] = getattr(self._accessor, "keys", list)()
        return [key.removeprefix(KEY_PREFIX) for key in keys if key.startswith(KEY_PREFIX)]

    def load(self) -> StoredState | None:
        """Return the stored state, or None.

        Raises:
            StateError: The value was not written by this store.
        """
        value = self._accessor.get(self.key, None)
        return None if value is None else StoredState.read(value, f"asset state, key {self.key}")

    def save(self, new: StoredState, expected: StoredState | None) -> StoredState:
        """Replace the stored state, if it is still the expected one; see ``OffsetStore.save``.

        Args:
            new: The state to store; its revision is set here.
            expected: The result of ``load`` or of the last ``save``.

        Returns:
            The stored state.

        Raises:
            OffsetConflictError: The stored state is not the expected one.
        """
        current = self.load()
        if not is_same_write(current, expected):
            raise conflict_error(f"asset state, key {self.key}", expected, current)
        stored = next_revision(new, current)
        self._accessor.set(self.key, stored.to_json())
        return stored

    def load_points(self) -> list[Any]:
        """Return the points of the stream's lag, oldest first; see ``LagPointStore``."""
        value = self._accessor.get(self.points_key, None)
        if value is None:
            return []
        require_version(value, f"asset state, key {self.points_key}")
        return list(Members(value).values("points"))

    def save_points(self, points: list[Any]) -> None:
        """Replace the points of the stream's lag; see ``LagPointStore``."""
        self._accessor.set(self.points_key, versioned({"points": points}))
