"""The operator that drains the binlog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.operators.adhoc_snapshot import is_other_run_error
from airflow_provider_mysql_cdc.operators.base import MySqlCdcSparkOperator

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.operate.job_lifecycle import PreparedJob


MAX_RACES = 3
"""How often another run may come first before that is an error; each time may cost a start of Spark."""


class MySqlCdcDrainOperator(MySqlCdcSparkOperator):
    """Read the binlog from the stored offset to an end fixed before reading, and move the offset there.

    With ``run_for`` one Spark session drains batch after batch until the time is over; before the first event there is
    no Spark session, the task only looks for new events every few seconds. While another run of the same stream is at
    work, a long snapshot for example, it does nothing, or waits until ``run_for`` is over; so does the later one of two
    that begin at the same time.

    Args:
        kwargs: As for ``MySqlCdcSparkOperator``.
    """

    mode = "drain"
    job_file = "drain_binlog.py"

    def prepare(self, cfg: ConnectorConfig, store: OffsetStore, owner: str, run_for_s: float) -> PreparedJob | None:
        """Plan the batch, or return None when the server stands at the stored offset."""
        from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain

        return prepare_drain(cfg, store, owner, self.log.info, run_for_s=run_for_s, give_way=True)

    def _run_task(self, cfg: ConnectorConfig, store: OffsetStore, context: Any, deadline: float) -> dict[str, Any]:
        """Drain, and look anew when another run has come first between this one's plan and its driver's first step."""
        from airflow_provider_mysql_cdc.cdc.job.run_lock import LOCK_LOST

        for attempts_left in reversed(range(MAX_RACES)):
            try:
                return super()._run_task(cfg, store, context, deadline)
            except (AirflowException, CdcError) as error:
                if not attempts_left or not is_other_run_error(error) or LOCK_LOST in str(error):
                    raise
                self.log.info("Another run came first: %s", error)
        raise AssertionError("the last race is raised")
