"""What OpenLineage's provider asks the operator of fleets: tables and topics of all its streams."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.operators.task_lineage import TaskLineageMixin

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.operators.fleet_outcome import StreamOutcome

    Written = tuple[StreamOutcome, ConnectorConfig]

MAX_DESCRIBED = 16
"""Streams whose tables are described with their columns, those with the most records; their servers are asked at the
same time, because OpenLineage gives up after ten seconds."""


class FleetLineageMixin(TaskLineageMixin):
    """Describe a task of many streams: the datasets of each as the drain operator names them, and a facet of all.

    Also a task that has failed names what its drained streams have written.
    """

    lineage_streams: Sequence[tuple[StreamOutcome, ConnectorConfig | None]] = ()
    """What happened to each stream, with its configuration where it could be read; empty before it is known."""

    def get_openlineage_facets_on_start(self) -> Any:
        """Return the lineage that is known before the task does anything; the provider of OpenLineage calls this."""
        from airflow_provider_mysql_cdc.operators.openlineage_facets import lineage_of_flows, merged_lineage

        return merged_lineage([lineage_of_flows(cfg, self._named_flows(cfg)) for cfg in self._readable_configs()])

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the lineage of a task that has succeeded; the provider of OpenLineage calls this.

        Args:
            task_instance: The task instance.
        """
        # Threads that import the same modules at the same time may see them half loaded.
        from airflow_provider_mysql_cdc.cdc.operate import data_flow  # noqa: F401
        from airflow_provider_mysql_cdc.operators.openlineage_facets import fleet_facet, merged_lineage

        written = [(o, cfg) for o, cfg in self.lineage_streams if cfg is not None and o.result.get("counts")]
        written.sort(key=lambda stream: -stream[0].records)
        with ThreadPoolExecutor(MAX_DESCRIBED) as pool:
            lineage = merged_lineage(list(pool.map(self._lineage_of, written, range(len(written)))))
        if self.lineage_streams:
            lineage.run_facets |= fleet_facet([outcome for outcome, _ in self.lineage_streams])
        return lineage

    def _lineage_of(self, written: Written, rank: int) -> Any:
        from airflow_provider_mysql_cdc.cdc.operate.data_flow import MAX_STRUCTURES, moved_flows
        from airflow_provider_mysql_cdc.operators.openlineage_facets import lineage_of_flows

        outcome, cfg = written
        most = MAX_STRUCTURES if rank < MAX_DESCRIBED else 0
        flows = moved_flows(cfg, outcome.result.get("tables") or {}, self.log.info, most)
        return lineage_of_flows(cfg, flows, outcome.result.get("counts") or {})

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Return the lineage of a task that has failed, with its error; the provider of OpenLineage calls this.

        Args:
            task_instance: The task instance.
        """
        from airflow_provider_mysql_cdc.operators.openlineage_facets import error_facets

        lineage = self.get_openlineage_facets_on_complete(task_instance)
        if self.lineage_error is not None:
            lineage.run_facets |= error_facets(self.lineage_error)
        return lineage

    def _readable_configs(self) -> Sequence[ConnectorConfig]:
        raise NotImplementedError
