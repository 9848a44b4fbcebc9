"""An asset's state outside of a task: through Airflow's metadata database, as Airflow's own command line does."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import StateError

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
