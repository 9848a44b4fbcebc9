"""What is written about a structure that a TABLE_MAP event corrects: log line and history record."""

from __future__ import annotations

import time

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.decode.table_correction import TableCorrection
from airflow_provider_mysql_cdc.cdc.emit.schema_change import change_dict
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord


def correction_warning(correction: TableCorrection, where: str) -> str:
    """Return the line of the log.

    Args:
        correction: The structure.
        where: ``file:position`` of the TABLE_MAP event.
    """
    return (
        f"WARNING: the structure of {correction.table.id} in the schema history differs from that of its rows at "
        f"{where}: {correction.differences()}. The schema history is corrected from the binlog; please report the last "
        "statements that changed the table"
    )


def correction_history(cfg: ConnectorConfig, change: TableChange, position: BinlogOffset, epoch: int) -> SideRecord:
    """Return the history record of a corrected structure.

    Args:
        cfg: The connector's configuration.
        change: The correction, as a change of the table.
        position: The position from which on it is valid.
        epoch: The batch's epoch.
    """
    record = HistoryRecord(
        cfg[F.TOPIC_PREFIX],
        position,
        epoch,
        time.time_ns() // 1_000_000,
        change.db,
        "",
        table_changes=(change_dict(change),),
        structure=change.table,
    )
    return SideRecord(cfg.history_topic, None, record.to_bytes())
