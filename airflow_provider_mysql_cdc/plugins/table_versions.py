"""Read which structure each table of a pipeline has, from the end of its schema history."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.plugins.pipeline_config import read_config
from airflow_provider_mysql_cdc.plugins.pipeline_status import PipelineReading, error_json, require_kafka
from airflow_provider_mysql_cdc.plugins.serialized_tasks import PipelineTask

if TYPE_CHECKING:
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


def read_versions(task: PipelineTask) -> PipelineReading:
    """Read the versions of a pipeline's tables; the report has them as ``structures``, by the table's path.

    Args:
        task: The task whose arguments describe the pipeline.
    """
    from airflow_provider_mysql_cdc.cdc.operate.table_structures import read_table_structures

    try:
        cfg = read_config(task)
        require_kafka(cfg)
        key = (task.conn_id, cfg.history_topic)
        structures = read_table_structures(cfg, KEPT.get(key))
    except CdcError as error:
        return PipelineReading({"unread": {"kafka": error_json(error)}, "structures": {}})
    KEPT.put(key, structures)
    return PipelineReading({"unread": {}, "structures": structures.versions})
