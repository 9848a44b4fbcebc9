"""``mysql-cdc history trim`` keeps the structures of every position that the source's binlog still has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from kit.private_mysql import Pool, PrivateServer
from kit.records import payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import first_offsets
from airflow_provider_mysql_cdc.commands.program import main

PROPERTIES = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "schema.history.description.statements": "4",
}


@pytest.fixture(scope="module")
def server(pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent() as made:
        yield made


def swap_and_insert(conn: Any, db: str, *ids: int) -> None:
    """Swap two names: without names in the binlog nothing but the history tells which column is which."""
    for i in ids:
        execute(
            conn,
            f"ALTER TABLE `{db}`.t RENAME COLUMN a TO b, RENAME COLUMN b TO a",
            f"INSERT INTO `{db}`.t (id, a, b) VALUES ({i}, {i * 10}, {i * 100})",
        )


def right(*ids: int) -> list[dict[str, int]]:
    return [{"id": i, "a": i * 10, "b": i * 100} for i in ids]


@pytest.mark.req("SCH-03")
def test_the_command_keeps_what_the_offset_can_be_moved_back_to(
    properties: dict[str, str],
    server: PrivateServer,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, path = f"sqlite:///{tmp_path}/offsets.db", tmp_path / "properties.json"
    monkeypatch.setenv("MYSQL_CDC_OFFSET_URL", url)
    own = properties | server.properties() | PROPERTIES
    path.write_text(json.dumps(own))
    pipeline = Pipeline(own, store=SqlOffsetStore(sa.create_engine(url), own["topic.prefix"]))
    admin, topic = make_admin(pipeline.cfg.kafka_settings()), pipeline.cfg.history_topic

    def trim(*more: str) -> tuple[int, str, str]:
        code = main(["history", "trim", "--properties", str(path), *more])
        return code, *capsys.readouterr()

    with server.connect() as conn:
        execute(
            conn, f"CREATE DATABASE `{database}`", f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, a INT, b INT)"
        )
        pipeline.snapshot()
        swap_and_insert(conn, database, 1, 2, 3, 4, 5)
        pipeline.drain()
        execute(conn, "FLUSH BINARY LOGS")
        swap_and_insert(conn, database, 6, 7)
        pipeline.drain()
        code, _, errors = trim("--confirm", own["topic.prefix"])
        assert code == 1
        assert "nothing of the schema history can be deleted [the beginning of the source's binlog" in errors
        execute(conn, f"PURGE BINARY LOGS TO '{rows(conn, 'SHOW BINARY LOG STATUS')[0][0]}'")
    assert trim("--confirm", "other")[0] == 1
    code, out, _ = trim("--dry-run")
    planned = json.loads(out)
    assert code == 0 and planned["kept"] > planned["first"] == 0 and not planned["deleted"]
    assert first_offsets(admin, topic, [0])[0] == 0
    code, out, _ = trim("--confirm", own["topic.prefix"])
    assert json.loads(out) == planned | {"deleted": True}
    assert first_offsets(admin, topic, [0])[0] == planned["kept"]
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="earliest")
    pipeline.drain()
    found = [payload(r.value)["after"] for r in pipeline.records("t")]
    assert found == right(1, 2, 3, 4, 5, 6, 7, 6, 7)
