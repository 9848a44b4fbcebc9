"""What a run brings may not lead anywhere: every property in a form, with listeners where the servers would be."""

from __future__ import annotations

import json
import runpy
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Param, task
from airflow_home import run_dag
from fakes import PASSWORD, FakeStream

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import kafka, undeclared_properties
from airflow_provider_mysql_cdc.cdc.config import property_families as families
from airflow_provider_mysql_cdc.cdc.config.field import SetBy
from airflow_provider_mysql_cdc.cdc.config.property_names import hide_salt
from airflow_provider_mysql_cdc.cdc.config.property_sources import set_by
from airflow_provider_mysql_cdc.cdc.config.read_properties import ALIASES
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.signal import MySqlCdcSignalOperator

pytestmark = pytest.mark.usefixtures("metadata_db")
DAGS = Path(__file__).resolve().parents[2] / "airflow_provider_mysql_cdc" / "example_dags"
REFUSED = "the run sets properties that a run may not set"


class Listener:
    """A server that counts who connects, and hangs up."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.connected = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            self.connected += 1
            accepted.close()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """The place that the connections name, for MySQL, Kafka and the registry."""
    listener = Listener()
    mysql = {
        "conn_type": "mysql_cdc",
        "host": "127.0.0.1",
        "port": listener.port,
        "login": "cdc",
        "password": PASSWORD,
        "extra": {
            "topic.prefix": "shop",
            "kafka.bootstrap.servers": listener.address,
            "signal.data.collection": "shop.signals",
            "connect.timeout.ms": 2000,
        },
    }
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_CDC_DEFAULT", json.dumps(mysql))
    yield listener
    listener.close()


@pytest.fixture
def other() -> Iterator[Listener]:
    """The place that a run names."""
    listener = Listener()
    yield listener
    listener.close()


def run_form(properties: dict[str, Any], **arguments: Any) -> str:
    """Render and execute a task whose properties are the run's form; return the error it ends with."""
    with DAG("form", schedule=None) as dag:
        operator = MySqlCdcSignalOperator(
            task_id="send",
            signal_type="log",
            data={"message": "x"},
            signal_id="s",
            properties="{{ params.properties | tojson }}",
            **{"channel": "source"} | arguments,
        )
    operator.render_template_fields({"dag": dag, "params": {"properties": properties}})
    with pytest.raises(Exception) as caught:
        operator.execute({})
    return f"{type(caught.value).__name__} {caught.value}"


FAMILY_MEMBERS = {
    **{
        f"{prefix}{name}": value
        for prefix in (*kafka.PREFIXES, "signals.consumer.")
        for name, value in (
            ("bootstrap.servers", "{address}"),
            ("security.protocol", "PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("plugin.library.paths", "/tmp/x.so"),
            ("ssl.ca.location", "/tmp/ca.pem"),
            ("linger.ms", "5"),
            ("anything", "1"),
        )
    },
    **{f"{families.DRIVER_PREFIX}{option}": "{host}" for option in families.DRIVER_OPTIONS},
    "database.anything": "1",
    "database.history.kafka.bootstrap.servers": "{address}",
    "database.history.producer.sasl.mechanism": "PLAIN",
    "topic.creation.default.retention.ms": "1",
    "snapshot.select.statement.overrides.shop.orders": "SELECT * FROM mysql.user",
    "column.truncate.to.9.chars": "shop.orders.a",
    "column.mask.with.9.chars": "shop.orders.a",
    "column.mask.hash.SHA-256.with.salt.s4lt": "shop.orders.a",
    "column.mask.hash.v2.SHA-256.with.salt.s4lt": "shop.orders.a",
    "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.route.replacement": "elsewhere",
    "isbn.type": "os.path.join",
    "key.converter.anything": "1",
    "schema_registry_conn_id": "elsewhere",
    "kafka_conn_id": "elsewhere",
    "no.such.property": "1",
}
NAMES = [
    *(f.name for f in F.ALL),
    *ALIASES,
    *undeclared_properties.NO_EFFECT,
    *(r.name.replace("*", "x") for r in undeclared_properties.REFUSED_PROPERTIES),
    *(name for name in FAMILY_MEMBERS if name not in F.BY_NAME and name not in ALIASES),
]


def value_for(name: str, other: Listener) -> str:
    """Return the other place in the form in which the property would take it."""
    text = FAMILY_MEMBERS.get(name) or (
        "{port}"
        if name.endswith("port")
        else "http://{address}"
        if name.endswith(("url", "schema-registry"))
        else "{address}"
        if "servers" in name
        else "{host}"
    )
    return text.format(address=other.address, port=other.port, host="127.0.0.1")


def test_every_property_in_a_run_s_form_leads_nowhere_but_where_the_connection_says(
    own: Listener, other: Listener
) -> None:
    """Refused by name before anything connects; or, if a run may set it, nothing but the connection's place hears."""
    accepted = 0
    for name in dict.fromkeys(NAMES):
        before = own.connected
        error = run_form({name: value_for(name, other), "snapshot.mode": "initial"})
        if set_by(name) is SetBy.RUN:
            accepted += 1
            assert REFUSED not in error, name
        else:
            assert error.startswith("TaskFailedError ConfigError"), (name, error)
            assert hide_salt(name) in error and own.connected == before, (name, error)
            assert "s4lt" not in error
    assert other.connected == 0
    assert own.connected > 0  # the listener hears where a run may set the property
    assert accepted > 60


def test_what_one_form_names_is_refused_together_and_the_author_can_open_it(own: Listener, other: Listener) -> None:
    form = {"database.hostname": "127.0.0.1", "database.port": other.port}
    error = run_form(form)
    assert "database.hostname, database.port" in error and "run_properties" in error
    assert (own.connected, other.connected) == (0, 0)
    assert "database.port]" in run_form(form, run_properties=["database.hostname"])
    run_form(form, run_properties=["database.hostname", "database.port"])
    assert (own.connected, other.connected > 0) == (0, True)


def shipped(name: str) -> DAG:
    (dag,) = (value for value in runpy.run_path(str(DAGS / f"{name}.py")).values() if isinstance(value, DAG))
    return dag


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("mysql_cdc_drain", {}),
        ("mysql_cdc_snapshot", {}),
        ("mysql_cdc_pipeline", {}),
        ("mysql_cdc_adhoc_snapshot", {"tables": ["a.b"]}),
        ("mysql_cdc_reset_offset", {"confirm": "shop"}),
        ("mysql_cdc_send_signal", {}),
        ("mysql_cdc_import_debezium", {}),
        ("mysql_cdc_verify", {}),
    ],
)
def test_the_forms_of_the_package_s_dags_refuse_it(
    fakes: Any, other: Listener, name: str, form: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    submit, pipeline = fakes
    elsewhere = {"database.hostname": "127.0.0.1", "database.port": other.port, "database.ssl.mode": "disabled"}
    assert run_dag(shipped(name), {**form, "properties": elsewhere}).state == "failed"
    assert (submit.record, pipeline.calls, other.connected) == (None, [], 0)
    log = "".join(capfd.readouterr())
    assert REFUSED in log
    assert "Where: database.hostname, database.port, database.ssl.mode" in log


def test_properties_of_the_airflow_variable_are_the_deployment_s(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, _ = fakes
    stored = {"topic.prefix": "of_the_deployment", "decimal.handling.mode": "double"}
    monkeypatch.setenv("AIRFLOW_VAR_MYSQL_CDC_PROPERTIES", json.dumps(stored))
    assert run_dag(shipped("mysql_cdc_drain"), {"properties": {"decimal.handling.mode": "string"}}).state == "success"
    properties = submit.record["spec"]["properties"]
    assert (properties["topic.prefix"], properties["decimal.handling.mode"]) == ("of_the_deployment", "string")


@task
def from_form(params: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what the form holds."""
    return dict((params or {})["p"])


@task
def arguments_from_form(params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return arguments of a mapped task with what the form holds."""
    return [{"properties": (params or {})["p"]}]


def mapped_over_arguments() -> None:
    MySqlCdcDrainOperator.partial(task_id="drain").expand_kwargs(arguments_from_form())


WAYS = {
    "a template of the whole": lambda: MySqlCdcDrainOperator(task_id="drain", properties="{{ params.p | tojson }}"),
    "a layer of several": lambda: MySqlCdcDrainOperator(
        task_id="drain", properties=[{"snapshot.mode": "initial"}, "{{ params.p | tojson }}"]
    ),
    "a template of one value": lambda: MySqlCdcDrainOperator(
        task_id="drain", properties={"topic.prefix": "{{ params.p['topic.prefix'] }}"}
    ),
    "dag_run.conf": lambda: MySqlCdcDrainOperator(
        task_id="drain", properties={"topic.prefix": "{{ dag_run.conf['p']['topic.prefix'] }}"}
    ),
    "an assignment in the template": lambda: MySqlCdcDrainOperator(
        task_id="drain", properties="{% set var = params %}{{ var.p | tojson }}"
    ),
    "a variable that the form chooses": lambda: MySqlCdcDrainOperator(
        task_id="drain", properties="{{ var.json.get('none', params.p) | tojson }}"
    ),
    "the result of a task": lambda: MySqlCdcDrainOperator(task_id="drain", properties=from_form()),
    "a callable": lambda: MySqlCdcDrainOperator(
        task_id="drain", properties=lambda context, jinja_env: context["params"]["p"]
    ),
    "a mapped task": mapped_over_arguments,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_from_the_run_is_the_run_s_however_the_dag_hands_it_on(
    fakes: Any, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, pipeline = fakes
    with DAG(f"ways_{list(WAYS).index(way)}", schedule=None, params={"p": Param({}, type="object")}) as dag:
        WAYS[way]()
    assert run_dag(dag, {"p": {"topic.prefix": "elsewhere"}}).state == "failed"
    assert (submit.record, pipeline.calls) == (None, [])
    log = "".join(capfd.readouterr())
    assert REFUSED in log
    assert "Where: topic.prefix" in log


OWN_WAYS = {
    "text": {"topic.prefix": "of_the_author"},
    "text beside a template": {"topic.prefix": "of_the_author", "snapshot.mode": "{{ params.mode }}"},
    "a variable": {"topic.prefix": "{{ var.value.prefix_of_the_author }}"},
    "several layers": [{"topic.prefix": "of_the_author"}, '{"snapshot.mode": "{{ params.mode }}"}'],
}


@pytest.mark.parametrize("way", OWN_WAYS)
def test_what_the_dag_file_says_is_the_author_s(fakes: Any, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, _ = fakes
    monkeypatch.setenv("AIRFLOW_VAR_PREFIX_OF_THE_AUTHOR", "of_the_author")
    with DAG(f"own_{list(OWN_WAYS).index(way)}", schedule=None, params={"mode": "initial"}) as dag:
        MySqlCdcDrainOperator(task_id="drain", properties=OWN_WAYS[way])
    assert run_dag(dag).state == "success"
    assert submit.record["spec"]["properties"]["topic.prefix"] == "of_the_author"


@pytest.mark.parametrize("listed", [False, True])
def test_what_a_mapped_task_s_dag_file_says_is_the_author_s(fakes: Any, listed: bool) -> None:
    submit, _ = fakes
    with DAG(f"own_mapped_{listed}", schedule=None) as dag:
        partial, own = MySqlCdcDrainOperator.partial(task_id="drain"), {"topic.prefix": "of_the_author"}
        partial.expand_kwargs([{"properties": own}]) if listed else partial.expand(properties=[own])
    assert run_dag(dag).state == "success"
    assert submit.record["spec"]["properties"]["topic.prefix"] == "of_the_author"


def test_a_form_s_text_is_never_rendered_as_a_template(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow renders what ``expand_kwargs`` takes from another task; a form could read any connection with it."""
    stream = FakeStream(monkeypatch, drains=1)
    fakes[1].settled = stream.drain
    form = {"tables": ["shop.orders"], "column": "{{ conn.mysql_cdc_default.password }}"}
    run = run_dag(shipped("mysql_cdc_backfill"), form, logical_date=datetime(2026, 11, 3, tzinfo=UTC))
    assert run.state == "success"
    (signal,) = stream.sent
    (condition,) = json.loads(signal.data)["additional-conditions"]
    assert condition["filter"].startswith("`{{ conn.mysql_cdc_default.password }}` >= ")


def test_a_form_s_kafka_connection_gets_no_account_of_another_connection(
    own: Listener, other: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers, or brokers of signals, of the connection that the form names; or its account for those of the stream."""
    account = {"sasl.mechanism": "PLAIN", "sasl.username": "cdc", "sasl.password": PASSWORD}
    account["security.protocol"] = "SASL_PLAINTEXT"
    stream = {"topic.prefix": "shop", "signal.enabled.channels": "airflow,kafka", "signal.kafka.topic": "signals"}
    stream_account = {f"kafka.{name}": value for name, value in account.items()}
    other_brokers = {"bootstrap.servers": other.address}
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("airflow", stream_account, other_brokers),
        ("kafka", stream_account, other_brokers),
        ("airflow", {"kafka.bootstrap.servers": own.address}, account | other_brokers),
        ("kafka", {"signal.kafka.bootstrap.servers": own.address}, account | other_brokers),
    ]
    for channel, extra, form_connection in cases:
        mysql = {"conn_type": "mysql_cdc", "host": "127.0.0.1", "port": own.port, "login": "cdc", "password": "x"}
        monkeypatch.setenv("AIRFLOW_CONN_MYSQL_CDC_DEFAULT", json.dumps(mysql | {"extra": stream | extra}))
        monkeypatch.setenv("AIRFLOW_CONN_FORM", json.dumps({"conn_type": "kafka", "extra": form_connection}))
        error = run_form({}, channel=channel, kafka_conn_id="form")
        assert error.startswith("TaskFailedError ConfigError: brokers and account of Kafka come from"), error
        assert "(connection form)" in error and "(connection mysql_cdc_default)" in error and PASSWORD not in error
        assert (own.connected, other.connected) == (0, 0)
