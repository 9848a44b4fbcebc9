"""A new user's walk in the browser, from the empty page to a finished ad-hoc snapshot of a real stream.

``scripts/screenshots`` keeps the pictures that it takes: ``MYSQL_CDC_PICTURES`` names their folder.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.signals import send
from kit.spark_cluster import wait_until
from kit.sql import execute
from kit.table_rig import filled
from page_browser import Site, open_site, runs_of
from page_site import forget_dags, store_dags
from pipelinelib.pipeline import Pipeline
from real_servers import define_connections

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
from airflow_provider_mysql_cdc.cdc.operate.lag import LagPoint, read_points
from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline
from airflow_provider_mysql_cdc.plugins.page_urls import pipeline_url
from airflow_provider_mysql_cdc.state.asset_store import AssetOffsetStore, MetadataAccessor

pytestmark = [pytest.mark.stack, pytest.mark.exhaustive, pytest.mark.usefixtures("metadata_db")]

PROPERTIES = {"snapshot.chunk.rows": "10"}
SLOTS = 1
PAGE = pipeline_url("mysql_cdc_default")


@pytest.fixture
def site(metadata_db: Any) -> Iterator[Site]:
    forget_dags()  # those of other files in this worker
    with open_site(1180, 760) as opened:
        opened.log_in("bob", "USER")
        yield opened
    forget_dags()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Return the folder of the pictures."""
    return Path(os.environ.get("MYSQL_CDC_PICTURES", tmp_path))


def state_is(site: Site, state: str) -> None:
    """Wait until a pipeline's page shows a state."""
    site.browser.wait_for(f"document.querySelector('#top [data-state=\"{state}\"]')")


def test_from_the_empty_page_to_a_finished_ad_hoc_snapshot(
    site: Site,
    pipeline: Pipeline,
    properties: dict[str, str],
    root: Any,
    database: str,
    stack: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    pictures: Path,
) -> None:
    browser = site.browser
    site.open("/mysql-cdc/")
    browser.text("#empty")
    browser.picture(pictures / "page-empty.png")

    define_connections(monkeypatch, properties, stack)
    store_dags(cdc_pipeline("shop", mysql_cdc_conn_id="mysql_cdc_default", schedule="*/5 * * * *"))
    browser.click("#link-mysql_cdc_default")
    state_is(site, "not started")

    pipeline.store = AssetOffsetStore(MetadataAccessor("mysql_cdc_offsets_shop"), pipeline.cfg.topic_prefix)
    execute(root, *filled(database, "customers", count=300), *filled(database, "orders", count=500))
    go, fired = tmp_path / "go", tmp_path / "fired"
    fault = {"point": "snapshot.after_chunk", "action": "wait", "nth": 45, "until": str(go), "fired": str(fired)}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    monkeypatch.setattr(faults, "_passed", {})
    job = threading.Thread(target=pipeline.snapshot)
    job.start()
    try:
        wait_until(fired.exists, 60, "45 chunks")
        state_is(site, "snapshot")
        assert "45 of" in browser.text("#snapshot p")
        browser.run("document.getElementById('snapshot').scrollIntoView()")
        browser.picture(pictures / "page-snapshot.png")
    finally:
        go.touch()
        job.join()
    state_is(site, "up to date")

    seen = read_points(pipeline.store)[-1]
    earlier = [_point(seen, minutes) for minutes in range(23 * 60, 5, -12)]
    pipeline.store.save_points([point.to_json() for point in [*earlier, seen]])
    execute(root, f"INSERT INTO {database}.customers (id, v) VALUES (1000, 1)")
    state_is(site, "behind")
    pipeline.drain()
    state_is(site, "up to date")
    pipeline.verify()
    site.open(PAGE)
    browser.wait_for("document.querySelector('#history svg') && document.querySelector('#verification .chip.good')")
    browser.wait_for("document.querySelector('#tables .chip.good')")
    browser.picture(pictures / "page-pipeline.png")
    for name, width, height in (("narrow", 420, 1600), ("wide", 1440, 900)):
        browser.size(width, height)
        for scheme in ("light", "dark"):
            browser.color_scheme(scheme)
            site.open(PAGE)
            browser.wait_for("document.querySelector('#history svg') && document.querySelector('#tables .chip.good')")
            browser.wait_for(f"document.documentElement.dataset.theme === '{scheme}'")
            assert browser.run("document.documentElement.scrollWidth") <= width, name
            browser.picture(pictures / f"page-{name}-{scheme}.png")
    browser.color_scheme("light")
    browser.size(1180, 760)
    site.open(PAGE)

    browser.click("[data-kind=adhoc_snapshot]")
    browser.wait_for("document.activeElement && document.querySelector('dialog').open")
    browser.run("document.getElementById('tables-field').focus()")
    browser.type(f"{database}.customers")
    browser.color_scheme("dark")
    browser.wait_for("document.documentElement.dataset.theme === 'dark'")
    browser.picture(pictures / "page-adhoc.png")
    browser.click("#confirm")
    browser.wait_for("document.getElementById('notice').innerText === 'shop_adhoc_snapshot was triggered.'")
    ((_, conf),) = runs_of("shop_adhoc_snapshot")
    assert conf["tables"] == [f"{database}.customers"]
    # What the run does, which no scheduler starts here.
    send(pipeline.cfg, "execute-snapshot", {"type": "incremental", "data-collections": conf["tables"]}, "s1")
    browser.wait_for("document.getElementById('scans').innerText.includes('1 signals wait')")
    pipeline.drain()
    browser.wait_for("document.querySelector('#scans [data-state=done]')")
    assert "301" in browser.text("#scans tbody tr")
    assert browser.complaints() == []


def _point(seen: LagPoint, minutes: int) -> LagPoint:
    """Return a point of an earlier batch: the stream of a test has no day behind it."""
    at_ms, busy = now_ms() - minutes * 60_000, 9 <= minutes // 60 % 24 <= 15
    events = (23 * 60 - minutes) * (40 if busy else 15)
    return LagPoint(at_ms, at_ms - 20_000 - (90_000 if busy else 0), seen.epoch, events, 4_000 + minutes * 7 % 3_000)
