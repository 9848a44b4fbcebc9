"""The page of two API servers of one Airflow, of which one is served below a path, as behind a proxy."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.auth.tokens import get_signing_key
from airflow_home import ROOT
from browserlib.devtools import Browser
from page_browser import Site, paused
from page_site import bearer, define_connection, forget_dags, store_dags
from stacklib import ports

from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline
from airflow_provider_mysql_cdc.plugins.page_urls import pipeline_url

pytestmark = [pytest.mark.usefixtures("metadata_db"), pytest.mark.days("even")]

PATH = "/data/airflow"
SHOP = pipeline_url("mysql_shop")


@contextlib.contextmanager
def api_server(home: Path, path: str) -> Iterator[str]:
    """Run ``airflow api-server`` below a path; yield its address."""
    port = ports.any_free()
    address = f"http://127.0.0.1:{port}{path}"
    python = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    secret = get_signing_key("api_auth", "jwt_secret")  # the tokens of this test are made in this process
    own = {"AIRFLOW__API__BASE_URL": address, "AIRFLOW__API_AUTH__JWT_SECRET": secret, "AIRFLOW_HOME": str(home)}
    env = {**os.environ, **own, "PYTHONPATH": python}
    command = [sys.executable, "-m", "airflow", "api-server", "--host", "127.0.0.1", "--port", str(port)]
    log = home / f"api-server-{port}.log"
    with log.open("w") as output:
        server = subprocess.Popen([*command, "--apps", "core"], env=env, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 120
        while not _answers(f"{address}/api/v2/version"):
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def below(metadata_db: Path) -> Iterator[str]:
    """Return the address of an API server below a path."""
    forget_dags()
    with pytest.MonkeyPatch.context() as patch:
        define_connection(patch, "mysql_shop", "shop")
        define_connection(patch, "mysql_late", "late")
        store_dags(cdc_pipeline("shop", mysql_cdc_conn_id="mysql_shop", schedule="*/5 * * * *"))
        with api_server(metadata_db, PATH) as address:
            yield address
    forget_dags()


@pytest.fixture
def servers(below: str, metadata_db: Path) -> Iterator[tuple[str, str]]:
    """Return the addresses of two API servers: one below a path, one at the root."""
    with pytest.MonkeyPatch.context() as patch:
        define_connection(patch, "mysql_shop", "shop")
        define_connection(patch, "mysql_late", "late")
        with api_server(metadata_db, "") as at_root:
            yield below, at_root


def read(url: str, change: bytes | None = None) -> Any:
    """Return what a user reads from a server, or what it answers to a change."""
    headers = bearer("bob", "USER") | {"Content-Type": "application/json"}
    request = urllib.request.Request(url, change, headers, method="PATCH" if change else "GET")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_below_a_path_the_page_works_as_at_the_root(below: str) -> None:
    with Browser() as browser:
        browser.size(1280, 900)
        site = Site(browser, below)
        site.open("/mysql-cdc/")
        browser.click("a")
        browser.wait_for(f"location.pathname === '{PATH}/auth/login'")
        site.log_in("bob", "USER")
        site.open("/mysql-cdc/")
        browser.click("#link-mysql_shop")
        browser.wait_for("document.querySelector('[data-unread=kafka]')")
        before = paused("shop_drain")
        browser.click("[data-kind=pause], [data-kind=resume]")
        browser.wait_for(f"document.querySelector('[data-kind={'pause' if before else 'resume'}]')")
        assert paused("shop_drain") is not before
        (row,) = read(f"{below}/mysql-cdc/api/pipelines")["pipelines"]
        assert row["paused"] is not before
        browser.click("#runs a[href$='/dags/shop_drain']")
        browser.wait_for(f"location.pathname === '{PATH}/dags/shop_drain'")
        site.open("/plugin/mysql-cdc")
        inside = "document.querySelector('iframe')?.contentDocument"
        browser.wait_for(f"{inside}?.querySelector('#link-mysql_shop')")
        # What the browser fetched came from below the path, also in the frame.
        asked = browser.requests(lambda url: "mysql-cdc" in url)
        assert asked and all(url.startswith(below) for url in asked)
        assert browser.complaints() == []


@pytest.mark.exhaustive
def test_both_servers_show_a_pipeline_that_has_come_or_gone_since(servers: tuple[str, str]) -> None:
    """Each keeps what it has read of DAGs; the digest of a DAG's version tells it what is new."""

    def shown() -> list[list[str]]:
        return [[row["conn_id"] for row in read(f"{s}/mysql-cdc/api/pipelines")["pipelines"]] for s in servers]

    assert shown() == [["mysql_shop"]] * 2
    for paused_now in (True, False):
        read(f"{servers[0]}/api/v2/dags/shop_drain", json.dumps({"is_paused": paused_now}).encode())
        assert [read(f"{s}/mysql-cdc/api/pipelines")["pipelines"][0]["paused"] for s in servers] == [paused_now] * 2
    store_dags(cdc_pipeline("late", mysql_cdc_conn_id="mysql_late", dags=["drain"]))
    assert shown() == [["mysql_late", "mysql_shop"]] * 2
    for server in servers:
        with pytest.raises(urllib.error.HTTPError) as refused:
            read(f"{server}/mysql-cdc/api/pipeline?conn_id=mysql_gone")
        assert refused.value.code == 403
    forget_dags()
    assert shown() == [[]] * 2
