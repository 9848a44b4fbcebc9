"""What OpenLineage's provider asks an operator: tables, topics, columns and counts of a task.

Nothing here imports OpenLineage before its provider calls one of the methods, so the operators work without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.operators.task_error import NamedTaskError

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.operate.data_flow import TableFlow

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
        from airflow_provider_mysql_cdc.cdc.operate.snapshot_request import parse_tables

        chosen = parse_tables(getattr(self, "tables", ()))
        return named_flows(cfg, chosen or cfg.texts.get(F.TABLE_INCLUDE_LIST.name, "").split(","))

    def _remembered_config(self) -> ConnectorConfig:
        self.lineage_cfg = self._config()
        return self.lineage_cfg

    def _config(self) -> ConnectorConfig:
        raise NotImplementedError
