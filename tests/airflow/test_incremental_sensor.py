"""MySqlIncrementalSnapshotSensor and its trigger against a real ledger."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import BaseSerialization
from airflow_home import run_dag
from kit.polls import active_polls
from real_servers import define_connections

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import (
    IncrementalState,
    read_incremental_state,
    state_changes,
)
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import (
    SnapshotRequest,
    queue_scans,
    record_refusal,
    set_paused,
    stop_scans,
)
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate import send_signal as asked_snapshot
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.sensors.incremental import MySqlIncrementalSnapshotSensor
from airflow_provider_mysql_cdc.triggers.incremental import MySqlIncrementalSnapshotTrigger

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("metadata_db")]
Step = Callable[[IncrementalState], IncrementalState]


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], stack: Any) -> Callable[[Step], None]:
    """Return what takes the books in the ledger a step further, as a drain does."""
    define_connections(monkeypatch, properties, stack)
    ledger = kafka_clients.ledger(MySqlCdcHook().get_config())
    ledger.ensure()

    def take(change: Step) -> None:
        state = ledger.read()
        assert state is not None
        before = read_incremental_state(state)
        records = {
            key: None if value is None else encode(value) for key, value in state_changes(before, change(before))
        }
        ledger.put(records)

    return take


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the reads of the ledger."""
    made: list[int] = []
    real = asked_snapshot.peek_ledger

    def counted(cfg: Any) -> Any:
        made.append(1)
        return real(cfg)

    monkeypatch.setattr(asked_snapshot, "peek_ledger", counted)
    return made


def asked(signal: str, *tables: str) -> Step:
    wanted = SnapshotRequest(signal, "incremental", [TableId("shop", table) for table in tables], {})
    return lambda books: queue_scans(books, wanted, 1)


def read_to_end(signal: str, rows: int) -> Step:
    def change(books: IncrementalState) -> IncrementalState:
        mine = [scan for scan in books.scans.values() if scan.request == signal]
        return books.with_scans(replace(scan, rows=rows).finish() for scan in mine)

    return change


def sense(name: str, **arguments: Any) -> Any:
    with DAG(dag_id=name, schedule=None) as dag:
        given = {"poke_interval": 0.05, "timeout": 60, **arguments}
        MySqlIncrementalSnapshotSensor(task_id="wait", **given)
    return run_dag(dag).get_task_instance("wait")


@pytest.mark.parametrize("deferrable", [False, True])
def test_the_end_of_the_snapshot_ends_the_wait(step: Any, reads: list[int], deferrable: bool) -> None:
    step(asked("mine", "orders", "customers"))
    step(asked("of another", "orders"))

    def drain() -> None:
        while len(reads) < 2:
            ended.wait(0.01)
        step(read_to_end("mine", 5))

    ended = threading.Event()
    beside = threading.Thread(target=drain, daemon=True)
    beside.start()
    ti = sense(f"end_{deferrable}", signal_id="mine", deferrable=deferrable)
    beside.join(60)
    table = {"state": "done", "rows": 5}
    assert ti.state == "success"
    assert ti.xcom_pull(task_ids="wait") == {"state": "done", "tables": {"shop.orders": table, "shop.customers": table}}


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize(
    ("how", "change"),
    [
        ("stopped", lambda books: stop_scans(books, None)),
        ("refused", lambda books: record_refusal(books, "refused", "its data is not JSON", 1)),
    ],
)
def test_a_snapshot_that_was_given_up_fails_the_task_for_good(
    step: Any, capfd: pytest.CaptureFixture[str], how: str, change: Step, deferrable: bool
) -> None:
    step(asked("stopped", "orders"))
    step(change)
    ti = sense(f"{how}_{deferrable}", signal_id=how, deferrable=deferrable, retries=1)
    assert (ti.state, ti.try_number) == ("failed", 1)
    assert {"stopped": "stopped by a signal", "refused": "its data is not JSON"}[how] in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "change", [lambda books: books, lambda books: set_paused(books, paused=True)], ids=["new", "rests"]
)
def test_what_is_not_done_is_waited_for(step: Any, change: Step) -> None:
    step(asked("mine", "orders"))
    step(change)
    assert sense("not_done", signal_id="mine", deferrable=False, timeout=0.2).state == "failed"
    assert sense("all", deferrable=False, timeout=0.2).state == "failed"


def test_a_signal_that_no_drain_has_seen_is_waited_for(step: Any) -> None:
    assert sense("unseen", signal_id="in the binlog", deferrable=False, timeout=0.2).state == "failed"


def test_without_an_id_it_waits_for_all_of_them(step: Any) -> None:
    step(asked("a", "orders"))
    step(read_to_end("a", 1))
    assert sense("all_done", deferrable=False).state == "success"


@pytest.mark.parametrize("empty", ["", "{{ ti.xcom_pull(task_ids='nothing') }}"])
def test_an_id_that_a_template_lost_is_not_taken_for_all(step: Any, empty: str) -> None:
    assert sense(f"empty_{len(empty)}", signal_id=empty, deferrable=False).state == "failed"


async def events(trigger: MySqlIncrementalSnapshotTrigger) -> list[dict[str, Any]]:
    return [event.payload async for event in trigger.run()]


def test_one_read_of_the_ledger_serves_all_signals_of_a_stream(step: Any, reads: list[int]) -> None:
    for number in range(10):
        step(asked(f"signal {number}", "orders"))
    arguments = {"mysql_cdc_conn_id": "mysql_cdc_default", "kafka_conn_id": None, "properties": {}}

    async def wait() -> list[list[dict[str, Any]]]:
        waiting = []
        for number in range(10):
            made = MySqlIncrementalSnapshotTrigger(signal_id=f"signal {number}", poll_interval=0.05, **arguments)
            path, stored = made.serialize()
            kept = json.dumps(BaseSerialization.serialize(stored))
            assert json.loads(os.environ["AIRFLOW_CONN_MYSQL_CDC_DEFAULT"])["password"] not in kept
            again = MySqlIncrementalSnapshotTrigger(**BaseSerialization.deserialize(json.loads(kept)))
            assert again.serialize() == (path, stored)
            waiting.append(asyncio.create_task(events(again)))
        while len(reads) < 3:
            await asyncio.sleep(0.01)
        assert active_polls() == 1
        for number in range(9):
            await asyncio.to_thread(step, read_to_end(f"signal {number}", number))
        await asyncio.to_thread(step, lambda books: stop_scans(books, None))
        found = await asyncio.gather(*waiting)
        assert active_polls() == 0
        return found

    found = asyncio.run(asyncio.wait_for(wait(), 120))
    assert [[event["status"] for event in one] for one in found] == [["ready"]] * 9 + [["failed"]]
    assert [one[0]["tables"]["shop.orders"]["rows"] for one in found[:9]] == list(range(9))
    assert found[9][0]["error"]["type"] == "StateError"
