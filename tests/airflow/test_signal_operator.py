"""MySqlCdcSignalOperator over its three channels, on real servers, read back the way a drain reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from confluent_kafka.admin import AdminClient, NewTopic
from real_servers import define_connections, execute

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.operate.send_signal import peek_ledger
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import KafkaSignalChannel
from airflow_provider_mysql_cdc.cdc.signals.signal import pending_signals, read_action
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.operators.signal import MySqlCdcSignalOperator

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("metadata_db")]
SNAPSHOT = {"type": "incremental", "data-collections": ["shop.orders"]}


@pytest.fixture
def channels(root: Any, database: str, stack: Any) -> dict[str, str]:
    """Return the properties of a stream that listens to all channels; its signal table has a column more."""
    execute(
        root,
        f"CREATE TABLE {database}.`cdc sig` (`the id` VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, "
        "data VARCHAR(2048) NULL, at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)",
        f"GRANT INSERT ON {database}.`cdc sig` TO {stack.cdc_user}",
    )
    return {"signal.data.collection": f'{database}."cdc sig"', "signal.enabled.channels": "source,kafka"}


@pytest.fixture
def prefix(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], channels: dict[str, str], stack: Any) -> str:
    define_connections(monkeypatch, properties | channels, stack)
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    topic = f"{properties['topic.prefix']}-signal"
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    kafka_clients.ledger(MySqlCdcHook().get_config()).ensure()
    return properties["topic.prefix"]


def send(name: str, signal_type: str = "execute-snapshot", data: Any = None, **arguments: Any) -> Any:
    """Run the operator and return its task instance."""
    with DAG(dag_id=name, schedule=None) as dag:
        MySqlCdcSignalOperator(task_id="send", signal_type=signal_type, data=data or SNAPSHOT, **arguments)
    return run_dag(dag).get_task_instance("send")


def rows(root: Any, database: str) -> list[tuple[Any, ...]]:
    with root.cursor() as cursor:
        cursor.execute(f"SELECT `the id`, type, data FROM {database}.`cdc sig`")
        return list(cursor.fetchall())


def test_over_airflow_it_waits_in_the_ledger(prefix: str) -> None:
    ti = send("over_airflow", data='{"data-collections": ["shop.o\'neil"], "type": "BLOCKING"}')
    ((_, signal),) = pending_signals(peek_ledger(MySqlCdcHook().get_config()).signals)
    assert ti.xcom_pull(task_ids="send") == signal.id
    assert signal.channel == "airflow"
    assert read_action(signal, frozenset()).collections == ("shop.o'neil",)


@pytest.mark.req("INC-28", "INC-29", "EX-13")
def test_over_the_source_it_is_a_row_with_any_text(root: Any, database: str, prefix: str) -> None:
    data = {"data-collections": ["shop.orders"], "type": "incremental"}
    data |= {"additional-conditions": [{"data-collection": "shop.orders", "filter": "a = '\\'; DROP TABLE x; -- `%s"}]}
    ti = send("over_source", data=data, channel="source")
    assert rows(root, database) == [(ti.xcom_pull(task_ids="send"), "execute-snapshot", json.dumps(data))]


@pytest.mark.req("INC-40", "INC-41", "INC-42", "EX-15")
def test_over_kafka_it_is_a_record_under_the_prefix(prefix: str) -> None:
    cfg = MySqlCdcHook().get_config()
    ti = send("over_kafka", channel="kafka")
    ((_, signal),) = KafkaSignalChannel(cfg).poll(peek_ledger(cfg)).signals
    assert signal.id == ti.xcom_pull(task_ids="send")
    assert (signal.type, json.loads(signal.data)) == ("execute-snapshot", SNAPSHOT)


def test_every_try_of_a_task_sends_the_same_id(
    root: Any, database: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try dies after it has sent the row."""
    real, tries = MySqlCdcSignalOperator.execute, []

    def dies_at_first(self: Any, context: Any) -> str:
        sent = real(self, context)
        tries.append(sent)
        if len(tries) == 1:
            raise RuntimeError("died behind the signal")
        return sent

    monkeypatch.setattr(MySqlCdcSignalOperator, "execute", dies_at_first)
    ti = send("tries", channel="source", retries=1, retry_delay=0)
    assert ti.state == "success"
    assert len(tries) == 2
    assert [row[0] for row in rows(root, database)] == [tries[0]] == [tries[1]]


@pytest.mark.parametrize(
    ("why", "arguments"),
    [
        ("no_such_type", {"signal_type": "execute-snapshots"}),
        ("no_json", {"data": "{data-collections: 1}"}),
        ("no_tables", {"data": {"type": "incremental"}}),
        ("kind", {"data": {"data-collections": ["a.b"], "type": "both"}}),
        ("expression", {"data": {"data-collections": ["shop.(orders"]}}),
        ("channel", {"channel": "jmx"}),
        (
            "trust",
            {
                "channel": "kafka",
                "data": SNAPSHOT | {"additional-conditions": [{"data-collection": "shop.orders", "filter": "1=1"}]},
            },
        ),
    ],
)
def test_what_the_drain_would_refuse_is_not_sent(
    root: Any, database: str, prefix: str, why: str, arguments: dict[str, Any]
) -> None:
    cfg = MySqlCdcHook().get_config()
    ti = send(f"refused_{why}", **{"channel": "source", "retries": 1, **arguments})
    assert (ti.state, ti.try_number) == ("failed", 1)
    assert rows(root, database) == []
    assert KafkaSignalChannel(cfg).poll(peek_ledger(cfg)).signals == []


def test_a_channel_that_nobody_listens_to_is_refused(
    prefix: str, root: Any, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ti = send("deaf", channel="source", properties={"signal.enabled.channels": "kafka"})
    assert ti.state == "failed"
    assert rows(root, database) == []
    assert "the connector does not read signals from this channel" in "".join(capfd.readouterr())


def test_a_missing_grant_is_named(
    root: Any, database: str, prefix: str, stack: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    execute(root, f"REVOKE INSERT ON {database}.`cdc sig` FROM {stack.cdc_user}")
    assert send("grant", channel="source").state == "failed"
    assert "the account needs SELECT and INSERT on the signal table" in "".join(capfd.readouterr())


def test_another_signal_of_the_same_id_is_not_taken_for_it(root: Any, database: str, prefix: str) -> None:
    assert send("first", channel="source", signal_id="mine").state == "success"
    assert send("second", channel="source", signal_id="mine", data={"data-collections": ["a.b"]}).state == "failed"
    assert len(rows(root, database)) == 1
