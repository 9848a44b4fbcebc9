"""Records of structures that were set between two batches: by a signal, or read from the server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.drain.correction_records import correction_history
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import DdlEventHandler, signaled_history
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.schema.table_changes import SignalTableChange


@dataclass(frozen=True, slots=True)
class _BatchBoundary:
    """A position between two batches, which stands in for an event and for the transaction around it."""

    file: str
    start_pos: int
    timestamp: int
    commit_us: int = 0
    server_id: int = 0
    gtid: str | None = None
    thread: int = 0
    query: str | None = None
    begun: bool = False


def records_between_batches(
    cfg: ConnectorConfig,
    signaled: Sequence[SignalTableChange],
    applied: Sequence[TableChange],
    boundary: BinlogOffset,
    epoch: int,
) -> Iterator[SideRecord]:
    """Yield the records of structures that a signal set between two batches, outside of the binlog.

    Args:
        cfg: The connector's configuration.
        signaled: The structures that the signal contains.
        applied: What they changed.
        boundary: The boundary after the last batch, from which on the structures are valid.
        epoch: The batch's epoch.
    """
    boundary_event = _BatchBoundary(boundary.file, boundary.pos, int(time.time()))
    for change in applied:
        yield from DdlEventHandler(cfg, epoch, {}).schema_changes([change], boundary_event, boundary_event)
    yield from signaled_history(cfg, signaled, boundary, epoch, between=True)


def correction_between_batches(
    cfg: ConnectorConfig, change: TableChange, boundary: BinlogOffset, epoch: int
) -> Iterator[SideRecord]:
    """Yield the records of a structure that was read from the server after a batch.

    Args:
        cfg: The connector's configuration.
        change: The structure, as a change of the table.
        boundary: The boundary after the batch, from which on the structure is valid.
        epoch: The batch's epoch.
    """
    boundary_event = _BatchBoundary(boundary.file, boundary.pos, int(time.time()))
    yield from DdlEventHandler(cfg, epoch, {}).schema_changes([change], boundary_event, boundary_event)
    yield correction_history(cfg, change, replace(boundary, origin=None), epoch)
