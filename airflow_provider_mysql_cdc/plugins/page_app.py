"""The page in Airflow's API server: its files, its data as JSON, and its metrics. All routes only read."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request, Response, status
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse

from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
from airflow_provider_mysql_cdc.plugins import pipeline_runs
from airflow_provider_mysql_cdc.plugins.page_access import (
    CheckedPipeline,
    VisiblePipeline,
    VisiblePipelines,
    dag_rights,
    may_check,
    pipeline_actions,
    without_examples,
    without_log_texts,
    working_dags,
)
from airflow_provider_mysql_cdc.plugins.pipeline_details import read_preflight, read_snapshot_map, read_verification
from airflow_provider_mysql_cdc.plugins.pipeline_status import read_pipeline
from airflow_provider_mysql_cdc.plugins.pipeline_tables import read_tables
from airflow_provider_mysql_cdc.plugins.pipelines import Pipeline
from airflow_provider_mysql_cdc.plugins.status_cache import Reading, StatusCache

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

data_router = APIRouter()
FirstRow = Annotated[int, Query(ge=0)]
RowLimit = Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE)]
NamePart = Annotated[str, Query(max_length=250)]


@data_router.get("/api/pipelines")
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


@data_router.get("/api/pipeline/status")
def read_status(pipeline: VisiblePipeline) -> dict[str, Any]:
    """Return state and lag of a pipeline."""
    return {"conn_id": pipeline.conn_id, **_reading(STATUS.get(pipeline.main_task, WAIT_S), brief=True)}


@data_router.get("/api/pipeline")
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


@data_router.get("/api/pipeline/tables")
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


@data_router.get("/api/pipeline/history")
def show_history(pipeline: VisiblePipeline) -> dict[str, Any]:
    """Return how far a pipeline was behind in the last day."""
    content = STATUS.get(pipeline.main_task, WAIT_S).content
    report = content.report if content is not None else {}
    lag = report.get("status", {}).get("lag", {}).get("milliseconds")
    return {"points": report.get("points", []), "lag_ms": lag, "at_ms": now_ms()}


@data_router.get("/api/pipeline/snapshot")
def show_snapshot(pipeline: VisiblePipeline, offset: FirstRow = 0, limit: RowLimit = MAX_PAGE_SIZE) -> dict[str, Any]:
    """Return the chunks of the snapshot that is being taken, by table."""
    reading = SNAPSHOTS.get(pipeline.main_task, WAIT_S)
    report = dict(reading.content.report) if reading.content is not None else None
    if report is not None:
        tables = report.get("tables", [])
        report |= {"total": len(tables), "offset": offset, "tables": tables[offset : offset + limit]}
    return {"reading": report, "age_s": reading.age_s, "running": reading.running}


@data_router.get("/api/pipeline/verification")
def show_verification(pipeline: VisiblePipeline, session: SessionDep, user: GetUserDep) -> dict[str, Any]:
    """Return the last verdict about each table; examples are for those who may read the logs that have them."""
    rights = dag_rights(user, session, working_dags(pipeline, session))
    session.rollback()
    reading = VERIFICATIONS.get(pipeline.main_task, WAIT_S)
    report = reading.content.report if reading.content is not None else None
    if report is not None and not all(right["logs"] for right in rights.values()):
        report = without_examples(report)
    return {"reading": report, "age_s": reading.age_s, "running": reading.running}


@data_router.get("/api/pipeline/preflight")
def show_preflight(pipeline: CheckedPipeline) -> dict[str, Any]:
    """Return what a check of the source, Kafka and the schema registry finds."""
    reading = CHECKS.get(pipeline.main_task, WAIT_S)
    report = reading.content.report if reading.content is not None else None
    return {"reading": report, "age_s": reading.age_s, "running": reading.running}


@data_router.get("/metrics", response_class=PlainTextResponse)
def show_metrics(pipelines: VisiblePipelines) -> PlainTextResponse:
    """Return the metrics of all pipelines that the user may see, as ``mysql-cdc status --format prometheus`` does."""
    from airflow_provider_mysql_cdc.plugins.status_cache import metrics_text

    return PlainTextResponse(metrics_text(STATUS, pipelines.values(), METRICS_WAIT_S), media_type=PROMETHEUS_TYPE)


FOLDER = Path(__file__).parent / "static"
SCRIPTS = tuple(
    f"{name}.js"
    for name in ("actions", "charts", "dom", "list", "page", "pipeline", "snapshot", "tables", "verification")
)
FILES = {"page.css": "text/css", **dict.fromkeys(SCRIPTS, "text/javascript")}
"""Files of the page and their types; no other file is served."""
HEADERS = {
    "Cache-Control": "no-store",
    # Everything comes from this server, and no other site may show the page in a frame.
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
LOGIN = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>MySQL CDC</title></head>
<body><p>You are not logged in. <a href="{url}">Log in to Airflow</a></p></body></html>"""

page_router = APIRouter(dependencies=[Depends(requires_access_dag(method="GET"))])


@page_router.get("/", response_class=HTMLResponse)
def show_page() -> FileResponse:
    """Return the page; it has no data yet."""
    return FileResponse(FOLDER / "page.html", media_type="text/html")


@page_router.get("/static/{name}")
def show_file(name: str) -> FileResponse:
    """Return a file of the page."""
    if name not in FILES:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "Not found")
    return FileResponse(FOLDER / name, media_type=FILES[name])


async def _add_headers(request: Request, call_next: Any) -> Response:
    response: Response = await call_next(request)
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response


async def _show_login(request: Request, error: Exception) -> Response:
    """Answer a person without a token with the way to the login; a program gets what Airflow's API answers."""
    assert isinstance(error, HTTPException)
    wants_page = request.url.path.endswith("/") and "text/html" in request.headers.get("accept", "")
    if error.status_code != status.HTTP_401_UNAUTHORIZED or not wants_page:
        return await http_exception_handler(request, error)
    url = get_auth_manager().get_url_login(next_url=str(request.url))
    return HTMLResponse(LOGIN.format(url=escape(url, quote=True)), status.HTTP_401_UNAUTHORIZED)


def create_app() -> FastAPI:
    """Return the application."""
    app = FastAPI(title="MySQL CDC", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(page_router)
    app.include_router(data_router)
    app.middleware("http")(_add_headers)
    app.add_exception_handler(HTTPException, _show_login)
    return app
