"""The watcher's trigger: what it keeps, and that it goes on behind errors; its state is read without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_mysql_cdc.cdc.binlog.purged_files import ServerGtids
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SinkError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate.due_drain import DrainRequest, StreamState
from airflow_provider_mysql_cdc.cdc.operate.lag import BinlogState, DrainedOffset

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.triggers.watch import MySqlBinlogWatchTrigger

SERVER = "aaaaaaaa-0000-0000-0000-000000000001"


class MemoryState:
    """Stand in for the state of the watched asset."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def aget(self, key: str, default: Any = None) -> Any:
        return self.kept.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        self.kept[key] = value


def stream(drained: int, end: int) -> StreamState:
    def at(pos: int) -> BinlogOffset:
        return BinlogOffset("binlog.000004", pos, f"{SERVER}:1-{pos}", SERVER)

    binlog = BinlogState(at(end), (("binlog.000004", end),), ServerGtids("ON"), 1_000_000)
    return StreamState(DrainedOffset(at(drained), 0), binlog)


def made(state: MemoryState | None, looks: list[Any], conn_id: str = "shop") -> MySqlBinlogWatchTrigger:
    """Return a trigger that finds these states and errors one after the other, then the last one for ever."""
    from airflow_provider_mysql_cdc.triggers import watch

    trigger = watch.MySqlBinlogWatchTrigger(mysql_cdc_conn_id=conn_id, poll_interval=0.01)
    trigger.asset_state_store = state  # type: ignore[assignment]

    def read() -> StreamState:
        found = looks.pop(0) if len(looks) > 1 else looks[0]
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    trigger._read = read  # type: ignore[method-assign]
    return trigger


def events(trigger: MySqlBinlogWatchTrigger, until: Callable[[], bool]) -> list[Any]:
    """Run a trigger until something holds, and return the payloads of its events."""

    async def watched() -> list[Any]:
        found: list[Any] = []

        async def collect() -> None:
            async for event in trigger.run():
                found.append(event.payload)

        task = asyncio.create_task(collect())
        for _ in range(1000):
            await asyncio.sleep(0.01)
            if until():
                break
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return found

    return asyncio.run(watched())


def test_each_change_is_one_event_and_the_asset_keeps_the_last_one() -> None:
    from airflow_provider_mysql_cdc.triggers import watch

    looks = [stream(100, 100), stream(100, 200), stream(100, 200), stream(200, 200), stream(200, 300)]
    state = MemoryState()
    found = events(made(state, looks), lambda: len(looks) == 1)
    assert [event["end"]["pos"] for event in found] == [200, 300]
    assert found[0]["lag"]["bytes"] == 100
    assert DrainRequest.from_json(state.kept[watch.LAST_REQUEST + "shop"]).end.pos == 300


def test_a_new_triggerer_does_not_ask_again() -> None:
    state = MemoryState()
    looks = [stream(100, 200)]
    assert len(events(made(state, looks), lambda: bool(state.kept))) == 1
    looks = [stream(100, 200), stream(100, 200)]
    assert events(made(state, looks), lambda: len(looks) == 1) == []


def test_streams_that_one_asset_watches_do_not_take_each_other_s_requests_for_their_own() -> None:
    """Of one server: the end that another stream asked for would look like work that this one has asked for."""
    state = MemoryState()
    assert len(events(made(state, [stream(100, 200)], "north"), lambda: bool(state.kept))) == 1
    assert len(events(made(state, [stream(100, 200)], "south"), lambda: len(state.kept) == 2)) == 1


def test_an_error_is_a_warning_and_the_watch_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    looks = [SinkError("Kafka does not answer"), RuntimeError("password=x"), stream(100, 200)]
    trigger = made(None, looks)
    monkeypatch.setattr(trigger.log, "warning", lambda text, *values, **_: told.append(text % values))
    assert [event["end"]["pos"] for event in events(trigger, lambda: len(looks) == 1)] == [200]
    assert ["Kafka does not answer" in told[0], "RuntimeError" in told[1]] == [True, True]
    assert "password" not in "".join(told)


def test_pauses_between_failing_polls_grow_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_provider_mysql_cdc.triggers import watch

    slept: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await real(0)

    trigger = made(None, [SinkError("Kafka does not answer")])

    async def run() -> None:
        task = asyncio.create_task(anext(aiter(trigger.run())))
        while len(slept) < 20:
            await real(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    monkeypatch.setattr(watch.asyncio, "sleep", sleep)
    asyncio.run(run())
    assert slept[:3] == [0.02, 0.04, 0.08] and slept[19] == watch.MAX_PAUSE_S


def test_it_is_stored_with_its_arguments_and_wrong_ones_are_refused() -> None:
    from airflow_provider_mysql_cdc.triggers import watch

    trigger = watch.MySqlBinlogWatchTrigger(mysql_cdc_conn_id="shop", bytes_behind=5, properties={"topic.prefix": "p"})
    path, arguments = trigger.serialize()
    assert path == f"{watch.__name__}.MySqlBinlogWatchTrigger"
    assert watch.MySqlBinlogWatchTrigger(**arguments).serialize() == (path, arguments)
    with pytest.raises(ConfigError, match="below 1"):
        watch.MySqlBinlogWatchTrigger(mysql_cdc_conn_id="shop", bytes_behind=0)
