"""The offset store in Airflow's asset state: the contract of all stores, on a real metadata database."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, task
from airflow_home import run_dag
from fakes import FakePipeline, connections, install
from kit.store_contract import END, LagPointContract, plan

from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.errors import OffsetConflictError, StateError
from airflow_provider_mysql_cdc.commands.program import main
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.state.asset_store import AssetOffsetStore, MetadataAccessor


@pytest.fixture(scope="module")
def worker(metadata_db: Path) -> Iterator[Any]:
    """Give what a running task has: the accessor of an active asset and the channel to Airflow behind it."""
    from airflow.sdk.execution_time import task_runner

    asset, found = Asset("contract_offsets"), {}
    with DAG("asset_store_contract", schedule=None) as dag:

        @task(inlets=[asset], outlets=[asset])
        def capture(**context: Any) -> None:
            found["accessor"] = context["asset_state_store"][asset]
            found["comms"] = task_runner.SUPERVISOR_COMMS

        capture()
    assert run_dag(dag).state == "success"
    before = getattr(task_runner, "SUPERVISOR_COMMS", None)
    task_runner.SUPERVISOR_COMMS = found["comms"]
    yield found["accessor"]
    task_runner.SUPERVISOR_COMMS = before


class TestAssetOffsetStore(LagPointContract):
    @pytest.fixture
    def make_store(self, worker: Any) -> Callable[[str], OffsetStore]:
        worker.clear()
        return lambda prefix: AssetOffsetStore(worker, prefix)

    def test_the_state_stands_under_one_key_as_json_a_person_can_read(
        self, worker: Any, make_store: Callable[[str], OffsetStore]
    ) -> None:
        make_store("shop").save(StoredState().with_plan(plan()), None)
        value = worker.get("offset/shop")
        assert value["pending"]["end"]["file"] == "binlog.000010"

    def test_a_value_edited_by_hand_into_nonsense_is_named(
        self, worker: Any, make_store: Callable[[str], OffsetStore]
    ) -> None:
        worker.set("offset/shop", {"epoch": "many", "v": 2})
        with pytest.raises(StateError) as caught:
            make_store("shop").load()
        assert "restored from the ledger" in caught.value.remedy


def test_the_operator_s_store_keeps_the_state_from_run_to_run(
    metadata_db: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connections(monkeypatch)
    _, pipeline = install(monkeypatch, tmp_path)
    seen = []

    def settle(self: FakePipeline, cfg: Any, store: OffsetStore, log: Any, spec: Any) -> Any:
        state = store.load()
        seen.append(state)
        store.save(StoredState(epoch=(state.epoch if state else 0) + 1), state)
        return pipeline.outcome

    monkeypatch.setattr(FakePipeline, "settle_offset", settle)
    with DAG("asset_store_runs", schedule=None) as dag:
        MySqlCdcDrainOperator(task_id="drain", kafka_conn_id="kafka_cdc", properties={"topic.prefix": "kept"})
    for _ in range(2):
        assert run_dag(dag).state == "success"
    assert seen[0] is None
    assert (seen[1].epoch, seen[1].revision) == (1, 1)


@pytest.mark.parametrize("offset_conn", [True, False])
def test_before_airflow_3_3_the_offset_needs_a_database_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, offset_conn: bool
) -> None:
    from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
    from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook

    connections(monkeypatch)
    monkeypatch.setenv("AIRFLOW_CONN_OFFSETS", f'{{"conn_type": "sqlite", "host": "{tmp_path}/offsets.db"}}')
    hook = MySqlCdcHook(kafka_conn_id="kafka_cdc")
    cfg = hook.get_config()
    if offset_conn:
        store = hook.get_offset_store(cfg, offset_conn_id="offsets")
        assert isinstance(store, SqlOffsetStore)
        store.save(StoredState().with_plan(plan()), None)
        assert hook.get_offset_store(cfg, offset_conn_id="offsets").load().epoch == 1  # type: ignore[union-attr]
    else:
        with pytest.raises(StateError) as caught:
            hook.get_offset_store(cfg, accessor=None)
        assert "offset_conn_id" in caught.value.remedy


def test_a_person_outside_of_a_task_reads_and_writes_the_same_state(
    worker: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.clear()
    inside, outside = (AssetOffsetStore(found, "shop") for found in (worker, MetadataAccessor("contract_offsets")))
    assert outside.load() is None
    first = inside.save(StoredState().with_plan(plan()), None)
    assert outside.load() == first
    second = outside.save(first.commit(END, 1_700_000_000_000), first)
    assert inside.load() == second
    assert outside.prefixes() == ["shop"]
    assert main(["offsets", "show", "--asset", "contract_offsets", "--topic-prefix", "shp"]) == 1
    assert (
        "nothing is known of topic.prefix=shp" in (err := capsys.readouterr().err) and "it has offsets of shop" in err
    )
    with pytest.raises(OffsetConflictError):
        inside.save(first, first)
    assert main(["offsets", "history", "--asset", "contract_offsets", "--topic-prefix", "shop"]) == 0
    assert capsys.readouterr().out == f"2023-11-14T22:13:20+00:00  epoch 1  {END}\n"


def test_an_asset_that_no_dag_uses_is_no_first_run(worker: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Airflow answers None for it, as for a key that is not there."""
    assert main(["offsets", "show", "--asset", "nobody_s", "--topic-prefix", "shop"]) == 1
    assert "StateError: no DAG uses this asset [asset nobody_s]" in capsys.readouterr().err


def test_values_in_another_backend_are_not_looked_for_in_the_database(
    worker: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__WORKERS__STATE_STORE_BACKEND", "some.where.ObjectBackend")
    assert main(["offsets", "show", "--asset", "contract_offsets", "--topic-prefix", "shop"]) == 1
    assert "state_store_backend = some.where.ObjectBackend" in capsys.readouterr().err


def test_the_command_finds_connections_in_the_metadata_database(
    metadata_db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(Connection(conn_id="kept_offsets", conn_type="sqlite", host=str(tmp_path / "offsets.db")))
    where = ["offsets", "history", "--offset-conn-id", "kept_offsets", "--topic-prefix", "shop"]
    before = dict(os.environ)
    assert main(where) == 0, capsys.readouterr().err
    assert (tmp_path / "offsets.db").exists()
    assert dict(os.environ) == before, "whoever calls it stays what it was"
