"""The tables of a pipeline: those that Kafka's ledger names, with what Airflow's asset events say of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.plugins.pipeline_runs import table_events

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
