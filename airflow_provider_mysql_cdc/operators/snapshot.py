"""The operator that snapshots tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.operators.adhoc_snapshot import OTHER_RUN_ERRORS, MySqlCdcAdhocSnapshotOperator
from airflow_provider_mysql_cdc.operators.arguments import parse_bool
from airflow_provider_mysql_cdc.operators.base import MySqlCdcSparkOperator
from airflow_provider_mysql_cdc.operators.common import generation_of, owner_of

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.operate.job_lifecycle import PreparedJob
    from airflow_provider_mysql_cdc.cdc.operate.snapshot_again import RepeatedSnapshot


class MySqlCdcSnapshotOperator(MySqlCdcAdhocSnapshotOperator):
    """Read the captured tables in one consistent view, in parallel, and store the offset at which the view stands.

    Does nothing when ``snapshot.mode`` asks for none, for example when an offset exists already (mode ``initial``). An
    interrupted snapshot is resumed: chunks whose marker stands in the ledger are not read again.

    With ``again`` (or ``snapshot.mode=always``) beside a stream it is a blocking snapshot: a drain brings Kafka to the
    end of the binlog, and while the stream stands there the tables are read behind it. No change is passed over, of
    tables that are read or of others, and no row stays in a topic that was deleted meanwhile. It is
    a snapshot of its own where there is no stream to keep: its binlog was purged, its schema history is lost, or a
    person moved the offset.

    Args:
        tables: Tables to read, each an entry as in ``table.include.list``; one, a list, or a list's JSON text; none
            means all. A first snapshot captures no others. (templated)
        again: Take a new snapshot although an offset is stored already. (templated)
        kwargs: As for ``MySqlCdcSparkOperator``.
    """

    template_fields: Sequence[str] = (*MySqlCdcSparkOperator.template_fields, "tables", "again")
    mode = "snapshot"
    job_file = "snapshot_tables.py"

    def __init__(self, *, tables: Sequence[str] | str = (), again: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.again = again
        self._draining_first = False

    def prepare(self, cfg: ConnectorConfig, store: OffsetStore, owner: str, run_for_s: float) -> PreparedJob | None:
        """Plan the snapshot, or return None when none is due; beside a stream plan a drain."""
        from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
        from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot

        if self._signal_id:
            return self.prepare_snapshot_drain(cfg, store, owner)
        if self._draining_first:
            return prepare_drain(cfg, store, owner, self.log.info)
        return prepare_snapshot(cfg, store, owner, self.log.info, again=self._again)

    @property
    def _again(self) -> bool:
        return parse_bool(self.again, "again")

    def _run_task(self, cfg: ConnectorConfig, store: OffsetStore, context: Any, deadline: float) -> dict[str, Any]:
        snapshot_cfg = self._snapshot_config(cfg)
        concurrent = self._plan_concurrent(cfg, snapshot_cfg, store, context)
        if concurrent is not None and concurrent.collections:
            return self._read_concurrent(cfg, store, context, concurrent.collections)
        if concurrent is not None:
            self.log.info("The tables cannot be read behind a drain (%s), so the drain comes first.", concurrent.reason)
            self._draining_first = True
            self._run_job(cfg, store, context, time.monotonic())
            self._draining_first = False
        return super()._run_task(snapshot_cfg, store, context, deadline)

    def _snapshot_config(self, cfg: ConnectorConfig) -> ConnectorConfig:
        """Return the configuration with the tables to be read as its list of tables."""
        from airflow_provider_mysql_cdc.cdc.operate.snapshot_again import capturing_only
        from airflow_provider_mysql_cdc.cdc.operate.snapshot_request import parse_tables

        return capturing_only(cfg, parse_tables(self.tables))

    def _plan_concurrent(
        self, cfg: ConnectorConfig, snapshot_cfg: ConnectorConfig, store: OffsetStore, context: Any
    ) -> RepeatedSnapshot | None:
        """Decide how a stream is kept; wait while another run is in the middle of something."""
        from airflow_provider_mysql_cdc.cdc.operate.snapshot_again import plan_repeated_snapshot

        while True:
            try:
                return plan_repeated_snapshot(
                    cfg, snapshot_cfg, store, owner_of(context), self.log.info, again=self._again
                )
            except OTHER_RUN_ERRORS as error:
                self.log.info("Another run is at work: %s", error)
            self._wait()

    def _read_concurrent(
        self, cfg: ConnectorConfig, store: OffsetStore, context: Any, collections: Sequence[str]
    ) -> dict[str, Any]:
        from airflow_provider_mysql_cdc.cdc.operate.snapshot_request import signal_id, snapshot_signal

        if self._should_defer():
            self.log.info("The task is not deferred: it drains until the tables are read, and waits for other runs.")
        self.log.info("There is a stream, so it is drained to its end, and stands while the tables are read.")
        id_ = signal_id(owner_of(context), generation_of(context))
        signal = snapshot_signal(cfg, collections, kind="blocking", channel=self.channel, id_=id_)
        self._send_signal(cfg, context, signal, collections)
        return {**self._idle_result(cfg, store, context), **self._drain_until_done(cfg, store, context)}
