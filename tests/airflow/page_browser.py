"""A browser that is logged in to an API server of this process."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from browserlib.devtools import Browser
from page_site import create_api, token


class Site:
    """An API server on loopback, and the browser of one person.

    Args:
        browser: The browser.
        address: Of the server, without a slash at its end.
    """

    def __init__(self, browser: Browser, address: str) -> None:
        self.browser, self.address = browser, address

    def log_in(self, name: str, role: str | None) -> None:
        """Let the browser be that of a user, as after the login."""
        self.browser.call("Network.clearBrowserCookies")
        cookie = {"name": "_token", "value": token(name, role), "url": self.address, "httpOnly": True}
        self.browser.call("Network.setCookie", **cookie, sameSite="Lax")

    def open(self, path: str) -> None:
        """Go to an address of the server; a page that differs only behind # is loaded again."""
        self.browser.open("about:blank")
        self.browser.wait_for("location.href === 'about:blank'")
        self.browser.events.clear()
        self.browser.open(self.address + path)


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Serve Airflow's API and UI in this process; yield the address."""
    import uvicorn

    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_api(), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.05)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
            del os.environ["_AIRFLOW_PROCESS_CONTEXT"]


@contextlib.contextmanager
def open_site(width: int = 1280, height: int = 900) -> Iterator[Site]:
    """Serve, and open a browser."""
    with serving() as address, Browser() as browser:
        browser.size(width, height)
        yield Site(browser, address)


def paused(dag_id: str) -> bool:
    """Return whether a DAG is paused."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        return bool(session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag_id)))


def runs_of(dag_id: str) -> list[Any]:
    """Return the runs of a DAG."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        return [(run.state, run.conf) for run in session.scalars(select(DagRun).where(DagRun.dag_id == dag_id))]
