"""The result of a task and the asset events that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.operators.asset_events import StreamAssets, add_run_events
from airflow_provider_mysql_cdc.operators.common import owner_of, run_key
from airflow_provider_mysql_cdc.operators.metrics_output import result_metrics
from airflow_provider_mysql_cdc.operators.run_summary import SUMMARY_KEY, summary_text

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig


class TaskResult:
    """Build the result of one try of a task, and report each batch of the ledger once in asset events.

    Args:
        context: Airflow's context.
        assets: The task's assets.
        log: Takes a line with its arguments.
    """

    def __init__(self, context: Any, assets: StreamAssets, log: Callable[..., None]) -> None:
        self._context, self._assets, self._log = context, assets, log
        self._reported: tuple[ConnectorConfig, RunTally] | None = None

    def result(
        self,
        cfg: ConnectorConfig,
        offset: Mapping[str, Any] | None,
        counts: Mapping[str, int],
        tally: RunTally | None,
    ) -> dict[str, Any]:
        """Return the task's result, and add the asset events that belong to it.

        Args:
            cfg: The connector's configuration.
            offset: The stored offset as JSON.
            counts: Records by topic.
            tally: What the run has written; None when there is nothing to report.
        """
        result: dict[str, Any] = {"complete": True, "offset": offset, "counts": counts}
        if tally is None:
            return result
        add_run_events(self._context, cfg, self._assets, offset, tally)
        self._reported = (cfg, tally)
        result |= {"batches": tally.batches, "tables": dict(tally.tables), **tally.native.members()}
        return result | result_metrics(tally.metrics)

    def idle_result(self, cfg: ConnectorConfig, store: OffsetStore) -> dict[str, Any]:
        """Return the result of a try that has started no job; it reports what earlier tries and ended runs wrote.

        Args:
            cfg: The connector's configuration.
            store: Airflow's offset store.
        """
        from airflow_provider_mysql_cdc.cdc.operate.offset_from_ledger import tally_of, tally_of_ended_run

        context = self._context
        state = store.load()
        offset = state.committed.to_json() if state and state.committed else None
        tally = tally_of(cfg, run_key(context)) if getattr(context["ti"], "try_number", 1) > 1 else None
        if tally is None and offset is not None:
            tally = tally_of_ended_run(cfg, owner_of(context))
        return self.result(cfg, offset, {} if tally is None else dict(tally.counts), tally)

    def publish_summary(self, result: Mapping[str, Any]) -> None:
        """Push the XCom that says in a sentence what the task did.

        Args:
            result: The task's result.
        """
        with suppress(Exception):  # the result says the same; no task fails for its summary
            self._context["ti"].xcom_push(key=SUMMARY_KEY, value=summary_text(result))

    def mark_reported(self) -> None:
        """Record in the ledger that this task, which now succeeds, has reported its batches."""
        from airflow_provider_mysql_cdc.cdc.operate.offset_from_ledger import mark_reported

        if self._reported is not None and self._reported[1].batches:
            mark_reported(*self._reported, run_key(self._context), self._log)
