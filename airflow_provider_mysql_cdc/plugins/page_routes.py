"""The page's data as JSON, and its metrics. All routes only read; buttons call Airflow's own API from the browser."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse

from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
from airflow_provider_mysql_cdc.plugins import pipeline_runs
from airflow_provider_mysql_cdc.plugins.page_access import (
    CheckedPipeline,
    VisiblePipeline,
    VisiblePipelines,
    dag_rights,
    may_check,
    working_dags,
)
from airflow_provider_mysql_cdc.plugins.page_actions import pipeline_actions
from airflow_provider_mysql_cdc.plugins.pipeline_details import read_preflight, read_snapshot_map, read_verification
from airflow_provider_mysql_cdc.plugins.pipeline_status import read_pipeline
from airflow_provider_mysql_cdc.plugins.pipelines import Pipeline
from airflow_provider_mysql_cdc.plugins.report_texts import without_examples, without_log_texts
from airflow_provider_mysql_cdc.plugins.status_cache import Reading, StatusCache
from airflow_provider_mysql_cdc.plugins.table_versions import read_tables

PAGE_SIZE = 25
MAX_PAGE_SIZE = 100
WAIT_S = 2.0
"""Seconds that a request waits for a reading; then the page asks again."""
METRICS_WAIT_S = 1.0
"""Seconds that a scrape waits in all; readings that take longer are in the next one."""
PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

STATUS = StatusCache(read_pipeline)
SNAPSHOTS = StatusCache(read_snapshot_map)
CHECKS = StatusCache(read_preflight)
TABLES = StatusCache(read_tables)
VERIFICATIONS = StatusCache(read_verification)
CACHES = (STATUS, SNAPSHOTS, CHECKS, TABLES, VERIFICATIONS)

router = APIRouter()
FirstRow = Annotated[int, Query(ge=0)]
RowLimit = Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE)]
NamePart = Annotated[str, Query(max_length=250)]


@router.get("/api/pipelines")
def list_pipelines(
    pipelines: VisiblePipelines,
    session: SessionDep,
    user: GetUserDep,
    search: NamePart = "",
    offset: FirstRow = 0,
    limit: RowLimit = PAGE_SIZE,
) -> dict[str, Any]:
    """Return a part of the pipelines; neither a source nor Kafka is asked."""
    found = [p for conn_id, p in pipelines.items() if search.lower() in conn_id.lower()]
    shown = found[offset : offset + limit]
    dag_ids = sorted({dag_id for pipeline in shown for dag_id in pipeline.dag_ids})
    rights = dag_rights(user, session, dag_ids)
    dags = pipeline_runs.dag_rows(session, dag_ids)
    readable = [dag_id for dag_id in dag_ids if rights[dag_id]["runs"]]
    now = datetime.now(UTC)
    last = pipeline_runs.last_runs(session, readable, now)
    forms = {dag_id: form for pipeline in shown for dag_id, form in pipeline.forms.items() if dag_id in readable}
    chosen = pipeline_runs.chosen_runs(session, forms, now)
    rows = [_row(pipeline, dags, last, chosen) for pipeline in shown]
    return {"total": len(found), "all": len(pipelines), "offset": offset, "pipelines": rows}


def _row(
    pipeline: Pipeline, dags: dict[str, Any], last: dict[str, Any], chosen: dict[tuple[str, str], Any]
) -> dict[str, Any]:
    forms = pipeline.forms
    runs = (chosen.get((d, pipeline.conn_id)) if d in forms else last.get(d) for d in pipeline.dag_ids)
    drains = [task.dag_id for task in pipeline.tasks if task.kind == "drain"]
    return {
        "conn_id": pipeline.conn_id,
        "dags": [dags[dag_id] for dag_id in pipeline.dag_ids if dag_id in dags],
        "paused": bool(drains) and all(dags[d]["paused"] for d in drains if d in dags),
        "last_run": pipeline_runs.newest(run for run in runs if run is not None),
        **_reading(STATUS.known(pipeline.main_task), brief=True),
    }


@router.get("/api/pipeline/status")
def read_status(pipeline: VisiblePipeline) -> dict[str, Any]:
    """Return state and lag of a pipeline."""
    return {"conn_id": pipeline.conn_id, **_reading(STATUS.get(pipeline.main_task, WAIT_S), brief=True)}


@router.get("/api/pipeline")
def show_pipeline(pipeline: VisiblePipeline, session: SessionDep, user: GetUserDep) -> dict[str, Any]:
    """Return everything about a pipeline except its tables."""
    rights = dag_rights(user, session, working_dags(pipeline, session))
    dags = pipeline_runs.dag_rows(session, pipeline.dag_ids)
    readable = [dag_id for dag_id in pipeline.dag_ids if rights[dag_id]["runs"]]
    runs = pipeline_runs.runs(session, readable, conn_id=pipeline.conn_id, forms=pipeline.forms)
    checked = may_check(pipeline, user, session)
    session.rollback()  # a pool of connections is not held while a source is asked
    kinds = {task.dag_id: task.kind for task in pipeline.tasks}
    return {
        "conn_id": pipeline.conn_id,
        "dags": [{**dag, "kind": kinds[dag["dag_id"]]} for dag in dags.values()],
        "runs": runs,
        "actions": pipeline_actions(pipeline, dags, runs, rights) | {"check": checked},
        **_reading(STATUS.get(pipeline.main_task, WAIT_S), texts=all(right["logs"] for right in rights.values())),
    }


def _reading(reading: Reading, *, brief: bool = False, texts: bool = False) -> dict[str, Any]:
    report = reading.content.report if reading.content is not None else None
    if report is not None:
        report = {name: value for name, value in report.items() if name != "points"}  # these have a route of their own
        report |= {"status": _brief(report["status"])} if brief and "status" in report else {}
        for name in ("report", "stored") if brief else ():
            report.pop(name, None)
        report = report if texts else without_log_texts(report)
    return {"reading": report, "age_s": reading.age_s, "running": reading.running}


def _brief(status: dict[str, Any]) -> dict[str, Any]:
    return {name: status[name] for name in ("topic.prefix", "at_ms", "active", "lag", "batch")}


@router.get("/api/pipeline/tables")
def list_tables(
    pipeline: VisiblePipeline,
    session: SessionDep,
    search: NamePart = "",
    offset: FirstRow = 0,
    limit: RowLimit = MAX_PAGE_SIZE,
) -> dict[str, Any]:
    """Return a part of a pipeline's tables, with what the last run and the last day have written."""
    from airflow_provider_mysql_cdc.plugins.pipeline_tables import named_tables, with_events, with_structures

    content = STATUS.get(pipeline.main_task, WAIT_S).content
    report = content.report if content is not None else {}
    tables = TABLES.get(pipeline.main_task, WAIT_S)
    found = tables.content.report if tables.content is not None else {}
    known = [row for row in named_tables(report, found) if search.lower() in row["name"].lower()]
    shown = with_structures(known[offset : offset + limit], found)
    rows = with_events(session, report, shown, pipeline.dag_ids, datetime.now(UTC))
    return {"total": len(known), "offset": offset, "tables": rows, "running": tables.running}


@router.get("/api/pipeline/history")
def show_history(pipeline: VisiblePipeline) -> dict[str, Any]:
    """Return how far a pipeline was behind in the last day."""
    content = STATUS.get(pipeline.main_task, WAIT_S).content
    report = content.report if content is not None else {}
    lag = report.get("status", {}).get("lag", {}).get("milliseconds")
    return {"points": report.get("points", []), "lag_ms": lag, "at_ms": now_ms()}


@router.get("/api/pipeline/snapshot")
def show_snapshot(pipeline: VisiblePipeline, offset: FirstRow = 0, limit: RowLimit = MAX_PAGE_SIZE) -> dict[str, Any]:
    """Return the chunks of the snapshot that is being taken, by table."""
    reading = SNAPSHOTS.get(pipeline.main_task, WAIT_S)
    report = dict(reading.content.report) if reading.content is not None else None
    if report is not None:
        tables = report.get("tables", [])
        report |= {"total": len(tables), "offset": offset, "tables": tables[offset : offset + limit]}
    return {"reading": report, "age_s": reading.age_s, "running": reading.running}


@router.get("/api/pipeline/verification")
def show_verification(pipeline: VisiblePipeline, session: SessionDep, user: GetUserDep) -> dict[str, Any]:
    """Return the last verdict about each table; examples are for those who may read the logs that have them."""
    rights = dag_rights(user, session, working_dags(pipeline, session))
    session.rollback()
    reading = VERIFICATIONS.get(pipeline.main_task, WAIT_S)
    report = reading.content.report if reading.content is not None else None
    if report is not None and not all(right["logs"] for right in rights.values()):
        report = without_examples(report)
    return {"reading": report, "age_s": reading.age_s, "running": reading.running}


@router.get("/api/pipeline/preflight")
def show_preflight(pipeline: CheckedPipeline) -> dict[str, Any]:
    """Return what a check of the source, Kafka and the schema registry finds."""
    reading = CHECKS.get(pipeline.main_task, WAIT_S)
    report = reading.content.report if reading.content is not None else None
    return {"reading": report, "age_s": reading.age_s, "running": reading.running}


@router.get("/metrics", response_class=PlainTextResponse)
def show_metrics(pipelines: VisiblePipelines) -> PlainTextResponse:
    """Return the metrics of all pipelines that the user may see, as ``mysql-cdc status --format prometheus`` does."""
    from airflow_provider_mysql_cdc.plugins.page_metrics import metrics_text

    return PlainTextResponse(metrics_text(STATUS, pipelines.values(), METRICS_WAIT_S), media_type=PROMETHEUS_TYPE)
