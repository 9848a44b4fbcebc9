"""MySqlBinlogSensor and its trigger against a real server: what ends the wait, one poll for all, errors, no secrets."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, task
from airflow.serialization.serialized_objects import BaseSerialization
from airflow_home import run_dag
from kit.polls import active_polls
from real_servers import define_connections, execute

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.commit.offset_store import PastOffset, StoredState
from airflow_provider_mysql_cdc.cdc.operate import lag as behind
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.sensors.binlog import MySqlBinlogSensor
from airflow_provider_mysql_cdc.triggers.binlog import MySqlBinlogTrigger

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("metadata_db")]
ASSET = Asset("binlog_sensor_offsets")


@pytest.fixture
def prefix(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], stack: Any) -> str:
    define_connections(monkeypatch, properties, stack)
    return properties["topic.prefix"]


@pytest.fixture
def state(prefix: str) -> dict[str, Any]:
    """Return a stored state that stands at the end of the server's binlog."""
    with connect(MySqlCdcHook().get_config().connection_settings()) as conn:
        offset = current_offset(conn)
    return StoredState(epoch=1, committed=offset, history=(PastOffset(1, offset, 0),), revision=1).to_json()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the looks at the server."""
    made: list[int] = []
    real = behind.read_binlog_state

    def counted(cfg: Any, drained: Any) -> Any:
        made.append(1)
        return real(cfg, drained)

    monkeypatch.setattr(behind, "read_binlog_state", counted)
    return made


def sense(name: str, prefix: str, state: dict[str, Any] | None, **arguments: Any) -> Any:
    """Store a state, run the sensor after it, and return the sensor's task instance."""
    with DAG(dag_id=name, schedule=None) as dag:

        @task(inlets=[ASSET], outlets=[ASSET])
        def store(asset_state_store: Any = None) -> None:
            if state is not None:
                asset_state_store[ASSET].set(f"offset/{prefix}", state)

        sensor = MySqlBinlogSensor(task_id="wait", offset_asset=ASSET, poke_interval=0.05, **arguments)
        store() >> sensor
    return run_dag(dag).get_task_instance("wait")


def change(root: Any, database: str) -> None:
    execute(root, f"CREATE TABLE IF NOT EXISTS {database}.t (id INT)", f"INSERT INTO {database}.t VALUES (1)")


@pytest.mark.parametrize("deferrable", [False, True])
def test_something_new_ends_the_wait(
    root: Any, database: str, prefix: str, state: dict[str, Any], deferrable: bool
) -> None:
    change(root, database)
    ti = sense(f"new_{deferrable}", prefix, state, deferrable=deferrable, timeout=60)
    assert ti.state == "success"
    seen = ti.xcom_pull(task_ids="wait")
    assert seen["reached"] is True
    assert seen["bytes"] > 0
    assert seen["transactions"] == 2


@pytest.mark.parametrize("deferrable", [False, True])
def test_without_anything_stored_there_is_nothing_to_wait_for(prefix: str, deferrable: bool) -> None:
    ti = sense(f"nothing_{deferrable}", f"{prefix}_other", None, deferrable=deferrable, timeout=60)
    assert ti.state == "success"
    assert "no offset is stored" in ti.xcom_pull(task_ids="wait")["reason"]


def test_poking_ends_with_the_timeout_while_nothing_happens(prefix: str, state: dict[str, Any]) -> None:
    assert sense("timeout", prefix, state, bytes_behind=10**12, timeout=0.2, deferrable=False).state == "failed"


def test_a_sensor_whose_trigger_fires_too_early_looks_itself_and_waits_on(
    root: Any, database: str, prefix: str, state: dict[str, Any], looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trigger compares with the offset of when the sensor deferred; a drain may have come since."""
    fired: list[int] = []

    def too_early(self: Any, found: Any) -> dict[str, Any]:
        fired.append(1)
        if len(fired) == 2:
            change(root, database)
        return {"behind": {}}

    monkeypatch.setattr(MySqlBinlogTrigger, "evaluate", too_early)
    assert sense("too_early", prefix, state, deferrable=True, timeout=60).state == "success"
    assert len(fired) == 2
    assert len(looks) == 5  # three of the task, two of its triggers


def test_a_refused_account_fails_the_task_for_good_and_by_name(
    prefix: str, state: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the trigger: the password changes between the sensor's look and the first poll."""
    real = MySqlBinlogTrigger.read

    def with_another_password(self: Any, cfg: Any) -> Any:
        conn = json.loads(os.environ["AIRFLOW_CONN_MYSQL_CDC_DEFAULT"]) | {"password": "wrong-and-secret"}
        monkeypatch.setenv("AIRFLOW_CONN_MYSQL_CDC_DEFAULT", json.dumps(conn))
        return real(self, MySqlCdcHook().get_config())

    monkeypatch.setattr(MySqlBinlogTrigger, "read", with_another_password)
    ti = sense("refused", prefix, state, deferrable=True, timeout=60, retries=1)
    log = "".join(capfd.readouterr())
    assert (ti.state, ti.try_number) == ("failed", 1)
    assert "SourceAuthError: MySQL refuses the account. A retry will not help.\nWhere: " in log
    assert "wrong-and-secret" not in log


def trigger_at(state: dict[str, Any], **wanted: Any) -> MySqlBinlogTrigger:
    """Return a trigger as the triggerer makes it: from what was serialised."""
    made = MySqlBinlogTrigger(
        mysql_cdc_conn_id="mysql_cdc_default",
        kafka_conn_id=None,
        properties={"max.batch.bytes": 0},
        poll_interval=0.05,
        drained=behind.DrainedOffset.from_state(StoredState.from_json(state)).to_json(),
        thresholds=behind.Thresholds(**wanted).to_json(),
    )
    path, arguments = made.serialize()
    assert path == "airflow_provider_mysql_cdc.triggers.binlog.MySqlBinlogTrigger"
    stored = json.dumps(BaseSerialization.serialize(arguments))
    for secret in (json.loads(os.environ["AIRFLOW_CONN_MYSQL_CDC_DEFAULT"])["password"], "password"):
        assert secret not in stored
    again = MySqlBinlogTrigger(**BaseSerialization.deserialize(json.loads(stored)))
    assert again.serialize() == (path, arguments)
    return again


async def events(trigger: MySqlBinlogTrigger) -> list[dict[str, Any]]:
    try:
        return [event.payload async for event in trigger.run()]
    finally:
        await trigger.cleanup()


def connections_made(root: Any) -> int:
    with root.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Connections'")
        return int(cursor.fetchone()[1])


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_twenty_triggers_of_one_server_poll_once(
    root: Any, database: str, state: dict[str, Any], looks: list[int]
) -> None:
    async def wait() -> tuple[list[list[dict[str, Any]]], int]:
        before = connections_made(root)
        waiting = [asyncio.create_task(events(trigger_at(state, bytes=1))) for _ in range(20)]
        await until(lambda: len(looks) >= 3)
        assert active_polls() == 1
        change(root, database)
        found = await asyncio.gather(*waiting)
        assert active_polls() == 0
        return found, connections_made(root) - before

    found, connections = asyncio.run(asyncio.wait_for(wait(), 60))
    assert [[event["status"] for event in one] for one in found] == [["ready"]] * 20
    # A look may have begun when the connections were counted; triggers by themselves would make twenty for each.
    assert len(looks) - 1 <= connections <= len(looks)


def test_triggers_of_different_servers_or_settings_have_polls_of_their_own(state: dict[str, Any]) -> None:
    async def wait() -> int:
        one, other = trigger_at(state, bytes=10**12), trigger_at(state, bytes=10**12)
        other.properties["connect.timeout.ms"] = 1000
        waiting = [asyncio.create_task(events(trigger)) for trigger in (one, other)]
        await until(lambda: active_polls() == 2)
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        return active_polls()

    assert asyncio.run(wait()) == 0


def test_a_server_that_cannot_be_reached_is_one_failed_event_each(
    state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    conn = json.loads(os.environ["AIRFLOW_CONN_MYSQL_CDC_DEFAULT"]) | {"port": 1}
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_CDC_DEFAULT", json.dumps(conn))

    async def wait() -> list[list[dict[str, Any]]]:
        return await asyncio.gather(*(events(trigger_at(state)) for _ in range(3)))

    for (event,) in asyncio.run(wait()):
        assert event["status"] == "failed"
        assert event["error"]["type"] == "SourceConnectionError"
        assert event["error"]["retriable"] is True


def test_an_error_without_a_name_shows_nothing_of_its_text(
    state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(cfg: Any, drained: Any) -> Any:
        raise ValueError("text with a secret")

    monkeypatch.setattr(behind, "read_binlog_state", broken)
    (event,) = asyncio.run(events(trigger_at(state)))
    assert event["status"] == "failed"
    assert "ValueError" in event["error"]["why"]
    assert "secret" not in json.dumps(event)


def test_a_property_that_holds_a_secret_is_not_given_to_the_triggerer(
    prefix: str, state: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    properties = {"kafka.client.id": "proxy://cdc:hidden-in-a-value@host"}
    ti = sense("leak", prefix, state, properties=properties, deferrable=True, timeout=60)
    assert ti.state == "failed"
    assert "the task's properties contain a secret" in "".join(capfd.readouterr())
