"""Read what there is of each table of a pipeline: the ledger's counts and verdicts, and the schema history's versions.

Apart from the status, which each scrape of the metrics reads of every pipeline: thousands of tables are kept only of
the pipelines that somebody looks at.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.plugins.pipeline_config import read_config
from airflow_provider_mysql_cdc.plugins.pipeline_status import PipelineReading, error_json, peek_ledger
from airflow_provider_mysql_cdc.plugins.serialized_tasks import PipelineTask

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
    from airflow_provider_mysql_cdc.cdc.operate.table_structures import TableStructures

MAX_KEPT = 20
"""Pipelines of which the versions are kept: some 1.5 MB for 5,000 tables."""


@dataclass(slots=True)
class _KeptStructures:
    """Keep what was read of the pipelines that were looked at last, so that a reading goes on behind it."""

    _kept: OrderedDict[tuple[str, str], TableStructures] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: tuple[str, str]) -> TableStructures | None:
        with self._lock:
            return self._kept.get(key)

    def put(self, key: tuple[str, str], structures: TableStructures) -> None:
        with self._lock:
            self._kept[key] = structures
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)


KEPT = _KeptStructures()


def read_tables(task: PipelineTask) -> PipelineReading:
    """Read the tables of a pipeline; the report has the versions of their structures as ``structures``, by path.

    Args:
        task: The task whose arguments describe the pipeline.
    """
    from airflow_provider_mysql_cdc.cdc.operate.stream_report import table_counts
    from airflow_provider_mysql_cdc.cdc.operate.table_structures import read_table_structures

    report: dict[str, Any] = {"unread": {}, "tables": [], "structures": {}}
    try:
        cfg = read_config(task)
        ledger = peek_ledger(cfg)
        report["tables"] = table_counts(ledger, _last_counts(ledger))
        key = (task.conn_id, cfg.history_topic)
        structures = read_table_structures(cfg, KEPT.get(key))
    except CdcError as error:
        return PipelineReading(report | {"unread": {"kafka": error_json(error)}})
    KEPT.put(key, structures)
    return PipelineReading(report | {"structures": structures.versions})


def _last_counts(ledger: LedgerState) -> Mapping[str, int]:
    """Return the records of each table that the last run has written."""
    from airflow_provider_mysql_cdc.cdc.commit.plan import OTHERS_LABEL
    from airflow_provider_mysql_cdc.cdc.commit.run_tally import current_tally

    tally = current_tally(ledger)
    return {} if tally is None else {table: n for table, n in tally.tables.items() if table != OTHERS_LABEL}
