"""What OpenLineage's provider asks an operator of one stream or of a fleet: tables, topics, columns and counts.

What OpenLineage's provider asks an operator: tables, topics, columns and counts of a task.

Nothing here imports OpenLineage before its provider calls one of the methods, so the operators work without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.operators.task_error import NamedTaskError

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.operate.data_flow import TableFlow
    from airflow_provider_mysql_cdc.operators.fleet_outcome import StreamOutcome


Method = TypeVar("Method", bound=Callable[..., Any])


def remembers_outcome(method: Method) -> Method:
    """Decorate a method that does a task's work, so that what it returned or raised can be described afterwards.

    Args:
        method: Returns the task's result.
    """

    @wraps(method)
    def remembering(self: TaskLineageMixin, *args: Any, **kwargs: Any) -> Any:
        try:
            self.lineage_result = method(self, *args, **kwargs)
        except NamedTaskError as error:
            self.lineage_error = error.error
            raise
        return self.lineage_result

    return cast(Method, remembering)


class TaskLineageMixin:
    """Describe a task for OpenLineage; a base class of the operators that run Spark jobs.

    When a task begins, the tables that are named without a regular expression are known, and no structures. When it has
    succeeded, its result names all tables and topics, and the source is asked for their structures. When it has failed,
    the error is added to what was known at its beginning.
    """

    lineage_cfg: ConnectorConfig | None = None
    """The configuration that the task has used; None before it has read one."""
    lineage_result: Mapping[str, Any] | None = None
    """The result of the task; None before it has ended, and where it has failed or was skipped."""
    lineage_error: CdcError | None = None
    """What the task has failed with."""
    log: Any

    def get_openlineage_facets_on_start(self) -> Any:
        """Return the lineage that is known before the task does anything; the provider of OpenLineage calls this."""
        from airflow_provider_mysql_cdc.operators.openlineage_facets import lineage_of_flows

        try:
            cfg = self.lineage_cfg or self._config()
            return lineage_of_flows(cfg, self._named_flows(cfg))
        except CdcError as error:  # the task itself will report it
            self.log.debug("No lineage is known yet: %s", error.message())
            return None

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the lineage of a task that has succeeded; the provider of OpenLineage calls this.

        Args:
            task_instance: The task instance.
        """
        from airflow_provider_mysql_cdc.cdc.operate.data_flow import moved_flows
        from airflow_provider_mysql_cdc.operators.openlineage_facets import (
            batches_facet,
            lineage_of_flows,
            verified_datasets,
        )

        cfg, result = self.lineage_cfg, self.lineage_result
        if cfg is None or result is None:
            return None
        flows = moved_flows(cfg, result.get("tables") or {}, self.log.info)
        lineage = lineage_of_flows(cfg, flows, result.get("counts") or {})
        if result.get("verification"):
            lineage.inputs = verified_datasets(cfg, result["verification"], lineage.inputs)
        lineage.run_facets |= batches_facet(cfg.topic_prefix, result)
        return lineage

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Return the lineage of a task that has failed, with its error; the provider of OpenLineage calls this.

        Args:
            task_instance: The task instance.
        """
        from airflow_provider_mysql_cdc.operators.openlineage_facets import error_facets, lineage_of_flows

        cfg, error = self.lineage_cfg, self.lineage_error
        lineage = lineage_of_flows(cfg, [] if cfg is None else self._named_flows(cfg))
        if error is not None:
            lineage.run_facets |= error_facets(error)
        return lineage

    def _named_flows(self, cfg: ConnectorConfig) -> Sequence[TableFlow]:
        from airflow_provider_mysql_cdc.cdc.config import fields as F
        from airflow_provider_mysql_cdc.cdc.operate.data_flow import named_flows
        from airflow_provider_mysql_cdc.cdc.operate.send_signal import parse_tables

        chosen = parse_tables(getattr(self, "tables", ()))
        return named_flows(cfg, chosen or cfg.texts.get(F.TABLE_INCLUDE_LIST.name, "").split(","))

    def _remembered_config(self) -> ConnectorConfig:
        self.lineage_cfg = self._config()
        return self.lineage_cfg

    def _config(self) -> ConnectorConfig:
        raise NotImplementedError


if TYPE_CHECKING:
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
