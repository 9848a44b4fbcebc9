"""The application that Airflow's API server mounts: the page, its files and its data."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response, status
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import FileResponse, HTMLResponse

from airflow_provider_mysql_cdc.plugins.page_routes import router as data_router

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
