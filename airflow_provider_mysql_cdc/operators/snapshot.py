"""The operator that snapshots tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.operators.base import MySqlCdcSparkOperator

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.operate.around_job import PreparedJob


class MySqlCdcSnapshotOperator(MySqlCdcSparkOperator):
    """Read the captured tables in one consistent view, in parallel, and store the offset at which the view stands.

    Does nothing when ``snapshot.mode`` asks for none, for example when an offset exists already (mode ``initial``). An
    interrupted snapshot is resumed: chunks whose marker stands in the ledger are not read again.

    Args:
        again: Take a new snapshot although an offset is stored already. (templated)
        kwargs: As for ``MySqlCdcSparkOperator``.
    """

    template_fields: Sequence[str] = (*MySqlCdcSparkOperator.template_fields, "again")
    mode = "snapshot"
    job_file = "snapshot_tables.py"

    def __init__(self, *, again: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.again = again

    def prepare(self, cfg: ConnectorConfig, store: OffsetStore, owner: str, run_for_s: float) -> PreparedJob | None:
        """Plan the snapshot, or return None when none is due."""
        from airflow_provider_mysql_cdc.cdc.operate.around_job import prepare_snapshot

        return prepare_snapshot(cfg, store, owner, self.log.info, again=str(self.again).lower() == "true")
