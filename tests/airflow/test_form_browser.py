"""The forms as Airflow's pages show them, in a real browser: groups, labels, stars, lists of values."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_browser import Site, open_site, runs_of
from page_site import forget_dags, store_dags
from test_trigger_forms import NAMES, STARS, load

from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline

pytestmark = [pytest.mark.usefixtures("metadata_db"), pytest.mark.days("odd")]
PICTURES = "MYSQL_CDC_PICTURES"
"""Folder for pictures of the forms."""


@pytest.fixture(scope="module")
def site(metadata_db: Any) -> Iterator[Site]:
    """Return the site for an administrator, with the DAGs of one stream."""
    with open_site(height=1800) as found:
        found.log_in("ann", "ADMIN")
        store_dags(cdc_pipeline("shop", mysql_cdc_conn_id="mysql_shop", schedule=None))
        yield found
        found.browser.open("about:blank")
        forget_dags()


def picture(site: Site, name: str) -> None:
    """Write a picture, where pictures are wanted."""
    if folder := os.environ.get(PICTURES):
        site.browser.picture(Path(folder) / f"{name}.png")


def press(site: Site, text: str, tag: str = "button") -> None:
    """Press the first button with a text, once it is there."""
    element = f"[...document.querySelectorAll({json.dumps(tag)})].find(e => e.innerText.trim() === {json.dumps(text)})"
    site.browser.wait_for(element)
    site.browser.run(f"{element}.focus()")  # a group opens only if it has the focus
    site.browser.run(f"{element}.click()")


def labels(site: Site) -> list[str]:
    """Return the labels of all fields, also of groups that are closed; a star is part of the label."""
    found = site.browser.run("[...document.querySelectorAll('[role=dialog] label')].map(e => e.textContent)")
    return [" ".join(label.replace("*", " *").split()) for label in found]


def form_text(site: Site) -> str:
    """Return the text of the form, also of groups that are closed."""
    return str(site.browser.run("[...document.querySelectorAll('[role=dialog]')].map(e => e.textContent).join(' ')"))


def test_the_connection_form_has_groups_and_names_for_people(site: Site) -> None:
    browser = site.browser
    site.open("/connections")
    press(site, "Add Connection")
    browser.wait_for("document.querySelector('[role=dialog] input[role=combobox]')")
    browser.run("document.querySelector('[role=dialog] input[role=combobox]').focus()")
    browser.type("MySQL CDC")
    browser.wait_for("[...document.querySelectorAll('[role=option]')].some(e => e.innerText === 'MySQL CDC')")
    browser.key("Enter")
    browser.wait_for("document.querySelector('[role=dialog]').innerText.includes('Encryption to MySQL')")
    groups = browser.run("[...document.querySelectorAll('[data-part=item-trigger]')].map(e => e.innerText.trim())")
    assert groups[1:5] == ["Stream", "Kafka", "Captured tables", "Encryption to MySQL"]
    press(site, "Stream")
    picture(site, "form-connection")
    shown = labels(site)
    assert [label for label in shown if "*" in label] == ["Connection ID *", "Connection Type *"], "those of Airflow"
    assert {"MySQL host (required)", "Topic prefix (required)", "Login mechanism", "Client key (PEM file)"} <= set(
        shown
    )
    assert "Brokers (required without a Kafka connection)" in shown
    text = form_text(site)
    assert "(empty: initial)" in text and "`" not in text and "null" not in text
    assert browser.complaints() == []


def test_the_trigger_form_has_stars_only_where_a_value_is_needed(site: Site) -> None:
    site.open("/dags/shop_adhoc_snapshot")
    press(site, "Trigger")
    site.browser.wait_for("document.body.innerText.includes('Timeout (minutes)')")
    picture(site, "form-adhoc")
    shown = labels(site)
    assert [label for label in shown if "*" in label] == ["Tables *"]
    assert {"Kind", "Channel", "Chunk size (rows)", "Connector properties"} <= set(shown)
    text = form_text(site)
    assert "incremental: reads while the stream continues" in text and "`" not in text


def test_the_form_of_a_verification_has_no_star(site: Site) -> None:
    site.open("/dags/shop_verify")
    press(site, "Trigger")
    site.browser.wait_for("document.body.innerText.includes('Check the history of each key')")
    picture(site, "form-verify")
    assert [label for label in labels(site) if "*" in label] == []


FILLED = {"tables": "shop.orders", "offset": "current", "confirm": "shop", "mysql_cdc_conn_id": "mysql_shop"}
"""What a person enters into fields with a star."""


def enter(site: Site, field: str, value: str) -> None:
    """Write a value into a field of a form, as a person who selects everything in it first."""
    element = f"document.querySelector('[role=dialog] [name=\"element_{field}\"]')"
    site.browser.wait_for(element)
    setter = f"Object.getOwnPropertyDescriptor(Object.getPrototypeOf({element}), 'value').set"
    site.browser.run(f"{setter}.call({element}, {json.dumps(value)})")
    site.browser.run(f"{element}.dispatchEvent(new Event('input', {{bubbles: true}}))")


@pytest.mark.exhaustive
def test_the_form_of_each_shipped_dag_is_refused_once_and_sent_once(site: Site) -> None:
    """Without the connection it is refused; with it the run has what was entered."""
    send = "[...document.querySelectorAll('[role=dialog] button')].find(e => e.innerText.trim() === 'Trigger')"
    for name in NAMES:
        store_dags({name: load(name)})
        site.open(f"/dags/{name}")
        press(site, "Trigger")
        entered = {field: FILLED[field] for field in ({"mysql_cdc_conn_id"} | STARS.get(name, set()))}
        for field, value in entered.items():
            enter(site, field, value)
        enter(site, "mysql_cdc_conn_id", "")
        site.browser.wait_for(f"{send}.disabled")
        assert runs_of(name) == [], name
        enter(site, "mysql_cdc_conn_id", entered["mysql_cdc_conn_id"])
        site.browser.wait_for(f"{send} && !{send}.disabled")
        picture(site, f"form-{name}") if name == "mysql_cdc_reset_offset" else None
        site.browser.run(f"{send}.click()")
        site.browser.wait_for("location.pathname.includes('/runs/')")  # Airflow shows the new run
        ((_, conf),) = runs_of(name)
        sent = {field: conf[field] if isinstance(conf[field], str) else ",".join(conf[field]) for field in entered}
        assert sent == entered, name
        # Airflow's SQLite may be locked for the log's entry that the DAG is no longer paused.
        assert [text for text in site.browser.complaints() if f"/api/v2/dags/{name}" not in text] == []
