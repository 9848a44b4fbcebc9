"""The tables of a pipeline: those that the ledger names, their counts, verdicts and versions, and Airflow's events
of them.

Read what there is of each table of a pipeline: the ledger's counts and verdicts, and the schema history's versions.

Apart from the status, which each scrape of the metrics reads of every pipeline: thousands of tables are kept only of
the pipelines that somebody looks at.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.plugins.pipeline_runs import table_events
from airflow_provider_mysql_cdc.plugins.pipeline_status import PipelineReading, error_json, peek_ledger, read_config
from airflow_provider_mysql_cdc.plugins.pipelines import PipelineTask

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
    from airflow_provider_mysql_cdc.cdc.operate.schema_history import TableStructures


TableJson = dict[str, Any]


def named_tables(report: Mapping[str, Any], found: Mapping[str, Any]) -> list[TableJson]:
    """Return the tables of a pipeline by name, also those that were only captured or only read.

    Counts and structures name a table as its URI does (``TableId.path``), metrics and verdicts as MySQL does. A name of
    the latter kind with several dots is that of a table that the others know, or its database has none.

    Args:
        report: The report of ``pipeline_status.read_pipeline``.
        found: The report of ``table_versions.read_tables``.
    """
    metrics = report.get("status", {}).get("metrics", {})
    read = metrics.get("snapshot", {}).get("RowsScanned") or {}
    captured = metrics.get("streaming", {}).get("CapturedTables") or []
    counted, structures = found.get("tables", ()), found.get("structures", {})
    known = {*structures, *(row["table"] for row in counted)}
    paths = {str(table): path for path in known if (table := TableId.from_path(path)).path() == path}

    def path_of(name: str) -> str:
        is_path = TableId.from_path(name).path() == name
        return name if is_path else paths.get(name) or TableId(*name.split(".", 1)).path()

    rows: dict[str, TableJson] = {}
    for row in counted:
        path = path_of(row["table"])
        before = rows.get(path, {"records": 0, "verdict": None})
        verdict, records = before["verdict"] or row["verdict"], before["records"] + row["records"]
        rows[path] = {"table": path, "records": records, "verdict": verdict}
    scanned = {path_of(name): count for name, count in read.items()}
    for path in (*map(path_of, captured), *scanned, *structures):
        rows.setdefault(path, {"table": path, "records": 0, "verdict": None})
    named = (
        {**row, "name": str(TableId.from_path(path)), "rows_read": scanned.get(path)} for path, row in rows.items()
    )
    return sorted(named, key=lambda row: (row["name"], row["table"]))


def with_structures(rows: Sequence[TableJson], found: Mapping[str, Any]) -> list[TableJson]:
    """Return rows of tables with the version of their structure; None where the schema history does not say it.

    Args:
        rows: The rows.
        found: The report of ``table_versions.read_tables``.
    """
    structures = found.get("structures", {})
    return [{**row, "structure": _version(structures.get(row["table"]))} for row in rows]


def _version(version: Any) -> Any:
    return None if version is None else {"record": version.offset, "at_ms": version.ts_ms}


def with_events(
    session: Any, report: Mapping[str, Any], rows: Sequence[TableJson], dag_ids: Collection[str], now: datetime
) -> list[TableJson]:
    """Return rows of tables with the time of their last change, and their records of the last day.

    Args:
        session: Of the metadata database.
        report: The report that they are from.
        rows: The rows.
        dag_ids: DAGs whose events count.
        now: The time.
    """
    prefix = report.get("asset_uri", "")
    events = table_events(session, prefix, [row["table"] for row in rows], dag_ids, now) if prefix and rows else {}
    empty = {"last_change": None, "records_day": 0}
    return [{**row, **events.get(row["table"], empty)} for row in rows]


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
    from airflow_provider_mysql_cdc.cdc.operate.schema_history import read_table_structures
    from airflow_provider_mysql_cdc.cdc.operate.stream_report import table_counts

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
