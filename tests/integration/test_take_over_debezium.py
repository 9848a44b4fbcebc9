"""There and back with a real Debezium 3.6.1: stopped or killed in a transaction, taken over, given back, taken over."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from benchlib.debezium_worker import STREAMING_MARK, archives
from kit.records import compacted, payload, require_chain
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from stacklib.connect import Connect
from stacklib.java import find_java
from stacklib.ports import any_free
from stacklib.settings import LOOPBACK

from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
from airflow_provider_mysql_cdc.cdc.debezium import stopped
from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import offset_in_file
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import end_offsets, existing_topics
from airflow_provider_mysql_cdc.commands import debezium as commands
from airflow_provider_mysql_cdc.commands.program import command_line

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_PATIENCE_S = 180.0
_RAPID_MS, _NEVER_MS = 200, 600_000


class Rig:
    """One prefix, written by a Debezium connector and by a stream in turns."""

    def __init__(self, properties: dict[str, str], root: Any, stack: Any, database: str, folder: Path) -> None:
        self.root, self.stack, self.database, self.folder = root, stack, database, folder
        self.prefix, self.offsets = properties["topic.prefix"], folder / "offsets"
        self.history, self._starts = f"{self.prefix}-history", 0
        self.repeated: list[Any] = []
        self.json = folder / "connector.json"
        self.connector = {
            "name": self.prefix,
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "tasks.max": "1",
            "database.hostname": stack.mysql_host,
            "database.port": str(stack.mysql_port),
            "database.user": stack.root_user,
            "database.password": stack.root_password,
            "database.ssl.mode": "disabled",
            "database.server.id": "5777",
            "topic.prefix": self.prefix,
            "database.include.list": database,
            "snapshot.mode": "no_data",
            "include.schema.changes": "true",
            "provide.transaction.metadata": "true",
            "schema.history.internal.kafka.bootstrap.servers": stack.kafka,
            "schema.history.internal.kafka.topic": self.history,
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "3",
            "key.converter": _JSON,
            "value.converter": _JSON,
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
        }
        self.json.write_text(json.dumps({"name": self.prefix, "config": self.connector}))
        url = f"sqlite:///{folder}/offsets.db"
        self.env = {"MYSQL_CDC_OFFSET_URL": url}
        own = self.connector | {"schema.history.internal.kafka.topic": f"{self.history}.mysql-cdc"}
        self.pipeline = Pipeline(own, store=SqlOffsetStore(sqlalchemy.create_engine(url), self.prefix))

    @contextmanager
    def running(self, flush_ms: int) -> Iterator[Connect]:
        """Run the connector; it streams when this is entered, and is killed at the end if it still runs."""
        self._starts += 1
        folder = self.folder / f"worker{self._starts}"
        folder.mkdir()
        worker = {
            "bootstrap.servers": self.stack.kafka,
            "key.converter": _JSON,
            "value.converter": _JSON,
            "offset.storage.file.filename": str(self.offsets),
            "offset.flush.interval.ms": str(flush_ms),
            "listeners": f"http://{LOOPBACK}:{any_free()}",
            "plugin.discovery": "only_scan",
            "topic.creation.enable": "true",
        }
        java = find_java()
        with Connect(java, folder, worker, self.connector, archives=archives(java)) as connect:
            connect.wait(
                lambda: STREAMING_MARK in connect.log.read_text(errors="replace"), "Debezium to stream", _PATIENCE_S
            )
            yield connect
        self.repeated = self.repeated_boundaries()

    def records(self) -> int:
        """Return the number of offsets in the topics of tables."""
        admin = make_admin(self.pipeline.cfg.kafka_settings())
        topics = [f"{self.prefix}.{self.database}.{name}" for name in ("t", "u")]
        infos = existing_topics(admin, topics)
        return sum(
            end
            for topic, info in infos.items()
            for _, end in end_offsets(admin, topic, range(info.partitions)).values()
        )

    def wait_for(self, connect: Connect, count: int) -> None:
        limit = time.monotonic() + _PATIENCE_S
        while self.records() < count:
            assert connect.trouble() is None and time.monotonic() < limit, (count, self.records(), connect.trouble())
            time.sleep(0.01)

    def stop(self, connect: Connect) -> None:
        connect.ask_to_end()
        limit = time.monotonic() + 60
        while not connect.ended:
            assert time.monotonic() < limit
            time.sleep(0.05)

    def command(self, name: str, *more: str) -> Any:
        arguments = command_line().parse_args([name, "--properties", str(self.json), "--confirm", self.prefix, *more])
        out = io.StringIO()
        run = {"import-debezium": commands.run_import, "export-debezium": commands.run_export}[name]
        assert run(arguments, out) == 0
        return json.loads(out.getvalue())

    def judge(self) -> None:
        """Fail unless each change is there once, each key in order, and the topics equal the tables."""
        for table in ("t", "u"):
            records = self.pipeline.records(table)
            changes = Counter(
                (source["gtid"], source["pos"], source.get("row"), value["op"], json.dumps(payload(r.key)))
                for r in records
                if (value := payload(r.value)) is not None
                for source in [value["source"]]
            )
            assert [c for c, n in changes.items() if n > 1] == [], table
            deletes = sum(n for (_, _, _, op, _), n in changes.items() if op == "d")
            assert deletes == sum(r.value is None for r in records)
            for partition in range(3):
                require_chain([r for r in records if r.partition == partition])
            found = {(v["id"], v["n"]) for v in compacted(records).values()}
            assert found == set(rows(self.root, f"SELECT id, n FROM `{self.database}`.{table}")), table
        changed = [payload(r.value) for r in self.pipeline.read(self.prefix)]
        statements = Counter(
            (c["source"]["pos"], c["ddl"]) for c in changed if c["source"]["snapshot"] in (None, "false")
        )
        assert [s for s, n in statements.items() if n > 1] == []
        assert self.repeated_boundaries() == self.repeated

    def repeated_boundaries(self) -> list[Any]:
        """Return the BEGIN and END records that are there more than once: a connector that starts again repeats END."""
        bounds = Counter((b["status"], b["id"]) for b in self.boundaries())
        return [bound for bound, n in bounds.items() if n > 1]

    def boundaries(self) -> list[Any]:
        return [payload(record.value) for record in self.pipeline.read(f"{self.prefix}.transaction")]


def many_rows(root: Any, database: str, first: int, count: int) -> None:
    values = [f"({n}, {n})" for n in range(first, first + count)]
    inserts = [f"INSERT INTO `{database}`.t VALUES {', '.join(values[i : i + 2000])}" for i in range(0, count, 2000)]
    half = first + count // 2
    execute(
        root,
        "BEGIN",
        *inserts,
        f"INSERT INTO `{database}`.u SELECT id, n FROM `{database}`.t WHERE id >= {half} AND id < {half + 500}",
        f"UPDATE `{database}`.t SET id = id + 5000000 WHERE id BETWEEN {first} AND {first + 50}",
        f"DELETE FROM `{database}`.t WHERE id BETWEEN {first + 60} AND {first + 90}",
        "COMMIT",
    )


@pytest.fixture
def rig(
    properties: dict[str, str], root: Any, stack: Any, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Rig:
    made = Rig(properties, root, stack, database, tmp_path)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stopped, "WATCH_S", 1.0)
    execute(root, *(f"CREATE TABLE `{database}`.{t} (id INT PRIMARY KEY, n INT)" for t in ("t", "u")))
    with made.running(_RAPID_MS) as connect:
        execute(root, f"INSERT INTO `{database}`.t VALUES (1, 1), (2, 2)")
        made.wait_for(connect, 2)
        made.stop(connect)
    return made


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-01")
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_there_back_and_there_again(rig: Rig, root: Any, database: str, how: str) -> None:
    begun = rig.records()
    with rig.running(_RAPID_MS if how == "stopped" else _NEVER_MS) as connect:
        many_rows(root, database, 1000, 20_000)
        execute(root, f"ALTER TABLE `{database}`.t ADD c INT", f"INSERT INTO `{database}`.t VALUES (500, 5, 5)")
        rig.wait_for(connect, begun + 800)
        rig.stop(connect) if how == "stopped" else os.kill(connect.pid, signal.SIGKILL)
    offset = offset_in_file(rig.offsets.read_bytes(), rig.prefix, rig.prefix, "offsets")
    assert rig.records() > begun and (how == "killed" or offset.event), (offset, rig.records())
    document = rig.command("import-debezium", "--offsets-file", str(rig.offsets), "--ignore-dumps")
    assert document["set"] == {"schema.history.internal.kafka.topic": f"{rig.history}.mysql-cdc"}
    rig.pipeline.drain()
    rig.judge()

    execute(root, f"ALTER TABLE `{database}`.u ADD d INT", f"INSERT INTO `{database}`.u VALUES (900001, 1, 1)")
    execute(root, f"UPDATE `{database}`.t SET n = 7 WHERE id = 1")
    rig.pipeline.drain()
    rig.command("export-debezium", "--offsets-file", str(rig.offsets), "--debezium-history-topic", rig.history)
    before = rig.records()
    with rig.running(_RAPID_MS) as connect:
        execute(root, f"UPDATE `{database}`.u SET n = 8, d = 8 WHERE id = 900001")
        execute(root, f"DELETE FROM `{database}`.t WHERE id = 2", f"INSERT INTO `{database}`.t VALUES (2, 9, 9)")
        rig.wait_for(connect, before + 4)
        rig.stop(connect)
    rig.judge()

    execute(root, f"UPDATE `{database}`.t SET n = 10 WHERE id = 2")
    rig.command("import-debezium", "--offsets-file", str(rig.offsets), "--ignore-dumps")
    rig.pipeline.drain()
    rig.judge()
