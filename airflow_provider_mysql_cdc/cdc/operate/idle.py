"""What a drain that has nothing to do looks at while it waits: cheap, silent, and nothing is changed."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import RunInProgressError
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.incremental.signal_processor import work_waits
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.operate.lag import Drained, Thresholds, judge, look


def worth_planning(cfg: ConnectorConfig, store: OffsetStore, owner: str) -> bool:
    """Return whether a drain that had nothing to do may have something now.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        owner: ``dag_id/run_id/task_id/map_index`` of this run.

    Raises:
        CdcError: It cannot be found out; planning names what is wrong.
    """
    if str(cfg[F.SNAPSHOT_MODE]) == "initial_only":
        return False
    settings = cfg.connection_settings()
    try:
        run_lock.require_nobody_else(settings, cfg.topic_prefix, owner)
    except RunInProgressError:
        return False
    if judge(Drained.of(store.load()), look(settings), Thresholds()).reached:
        return True
    return work_waits(cfg, wiring.ledger(cfg).peek())
