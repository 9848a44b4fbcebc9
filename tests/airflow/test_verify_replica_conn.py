"""The connection of a replica that a verification reads: who chooses it, and where its secrets go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from fakes import FakePipeline, FakeSubmit, connections, install

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.operators.verify import MySqlCdcVerifyOperator

pytestmark = pytest.mark.usefixtures("metadata_db")
WORD, KEY_WORD = "replica-password-7f3a", "replica-key-word-91c2"
REPLICA: dict[str, Any] = {
    "conn_type": "mysql_cdc",
    "host": "replica.example",
    "port": 3310,
    "login": "reader",
    "password": WORD,
    "extra": {"database.ssl.mode": "required", "database.ssl.key.password": KEY_WORD, "topic.prefix": "another"},
}


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeSubmit, FakePipeline]:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    define(monkeypatch)
    return install(monkeypatch, tmp_path)


def define(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_REPLICA", json.dumps(REPLICA | changes))


def stored_texts() -> str:
    """Return what Airflow has stored of rendered fields and XComs."""
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        rendered = [row.rendered_fields for row in session.query(RenderedTaskInstanceFields)]
        return json.dumps([rendered, [str(row.value) for row in session.query(XComModel)]], default=str)


def test_its_account_reaches_the_job_and_nothing_else(fakes: Any, capfd: pytest.CaptureFixture[str]) -> None:
    submit, _ = fakes
    with DAG("verify_on_a_replica", schedule=None) as dag:
        MySqlCdcVerifyOperator(task_id="verify", replica_conn_id="replica", retries=0)
    run_dag(dag)
    record = submit.record
    properties = record["spec"]["properties"]
    assert {name: text for name, text in properties.items() if name.startswith("verify.replica.")} == {
        "verify.replica.database.hostname": "replica.example",
        "verify.replica.database.port": "3310",
        "verify.replica.database.user": "reader",
        "verify.replica.database.password": WORD,
        "verify.replica.database.ssl.mode": "required",
        "verify.replica.database.ssl.key.password": KEY_WORD,
    }
    assert properties["topic.prefix"] == "shop" and properties["database.hostname"] == "mysql.example"
    environment = {name: text for name, text in record["env"].items() if not name.startswith("AIRFLOW_CONN_")}
    shown = [record["argv"], record["file"], environment, stored_texts(), capfd.readouterr()]
    for word in (WORD, KEY_WORD):
        assert word not in str(shown)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"host": ""}, "names no host"),
        ({"conn_type": "mysql"}, "the replica connection is of another type"),
        ({"extra": "[1]"}, "extra is not a JSON object"),
        ({"host": "a,b"}, "names several servers"),
        ({"extra": {"database.ssl.mode": WORD}}, "ssl.mode"),
        ({"extra": {"database.ssl.key": "k.pem"}}, "a client key needs its certificate"),
    ],
)
def test_a_connection_that_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], what: str
) -> None:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    define(monkeypatch, **changes)
    with pytest.raises(ConfigError, match=what) as raised:
        MySqlCdcHook(replica_conn_id="replica").get_config()
    assert WORD not in str(raised.value)


def test_without_it_the_source_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    assert MySqlCdcHook().get_config().replica_settings() is None
