"""What Airflow's metadata database says of pipelines: DAGs, runs, events of tables. Answers are bounded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

MAX_RUNS = 25
"""Runs that a pipeline's page shows."""
RECENT = timedelta(days=2)
"""How far back the list of pipelines looks for a DAG's last run."""
COUNTED = timedelta(days=1)
"""How far back the events of tables are counted."""
MAX_EVENTS = 5_000
"""Asset events of which records are counted."""
MAX_CHOSEN = 200
"""Runs that are looked through for the connection that they have chosen."""
ACTIVE_STATES = ("queued", "running")

RunJson = dict[str, Any]
ConnectionField = tuple[str, str]
"""The field of a DAG's trigger form that chooses the connection, and what it has unless somebody chooses another."""
NO_FIELDS: Mapping[str, ConnectionField] = MappingProxyType({})


def dag_rows(session: Any, dag_ids: Collection[str]) -> dict[str, RunJson]:
    """Return schedule and state of DAGs, by id.

    Args:
        session: Of the metadata database.
        dag_ids: The DAGs.
    """
    from airflow.models.dag import DagModel
    from sqlalchemy import select

    columns = (DagModel.dag_id, DagModel.is_paused, DagModel.timetable_summary, DagModel.next_dagrun, DagModel.is_stale)
    rows = session.execute(select(*columns).where(DagModel.dag_id.in_(dag_ids)))
    return {
        row.dag_id: {
            "dag_id": row.dag_id,
            "paused": bool(row.is_paused),
            "schedule": row.timetable_summary,
            "next_run": _text(row.next_dagrun),
            "stale": bool(row.is_stale),
        }
        for row in rows
    }


def last_runs(session: Any, dag_ids: Collection[str], now: datetime) -> dict[str, RunJson]:
    """Return the last run of each DAG that has one in the last days, by DAG.

    Args:
        session: Of the metadata database.
        dag_ids: The DAGs.
        now: The time.
    """
    from airflow.models.dagrun import DagRun
    from sqlalchemy import func, select

    place = func.row_number().over(partition_by=DagRun.dag_id, order_by=DagRun.run_after.desc()).label("place")
    recent = DagRun.dag_id.in_(dag_ids) & (DagRun.run_after >= now - RECENT)
    ranked = select(*_run_columns(), place).where(recent).subquery()
    rows = session.execute(select(ranked).where(ranked.c.place == 1))
    return {row.dag_id: _run(row) for row in rows}


def chosen_runs(session: Any, forms: Mapping[str, ConnectionField], now: datetime) -> dict[tuple[str, str], RunJson]:
    """Return the last run of each connection that was chosen in the form of a DAG in the last days, by both.

    Args:
        session: Of the metadata database.
        forms: The DAGs, with their forms.
        now: The time.
    """
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    recent = DagRun.dag_id.in_(forms) & (DagRun.run_after >= now - RECENT)
    query = select(*_run_columns(), DagRun.conf).where(recent).order_by(DagRun.run_after.desc()).limit(MAX_CHOSEN)
    found: dict[tuple[str, str], RunJson] = {}
    for row in session.execute(query) if forms else ():
        found.setdefault((row.dag_id, _chosen(row.conf, forms[row.dag_id])), _run(row))
    return found


def _chosen(conf: Any, form: ConnectionField) -> str:
    """Return the connection of a run: what its form holds, or the form's default."""
    field, default = form
    chosen = conf.get(field) if isinstance(conf, Mapping) else None
    return chosen if isinstance(chosen, str) and chosen else default


def runs(
    session: Any,
    dag_ids: Collection[str],
    limit: int = MAX_RUNS,
    *,
    conn_id: str = "",
    forms: Mapping[str, ConnectionField] = NO_FIELDS,
) -> list[RunJson]:
    """Return the newest runs of DAGs for a connection, those at work first.

    Args:
        session: Of the metadata database.
        dag_ids: The DAGs.
        limit: Most runs.
        conn_id: The connection.
        forms: DAGs whose form chooses a connection: only runs that have chosen this one count.
    """
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    query = select(*_run_columns(), DagRun.conf).where(DagRun.dag_id.in_(dag_ids))
    most = MAX_CHOSEN if forms else limit
    newest = query.order_by(DagRun.run_after.desc()).limit(most)
    active = query.where(DagRun.state.in_(ACTIVE_STATES)).order_by(DagRun.run_after.desc()).limit(most)
    found = {
        (row.dag_id, row.run_id): _run(row)
        for select_ in (active, newest)
        for row in session.execute(select_)
        if row.dag_id not in forms or _chosen(row.conf, forms[row.dag_id]) == conn_id
    }
    return list(found.values())[:limit]


def table_events(
    session: Any, prefix: str, tables: Sequence[str], dag_ids: Collection[str], now: datetime
) -> dict[str, RunJson]:
    """Return when each table had records last, and how many it had in the last day, by table.

    Args:
        session: Of the metadata database.
        prefix: URI of the pipeline (``assets.mysql_cdc.pipeline_uri``).
        tables: Tables as in their URIs (``TableId.path``).
        dag_ids: DAGs whose events count.
        now: The time.
    """
    from airflow.models.asset import AssetEvent, AssetModel
    from sqlalchemy import func, select

    uris = {f"{prefix}/{table}": table for table in tables}
    own = AssetModel.uri.in_(uris) & AssetEvent.source_dag_id.in_(dag_ids)
    joined = AssetEvent.asset_id == AssetModel.id
    last = select(AssetModel.uri, func.max(AssetEvent.timestamp)).join(AssetModel, joined).where(own)
    found: dict[str, RunJson] = {
        uris[uri]: {"last_change": _text(at), "records_day": 0}
        for uri, at in session.execute(last.group_by(AssetModel.uri))
    }
    recent = select(AssetModel.uri, AssetEvent.extra).join(AssetModel, joined)
    recent = recent.where(own & (AssetEvent.timestamp >= now - COUNTED)).order_by(AssetEvent.timestamp.desc())
    for uri, extra in session.execute(recent.limit(MAX_EVENTS)):
        records = (extra or {}).get("records", 0)
        found[uris[uri]]["records_day"] += records if isinstance(records, int) else 0
    return found


def _run_columns() -> tuple[Any, ...]:
    from airflow.models.dagrun import DagRun

    return DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.run_type, DagRun.start_date, DagRun.end_date


def _run(row: Any) -> RunJson:
    return {
        "dag_id": row.dag_id,
        "run_id": row.run_id,
        "state": str(getattr(row.state, "value", row.state)),
        "type": str(getattr(row.run_type, "value", row.run_type)),
        "start": _text(row.start_date),
        "end": _text(row.end_date),
    }


def newest(rows: Iterable[RunJson]) -> RunJson | None:
    """Return the run that began last; None where there is none.

    Args:
        rows: The runs.
    """
    return max(rows, key=lambda row: str(row["start"] or ""), default=None)


def _text(at: Any) -> str | None:
    return None if at is None else at.isoformat()
