"""The page in a real browser: what a person sees, with the keyboard too, in Airflow's frame, and what buttons do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from kit.verify_results import CUSTOMERS, ORDERS, verify_result
from page_browser import Site, open_site, paused, runs_of
from page_site import define_connection, forget_dags, store_dags

from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
from airflow_provider_mysql_cdc.cdc.operate import check_setup
from airflow_provider_mysql_cdc.cdc.operate.lag import LagPoint
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import verdict_values
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import NotCompared, TableVerdict
from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline
from airflow_provider_mysql_cdc.plugins import page_app, pipeline_details, pipeline_status
from airflow_provider_mysql_cdc.plugins.page_urls import pipeline_url
from airflow_provider_mysql_cdc.plugins.pipeline_status import PipelineReading
from airflow_provider_mysql_cdc.plugins.pipelines import PipelineTask
from airflow_provider_mysql_cdc.plugins.status_cache import StatusCache
from airflow_provider_mysql_cdc.state.asset_store import AssetOffsetStore, MetadataAccessor

pytestmark = pytest.mark.usefixtures("metadata_db")

SHOP = pipeline_url("mysql_shop")


@pytest.fixture(scope="module")
def opened(metadata_db: Any) -> Iterator[Site]:
    with open_site() as site:
        yield site


@pytest.fixture
def site(opened: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Return the site for a user, without pipelines."""
    forget_dags()  # other modules store theirs in the same database
    monkeypatch.setattr(pipeline_status, "KAFKA_TIMEOUT_S", 0.2)
    monkeypatch.setattr(check_setup, "KAFKA_TIMEOUT_S", 0.2)
    for cache in page_app.CACHES:
        cache._entries.clear()
    opened.log_in("bob", "USER")
    yield opened
    opened.browser.open("about:blank")
    forget_dags()


@pytest.fixture
def shop(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return the site with one pipeline whose servers are down."""
    define_connection(monkeypatch, "mysql_shop", "shop")
    store_dags(cdc_pipeline("shop", mysql_cdc_conn_id="mysql_shop", schedule="*/5 * * * *"))
    return site


def test_the_empty_page_says_how_a_pipeline_comes_about(site: Site) -> None:
    site.open("/mysql-cdc/")
    assert "uses a connection of type MySQL CDC" in site.browser.text("#empty")
    assert site.browser.complaints() == []


def test_a_person_without_a_login_finds_it(site: Site) -> None:
    site.browser.call("Network.clearBrowserCookies")
    site.open("/mysql-cdc/")
    site.browser.click("a")
    site.browser.wait_for("location.pathname === '/auth/login'")


def test_the_keyboard_leads_from_the_list_to_a_pipeline_and_back(shop: Site) -> None:
    browser = shop.browser
    shop.open("/mysql-cdc/")
    browser.wait_for("document.querySelector('[data-state=unknown]')")
    browser.key("/")
    assert browser.run("document.activeElement.id") == "search"
    browser.type("SHOP")
    browser.wait_for("document.querySelector('caption').innerText === '1 to 1 of 1'")
    browser.key("Tab")
    assert browser.run("document.activeElement.innerText") == "mysql_shop"
    browser.key("Enter")
    browser.wait_for("location.hash === '#/pipelines/mysql_shop'")
    browser.wait_for("document.querySelector('h1').innerText === 'mysql_shop'")
    assert browser.run("document.title") == "mysql_shop – MySQL CDC"
    assert browser.run("document.activeElement.id") == "content"
    browser.run("history.back()")
    browser.wait_for("document.querySelector('h1').innerText === 'Pipelines'")
    browser.run("document.getElementById('search').focus()")
    browser.type("nowhere")
    browser.wait_for("document.querySelector('caption').innerText === 'None of 1 pipelines matches'")
    assert browser.complaints() == []


def test_a_pipeline_whose_servers_are_down_shows_what_airflow_knows(shop: Site) -> None:
    browser = shop.browser
    shop.open(SHOP)
    assert "Kafka does not answer" in browser.text("[data-unread=kafka]")
    assert "What to do: check whether the brokers run" in browser.text("[data-unread=kafka]")
    assert "shop_drain" in browser.text("#runs")
    # Who may not read the connection may not have it checked either.
    browser.wait_for("document.querySelector('#check').title.startsWith('Only who may read the connections')")
    assert browser.run("document.querySelector('#check').disabled") is True
    shop.log_in("root", "ADMIN")
    shop.open(SHOP)
    browser.wait_for("!document.querySelector('#check').disabled")
    browser.click("#check")
    assert "MySQL" in browser.text("#findings table")
    assert browser.complaints() == []


def test_colours_follow_the_system_and_airflow(shop: Site) -> None:
    browser = shop.browser
    colours = {}
    for name in ("light", "dark"):
        browser.color_scheme(name)
        shop.open("/mysql-cdc/")
        browser.wait_for(f"document.documentElement.dataset.theme === '{name}'")
        colours[name] = browser.run("getComputedStyle(document.body).backgroundColor")
    assert colours["light"] != colours["dark"]
    browser.run("localStorage.setItem('theme', 'light')")
    shop.open("/mysql-cdc/")
    browser.wait_for("document.documentElement.dataset.theme === 'light'")
    browser.run("localStorage.removeItem('theme')")
    browser.color_scheme("light")


def test_texts_of_others_are_shown_as_text(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "<img src=x onerror=alert(1)>&amp;'\""
    store_dags(cdc_pipeline("hostile", mysql_cdc_conn_id=hostile, dags=["drain"]))
    site.open("/mysql-cdc/")
    assert site.browser.text("tbody th") == hostile
    site.open(pipeline_url(hostile))
    assert site.browser.text("h1") == hostile
    assert site.browser.run("document.images.length") == 0


def test_in_airflow_s_navigation_the_page_is_framed_and_its_links_lead_out(shop: Site) -> None:
    browser = shop.browser
    shop.open("/plugin/mysql-cdc")
    inside = "document.querySelector('iframe')?.contentDocument"
    browser.wait_for(f"{inside}?.querySelector('#link-mysql_shop')")
    browser.run(f"{inside}.querySelector('#link-mysql_shop').click()")
    link = f"{inside}?.querySelector('#runs a[href$=\"/dags/shop_drain\"]')"
    browser.wait_for(link)
    browser.run(f"{link}.click()")
    browser.wait_for("location.pathname === '/dags/shop_drain'")


def test_pause_and_resume_change_the_drain_s_dag(shop: Site) -> None:
    browser = shop.browser
    store_state = paused("shop_drain")
    shop.open(SHOP)
    for expected in (not store_state, store_state):
        browser.click("[data-kind=pause], [data-kind=resume]")
        kind = "resume" if expected else "pause"
        browser.wait_for(f"document.querySelector('[data-kind={kind}]')")
        assert paused("shop_drain") is expected
    assert browser.complaints() == []


def test_an_ad_hoc_snapshot_is_triggered_for_the_tables_that_were_named(shop: Site) -> None:
    browser = shop.browser
    shop.open(SHOP)
    browser.click("[data-kind=adhoc_snapshot]")
    browser.click("#confirm")
    assert browser.run("document.activeElement.id") == "tables-field", "nothing is triggered without a table"
    browser.type("shop.orders\n shop.customers \n")
    browser.click("#confirm")
    browser.wait_for("document.getElementById('notice').innerText === 'shop_adhoc_snapshot was triggered.'")
    (run,) = runs_of("shop_adhoc_snapshot")
    assert run[1]["tables"] == ["shop.orders", "shop.customers"]
    assert runs_of("shop_verify") == []
    browser.click("[data-kind=stop]")
    assert "What is committed stays" in browser.text("dialog")
    browser.key("Escape")
    browser.wait_for("!document.querySelector('dialog').open")
    browser.click("[data-kind=stop]")
    browser.click("#confirm")
    browser.wait_for("!document.querySelector('[data-kind=stop]')")
    assert [state for state, _ in runs_of("shop_adhoc_snapshot")] == ["failed"]
    browser.click("[data-kind=verify]")
    browser.click("#confirm")
    browser.wait_for("document.querySelector('[data-kind=stop]')")
    assert len(runs_of("shop_verify")) == 1


def test_the_report_of_a_verification_says_what_differs_and_what_to_do(
    shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread = TableVerdict("shop.gone", "s.shop.gone", unknown=("it is <b>gone</b>",), not_compared=NotCompared.UNREAD)
    values = verdict_values(build_ledger_state({}), verify_result(ORDERS, CUSTOMERS, unread))
    ledger = build_ledger_state({key: None if value is None else encode(value) for key, value in values})
    monkeypatch.setattr(pipeline_details, "peek_ledger", lambda cfg: ledger)
    browser = shop.browser
    shop.open(SHOP)
    assert "Last verification" in browser.text("#verification h2")
    assert "What to do: find out what has changed them" in browser.text("#verification .message.bad")
    rows = browser.run("[...document.querySelectorAll('#verification tbody tr')].map((row) => row.innerText)")
    assert [" ".join(row.split()) for row in rows] == [
        "shop.orders ✕ different 1,000,010 12 missing 1, differing 3, duplicate 2 missing 1",
        "shop.gone ? not judged 0 0 – –",
        "shop.customers ✓ equal 3 4 – –",
    ]
    browser.click("[data-table='shop.orders'] summary")
    details = browser.text("[data-table='shop.orders'] pre")
    assert '- differing: {"id": 7}, differs in item, at s.shop.orders[0]@7' in details
    assert '    table: {"item": "<b>new</b>"}' in details, "shown as text"
    assert "Columns that differ: item 3, total 1" in browser.text("[data-table='shop.orders']")
    browser.click("[data-table='shop.gone'] summary")
    assert "Not judged: it is <b>gone</b>" in browser.text("[data-table='shop.gone']")
    page_app.VERIFICATIONS._entries.clear()
    shown = "document.querySelector(`[data-table='shop.orders']`).open"
    assert browser.run(f"new Promise((done) => setTimeout(() => done({shown}), 6000))") is True, "and stays open"
    assert browser.complaints() == []


SCANS = [
    {"number": 1, "table": "shop.a.b", "entry": '"shop"."a.b"', "kind": "incremental", "state": "running"},
    {"number": 2, "table": "shop.old", "entry": "shop.old", "kind": "incremental", "state": "done"},
]


def reading_with_scans(paused: bool) -> PipelineReading:
    """Return the reading of a stream whose first table is read by an ad-hoc snapshot."""
    more = {"started_ms": 1, "reason": "", "request": "s1", "initial": False}
    first = {"rows": 1_000, "estimate": 5_000, "seconds_left": None if paused else 100.0}
    scans = [SCANS[0] | more | first, SCANS[1] | more | {"rows": 7}]
    report = {"errors": [], "signals": [], "requests": [], "scans": scans, "scans_active": 1}
    report |= {"scans_paused": paused, "scans_seconds_left": first["seconds_left"]}
    report["never_read"] = [{"table": "shop.c.d", "entry": '"shop"."c.d"', "where": "f:4", "why": "it joined"}]
    return PipelineReading({"unread": {}, "state": "draining", "report": report})


def test_the_reading_of_an_ad_hoc_snapshot_is_paused_resumed_and_stopped(
    shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By runs of the DAG that sends signals, with the user's own rights, and with an entry in the audit log."""
    paused = False
    monkeypatch.setattr(page_app, "STATUS", StatusCache(lambda task: reading_with_scans(paused)))
    browser = shop.browser
    shop.open(SHOP)
    text = browser.text("#scans tbody tr")
    assert "1,000 of about 5,000" in text and "about 1 min 40 s" in text
    assert browser.run("document.querySelectorAll('#scans tbody [data-signal]').length") == 1
    assert browser.run("document.querySelectorAll('#actions [data-kind=signal]').length") == 0
    assert browser.text("#neverRead tbody tr").split() == ["shop.c.d", "f:4", "it", "joined", "Read…"]
    browser.click("[data-read]")
    assert browser.run("document.getElementById('tables-field').value") == '"shop"."c.d"'
    browser.key("Escape")
    browser.wait_for("!document.querySelector('dialog').open")
    sent = "document.getElementById('notice').innerText.startsWith('shop_send_signal was triggered')"
    for button in ("#scan-actions [data-signal=pause-snapshot]", "#scans tbody [data-signal=stop-snapshot]"):
        browser.click(button)
        browser.click("#confirm")
        browser.wait_for(f"{sent} && !document.querySelector('dialog').open")
        browser.run("document.getElementById('notice').innerText = ''")
    paused = True
    page_app.STATUS._entries.clear()
    browser.wait_for("document.querySelector('#scans [data-state=paused]')")
    browser.click("[data-signal=resume-snapshot]")
    browser.click("#confirm")
    browser.wait_for(sent)
    confs = [conf for _, conf in runs_of("shop_send_signal")]
    assert [{name: conf[name] for name in ("signal", "tables") if conf.get(name)} for conf in confs] == [
        {"signal": "pause-snapshot"},
        {"signal": "stop-snapshot", "tables": ['"shop"."a.b"']},
        {"signal": "resume-snapshot"},
    ]
    assert triggered_by("shop_send_signal") == ["bob"] * 3
    assert browser.complaints() == []
    shop.log_in("ann", "VIEWER")
    shop.open(SHOP)
    browser.wait_for("document.querySelector('#scans [data-state=paused]')")
    assert browser.run("document.querySelectorAll('[data-signal], [data-read]').length") == 0


def triggered_by(dag_id: str) -> list[str]:
    """Return who has started runs of a DAG through Airflow's API, as its audit log has it."""
    from airflow.models.log import Log
    from airflow.utils.session import create_session
    from sqlalchemy import select

    triggered = select(Log.owner).where(Log.dag_id == dag_id, Log.event == "trigger_dag_run").order_by(Log.id)
    with create_session() as session:
        return [str(owner) for owner in session.scalars(triggered)]


def test_a_run_whose_form_chooses_the_connection_is_told_which_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_provider_mysql_cdc.dag_factory.stream_dags import FORM_STREAM, drain_dag

    define_connection(monkeypatch, "mysql_cdc_default", "shop")
    store_dags({"mysql_cdc_drain": drain_dag(FORM_STREAM, None)})
    site.open(pipeline_url("mysql_cdc_default"))
    site.browser.click("[data-kind=drain]")
    site.browser.click("#confirm")
    site.browser.wait_for("document.querySelector('[data-kind=stop]')")
    assert [conf for _, conf in runs_of("mysql_cdc_drain")] == [{"mysql_cdc_conn_id": "mysql_cdc_default"}]


def test_a_viewer_has_no_buttons_and_airflow_refuses_what_a_button_would_do(shop: Site) -> None:
    browser = shop.browser
    shop.log_in("ann", "VIEWER")
    shop.open(SHOP)
    browser.wait_for("document.querySelector('[data-unread=kafka]')")
    assert browser.run("document.querySelectorAll('#actions button').length") == 0
    path = "/api/v2/dags/shop_drain?update_mask=is_paused"
    body = "{method: 'PATCH', headers: {'Content-Type': 'application/json'}, body: '{\"is_paused\": true}'}"
    assert browser.run(f"fetch('{path}', {body}).then((answer) => answer.status)") == 403


def test_the_last_day_is_plotted_and_can_be_read_as_a_table(shop: Site) -> None:
    now, hour = now_ms(), 3_600_000
    points = [LagPoint(now - 30 * hour, now - 31 * hour, 1, 50)]
    points += [LagPoint(now - n * hour, now - n * hour - 60_000, 9 - n, 100 * (9 - n), 5_000) for n in range(8, 0, -1)]
    AssetOffsetStore(MetadataAccessor("mysql_cdc_offsets_shop"), "shop").save_points([p.to_json() for p in points])
    browser = shop.browser
    shop.open(SHOP)
    assert "The last day" in browser.text("#history h2")
    assert browser.run("document.querySelectorAll('#history svg').length") == 2
    assert browser.run("document.querySelectorAll('#history circle').length") == 8
    assert len(browser.text("#history details").splitlines()) >= 1
    assert browser.run("document.querySelectorAll('#history tbody tr').length") == 9
    code = "import('/mysql-cdc/static/charts.js').then((charts) => charts.bounds(points, now))"
    drawn = browser.run(f"((points, now) => {code})({json.dumps([p.to_json() for p in points[-2:]])}, {now})")
    assert drawn == [
        [now - 2 * hour, 60_000],
        [now - hour, hour + 60_000],
        [now - hour, 60_000],
        [now, hour + 60_000],
    ], "the bound rises until the next batch is committed"
    thinned = json.dumps([points[-2].to_json(), points[-1].to_json() | {"most_ms": 70_000}])
    assert browser.run(f"((points, now) => {code})({thinned}, {now})")[1] == [now - hour, 70_000]
    older = json.dumps([points[0].to_json()])
    assert browser.run(f"((points, now) => {code})({older}, {now})") == [
        [now - 24 * hour, 7 * hour],
        [now, 31 * hour],
    ], "a batch from before the day bounds its beginning"
    assert browser.complaints() == []


def test_a_login_that_ends_is_said(shop: Site) -> None:
    shop.open(SHOP)
    shop.browser.wait_for("document.querySelector('[data-unread=kafka]')")
    shop.browser.call("Network.clearBrowserCookies")
    shop.browser.wait_for("document.getElementById('notice').innerText.startsWith('You are not logged in any more')")


NODES = "document.querySelectorAll('*').length"


def test_a_pipeline_of_five_thousand_tables_shows_a_hundred(shop: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the browser draws does not grow with the tables."""
    tables = [{"table": f"shop.t{n:04}", "records": n, "verdict": None} for n in range(5_000)]
    report = PipelineReading({"unread": {}, "state": "behind"})
    monkeypatch.setattr(page_app, "STATUS", StatusCache(lambda task: report))
    found = PipelineReading({"unread": {}, "tables": tables, "structures": {}})
    monkeypatch.setattr(page_app, "TABLES", StatusCache(lambda task: found))
    browser = shop.browser
    shop.open(SHOP)
    browser.wait_for("document.querySelector('#tables caption')?.innerText === '1 to 100 of 5000'")
    assert 700 < browser.run(NODES) < 1_200
    answers = browser.run("performance.getEntriesByType('resource').map((r) => r.decodedBodySize)")
    assert len(answers) < 20 and max(answers) < 25_000 and sum(answers) < 120_000
    assert browser.complaints() == []


def test_a_hundred_pipelines_are_listed_with_few_requests(site: Site) -> None:
    dags: dict[str, DAG] = {}
    for number in range(100):
        dags |= cdc_pipeline(f"s{number:02}", mysql_cdc_conn_id=f"mysql_{number:02}", dags=["drain", "verify"])
    store_dags(dags)
    browser = site.browser
    site.open("/mysql-cdc/")
    browser.wait_for("document.querySelectorAll('tbody tr').length === 25")
    files = browser.requests(lambda url: "/static/" in url or url.endswith("/mysql-cdc/"))
    assert len(files) == 11
    browser.wait_for("!document.querySelector('[data-state=reading]')")
    asked = set(browser.requests(lambda url: "/api/pipeline/status?" in url))
    assert len(asked) == 25, "only what is seen is read"
    assert browser.run(NODES) < 1_200
    browser.click("#later")
    browser.wait_for("document.querySelector('caption').innerText === '26 to 50 of 100'")
    assert browser.complaints() == []


def test_a_narrow_screen_has_cards_a_wide_one_is_used_and_long_names_end_in_an_ellipsis(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_name = "mysql_" + "x" * 192
    for name, conn_id in (("shop", "mysql_shop"), ("long", long_name)):
        define_connection(monkeypatch, conn_id, name)
        store_dags(cdc_pipeline(name, mysql_cdc_conn_id=conn_id, schedule="*/5 * * * *"))
    browser = site.browser
    try:
        for width in (420, 1440):
            browser.size(width, 900)
            site.open("/mysql-cdc/")
            browser.wait_for("document.querySelectorAll('tbody tr').length >= 1")
            browser.wait_for("!document.querySelector('[data-state=reading]')")
            assert browser.run("document.documentElement.scrollWidth") <= width
            assert browser.run("document.querySelector('#later')") is None, "there is one page"
            link = f"document.getElementById('link-{long_name}')"
            assert browser.run(f"{link}.scrollWidth > {link}.clientWidth && {link}.title.length === 198")
            stacked = browser.run("getComputedStyle(document.querySelector('tbody tr')).display === 'block'")
            assert stacked == (width == 420)
            label = browser.run("getComputedStyle(document.querySelectorAll('tbody td')[0], '::before').content")
            assert label == ('"State: "' if width == 420 else "none")
            assert width == 420 or browser.run("document.querySelector('table').clientWidth") > 1_350
        assert browser.complaints() == []
    finally:
        browser.size(1280, 900)


STREAMS = {
    "audit": ("up to date", 0, 0),
    "billing": ("up to date", 0, 0),
    "crm": ("behind", 95_000, 5_400_000),
    "emails": ("draining", 12_000, 800_000),
    "fleet": ("up to date", 0, 0),
    "maps": ("snapshot", None, None),
    "orders": ("failed", 4_520_000, 2_100_000_000),
    "payroll": ("up to date", 0, 0),
    "search": ("no progress", 240_000, 64_000_000),
    "shop": ("up to date", 0, 0),
    "stock": ("lag unknown", None, None),
    "web": ("not started", None, None),
}
"""Twelve streams: state, lag in milliseconds, bytes to read."""


@pytest.mark.exhaustive
def test_twelve_streams_are_seen_at_one_glance(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    def read(task: PipelineTask) -> PipelineReading:
        state, milliseconds, left = STREAMS[task.conn_id.removeprefix("mysql_")]
        lag = {"milliseconds": milliseconds, "upper_bound": False, "bytes": left, "why": ""}
        status = {"topic.prefix": task.conn_id, "at_ms": now_ms(), "active": None, "lag": lag, "batch": {}}
        return PipelineReading({"unread": {}, "state": state, "status": status})

    monkeypatch.setattr(page_app, "STATUS", StatusCache(read))
    dags: dict[str, DAG] = {}
    for name in STREAMS:
        dags |= cdc_pipeline(name, mysql_cdc_conn_id=f"mysql_{name}", schedule="*/5 * * * *")
    store_dags(dags)
    with create_session() as session:
        session.execute(update(DagModel).values(is_paused=False))
    browser, folder = site.browser, Path(os.environ.get("MYSQL_CDC_PICTURES", tmp_path))
    rows = "[...document.querySelectorAll('tbody tr')]"
    try:
        for scheme in ("light", "dark"):
            browser.color_scheme(scheme)
            for name, width, height in (("wide", 1440, 900), ("narrow", 420, 900)):
                browser.size(width, height)
                site.open("/mysql-cdc/")
                browser.wait_for(f"{rows}.length === 12 && !document.querySelector('[data-state=reading]')")
                assert browser.run("document.documentElement.scrollWidth") <= width
                shown = browser.run(f"{rows}.filter((row) => row.getBoundingClientRect().bottom <= {height}).length")
                assert shown == 12 or name == "narrow"
                browser.picture(folder / f"page-list-{name}-{scheme}.png")
        assert browser.complaints() == []
    finally:
        browser.color_scheme("light")
        browser.size(1280, 900)
