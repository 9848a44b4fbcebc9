"""The offset store in Airflow's own asset state, from a task and from outside of one."""

from __future__ import annotations

import json
from typing import Any, Protocol

from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState, conflict_error, is_same_write, next_revision
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, require_version, versioned

POINTS_PREFIX = "lag/"
"""Begins the key of the points of a stream's lag (``operate.lag``)."""
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


METASTORE_BACKEND = "airflow.state.metastore.MetastoreBackend"


class MetadataAccessor:
    """Read and write the state of an asset on a host with access to the metadata database, such as the scheduler's.

    Args:
        name: The asset's name.

    Raises:
        StateError: No DAG uses the asset, the database does not answer, or another backend stores the values.
    """

    def __init__(self, name: str) -> None:
        from airflow.models.asset import AssetActive, AssetModel
        from airflow.utils.session import create_session
        from sqlalchemy import select
        from sqlalchemy.exc import SQLAlchemyError

        _require_metadata_database()
        active = (AssetActive.name == AssetModel.name) & (AssetActive.uri == AssetModel.uri)
        query = select(AssetModel.id).join(AssetActive, active).where(AssetModel.name == name)
        try:
            with create_session() as session:
                self._id = session.scalar(query)
        except SQLAlchemyError as error:
            raise StateError(
                "Airflow's metadata database does not answer",
                why=str(getattr(error, "orig", None) or type(error).__name__),
                remedy="run the command on the host of the scheduler or the API server, with their configuration",
                retriable=True,
            ) from None
        if self._id is None:
            raise StateError(
                "no DAG uses this asset",
                where=f"asset {name}",
                why="Airflow deletes the state of an asset that nothing references",
                remedy="let Airflow parse a DAG of this provider first, or set --asset to the operators' offset_asset",
            )

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        from airflow._shared.state import AssetScope
        from airflow.state.metastore import MetastoreBackend

        text = MetastoreBackend().get(AssetScope(asset_id=self._id), key)
        return default if text is None else json.loads(text)

    def set(self, key: str, value: Any) -> None:
        """Store a JSON value; Airflow shows it as written through its API."""
        from airflow._shared.state import AssetScope, AssetStateStoreWriterKind
        from airflow.state.metastore import MetastoreBackend

        MetastoreBackend().set_asset_state_store(
            AssetScope(asset_id=self._id), key, json.dumps(value), kind=AssetStateStoreWriterKind.API
        )

    def keys(self) -> list[str]:
        """Return the keys that have a value, in order."""
        from airflow.models.asset_state_store import AssetStateStoreModel
        from airflow.utils.session import create_session
        from sqlalchemy import select

        query = select(AssetStateStoreModel.key).where(AssetStateStoreModel.asset_id == self._id)
        with create_session() as session:
            return sorted(session.scalars(query))


def _require_metadata_database() -> None:
    from airflow.configuration import conf

    for section, option in (("workers", "state_store_backend"), ("state_store", "backend")):
        backend = conf.get(section, option, fallback="") or METASTORE_BACKEND
        if backend != METASTORE_BACKEND:
            raise StateError(
                "the state of assets is not stored in the metadata database, so this command cannot read it",
                where=f"[{section}] {option} = {backend}",
                remedy="move the offset with the DAG mysql_cdc_reset_offset; or set offset_conn_id in the DAGs:"
                " the next run restores the offset there from the ledger",
            )
