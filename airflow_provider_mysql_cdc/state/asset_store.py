"""The offset store in Airflow's own asset state (Airflow 3.3 and later)."""

from __future__ import annotations

from typing import Any, Protocol

from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState, conflict_error, is_same_write, next_revision


class StateAccessor(Protocol):
    """The part of Airflow's ``AssetStateStoreAccessor`` that is used."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default."""

    def set(self, key: str, value: Any) -> None:
        """Store a JSON value."""


class AssetOffsetStore:
    """Keep the whole stored state under one key of an asset's state.

    One key, because setting a key is the only atomic step that Airflow offers here. A person can read and edit it on
    the asset's page, tab "Asset state store".

    Gap: Airflow has no compare-and-swap for asset state, so ``save`` reads, compares and writes; two saves within the
    same few milliseconds can both pass. The lock on the source server and Kafka's fencing of the epoch catch that. The
    scheduler deletes the state of an asset that no DAG references any more; the ledger then restores it.

    Args:
        accessor: ``context["asset_state_store"][asset]``.
        prefix: topic.prefix; pipelines may share an asset.
    """

    def __init__(self, accessor: StateAccessor, prefix: str) -> None:
        self._accessor = accessor
        self.key = f"offset/{prefix}"

    def load(self) -> StoredState | None:
        """Return what is stored, or None.

        Raises:
            StateError: The value is not one that this store wrote.
        """
        value = self._accessor.get(self.key, None)
        return None if value is None else StoredState.from_json(value, f"asset state, key {self.key}")

    def save(self, new: StoredState, expected: StoredState | None) -> StoredState:
        """Replace the stored state, if it is still the expected one; see ``OffsetStore.save``.

        Args:
            new: The state to store; its revision is set here.
            expected: What ``load`` or the last ``save`` returned.

        Returns:
            What is stored now.

        Raises:
            OffsetConflictError: Something else is stored by now.
        """
        current = self.load()
        if not is_same_write(current, expected):
            raise conflict_error(f"asset state, key {self.key}", expected, current)
        stored = next_revision(new, current)
        self._accessor.set(self.key, stored.to_json())
        return stored
