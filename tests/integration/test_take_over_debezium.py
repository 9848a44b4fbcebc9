"""There and back with real Debeziums: stopped or killed in a transaction, taken over, given back, taken over."""

from __future__ import annotations

import io
import json
import os
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from benchlib.debezium_worker import STREAMING_MARK, archives
from kit.private_mysql import Pool
from kit.records import compacted, payload, require_chain
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from stacklib import maven
from stacklib.connect import Connect
from stacklib.java import Java, find_java
from stacklib.locks import build_once
from stacklib.ports import any_free
from stacklib.settings import LOOPBACK, cache_dir

from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
from airflow_provider_mysql_cdc.cdc.config.read_properties import canonical_name
from airflow_provider_mysql_cdc.cdc.debezium import stopped
from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import offset_in_file
from airflow_provider_mysql_cdc.cdc.errors import RunInProgressError, StateError
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import end_offsets, existing_topics
from airflow_provider_mysql_cdc.commands import debezium as commands
from airflow_provider_mysql_cdc.commands.program import command_line

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_PATIENCE_S = 180.0
_RAPID_MS, _NEVER_MS = 200, 600_000


OLD_VERSION, OLD_CONNECT_VERSION = "1.9.7.Final", "3.2.3"
NEW_NAMES = {
    "topic.prefix": "PREFIX",
    "snapshot.mode": "no_data",
    "schema.history.internal.kafka.bootstrap.servers": "KAFKA",
    "schema.history.internal.kafka.topic": "HISTORY",
}
OLD_NAMES = {
    "database.server.name": "PREFIX",
    "snapshot.mode": "schema_only",
    "database.history.kafka.bootstrap.servers": "KAFKA",
    "database.history.kafka.topic": "HISTORY",
    "event.contract": "1.9",
}


def old_archives(java: Java) -> Path:
    """Return the folder with the archives of Debezium 1.9.7, fetching them once."""
    coordinates = (
        ("io.debezium", "debezium-connector-mysql", OLD_VERSION),
        ("org.apache.kafka", "connect-runtime", OLD_CONNECT_VERSION),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    )

    def fetch(folder: Path) -> None:
        maven.fetch(coordinates, folder, java, "debezium")
        for other_log in folder.glob("slf4j-reload4j-*.jar"):
            other_log.unlink()

    return build_once(
        cache_dir() / f"debezium-mysql-{OLD_VERSION}-connect-{OLD_CONNECT_VERSION}",
        fetch,
        "debezium",
        f"Debezium's MySQL connector {OLD_VERSION}",
    )


class Rig:
    """One prefix, written by a Debezium connector and by a stream in turns."""

    def __init__(
        self,
        properties: dict[str, str],
        root: Any,
        stack: Any,
        database: str,
        folder: Path,
        source: dict[str, str],
        *,
        old: bool,
    ) -> None:
        self.root, self.stack, self.database, self.folder, self.old = root, stack, database, folder, old
        self.prefix, self.offsets = properties["topic.prefix"], folder / "offsets"
        self.history, self._starts = f"{self.prefix}-history", 0
        self.repeated: list[Any] = []
        self.url = ""
        self.json = folder / "connector.json"
        self.connector = {
            "name": self.prefix,
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "tasks.max": "1",
            **source,
            "database.ssl.mode": "disabled",
            "database.allowPublicKeyRetrieval": "true",
            "database.server.id": "5777",
            "database.include.list": database,
            "include.schema.changes": "true",
            "provide.transaction.metadata": "true",
            **(OLD_NAMES if old else NEW_NAMES),
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "3",
            "key.converter": _JSON,
            "value.converter": _JSON,
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
        }
        texts = {"PREFIX": self.prefix, "HISTORY": self.history, "KAFKA": stack.kafka}
        self.connector = {name: texts.get(value, value) for name, value in self.connector.items()}
        self.json.write_text(json.dumps({"name": self.prefix, "config": self.connector}))
        url = f"sqlite:///{folder}/offsets.db"
        self.env = {"MYSQL_CDC_OFFSET_URL": url}
        own = {canonical_name(name): value for name, value in self.connector.items()}
        own["schema.history.internal.kafka.topic"] = f"{self.history}.mysql-cdc"
        self.pipeline = Pipeline(own, store=SqlOffsetStore(sqlalchemy.create_engine(url), self.prefix))

    @contextmanager
    def running(self, flush_ms: int) -> Iterator[Connect]:
        """Run the connector; it streams when this is entered, and is killed at the end if it still runs."""
        self._starts += 1
        self.url = f"http://{LOOPBACK}:{any_free()}"
        folder = self.folder / f"worker{self._starts}"
        folder.mkdir()
        worker = {
            "bootstrap.servers": self.stack.kafka,
            "key.converter": _JSON,
            "value.converter": _JSON,
            "offset.storage.file.filename": str(self.offsets),
            "offset.flush.interval.ms": str(flush_ms),
            "listeners": self.url,
            "plugin.discovery": "only_scan",
            "topic.creation.enable": "true",
        }
        java = find_java()
        found = old_archives(java) if self.old else archives(java)
        with Connect(java, folder, worker, self.connector, archives=found) as connect:
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

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to Kafka Connect, as curl does on the page."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/connectors/{self.prefix}/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def wait_until(self, state: str, tasks: int) -> None:
        limit = time.monotonic() + _PATIENCE_S
        while True:
            status = self.ask("GET", "status")
            running = [task for task in status["tasks"] if task["state"] == state]
            if status["connector"]["state"] == state and len(running) == len(status["tasks"]) == tasks:
                return
            assert time.monotonic() < limit, status
            time.sleep(0.2)

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
def source(request: pytest.FixtureRequest, root: Any, stack: Any, pool: Pool) -> Iterator[tuple[Any, dict[str, str]]]:
    """Yield a root connection to the source, and the properties of a connector that reads it."""
    kind = request.param
    if kind == "stack":
        account = {"database.user": stack.root_user, "database.password": stack.root_password}
        yield root, {"database.hostname": stack.mysql_host, "database.port": str(stack.mysql_port), **account}
        return
    lent = pool.lent("8.0.15") if kind == "8.0.15" else pool.lent(gtid_mode="OFF")
    with lent as server, server.connect() as conn:
        execute(conn, "GRANT ALL ON *.* TO cdc")
        yield conn, server.properties()


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-01")
@pytest.mark.parametrize(
    ("how", "source"),
    [
        ("stopped", "stack"),
        ("killed", "stack"),
        ("stopped", "without GTIDs"),
        ("killed", "8.0.15"),
        ("stopped", "stack"),
    ],
    indirect=["source"],
    ids=["stopped", "killed", "without GTIDs", "1.9.7", "compressed"],
)
def test_there_back_and_there_again(
    properties: dict[str, str],
    source: tuple[Any, dict[str, str]],
    stack: Any,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    how: str,
) -> None:
    root, account = source
    old, compressed = "1.9.7" in request.node.name, "compressed" in request.node.name
    execute(root, "SET SESSION binlog_transaction_compression = ON") if compressed else None
    execute(root, f"CREATE DATABASE IF NOT EXISTS `{database}` CHARACTER SET utf8mb4")
    rig = Rig(properties, root, stack, database, tmp_path, account, old=old)
    for name, value in rig.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stopped, "WATCH_S", 1.0)
    execute(root, *(f"CREATE TABLE `{database}`.{t} (id INT PRIMARY KEY, n INT)" for t in ("t", "u")))
    with rig.running(_RAPID_MS) as connect:
        execute(root, f"INSERT INTO `{database}`.t VALUES (1, 1), (2, 2)")
        rig.wait_for(connect, 2)
        rig.stop(connect)
    begun = rig.records()
    with rig.running(_RAPID_MS if how == "stopped" else _NEVER_MS) as connect:
        many_rows(root, database, 1000, 20_000)
        execute(root, f"ALTER TABLE `{database}`.t ADD c INT", f"INSERT INTO `{database}`.t VALUES (500, 5, 5)")
        rig.wait_for(connect, begun + 800)
        rig.stop(connect) if how == "stopped" else os.kill(connect.pid, signal.SIGKILL)
    offset = offset_in_file(rig.offsets.read_bytes(), rig.prefix, rig.prefix, "offsets")
    assert rig.records() > begun and (how == "killed" or offset.event), (offset, rig.records())
    if compressed:
        with pytest.raises(StateError, match="in the middle of a compressed transaction"):
            rig.command("import-debezium", "--offsets-file", str(rig.offsets), "--ignore-dumps")
    more = ["--trust-offset"] if compressed else []
    document = rig.command("import-debezium", "--offsets-file", str(rig.offsets), "--ignore-dumps", *more)
    assert document["set"] == {"schema.history.internal.kafka.topic": f"{rig.history}.mysql-cdc"}
    rig.pipeline.drain()
    rig.judge()

    # In front, so that a connector that does not know of it takes one column for another.
    execute(root, f"ALTER TABLE `{database}`.u ADD d VARCHAR(9) FIRST")
    execute(root, f"INSERT INTO `{database}`.u VALUES ('x', 900001, 1)")
    execute(root, f"UPDATE `{database}`.t SET n = 7 WHERE id = 1")
    rig.pipeline.drain()
    rig.command("export-debezium", "--offsets-file", str(rig.offsets), "--debezium-history-topic", rig.history)
    before = rig.records()
    with rig.running(_RAPID_MS) as connect:
        execute(root, f"UPDATE `{database}`.u SET n = 8, d = 'y' WHERE id = 900001")
        execute(root, f"DELETE FROM `{database}`.t WHERE id = 2", f"INSERT INTO `{database}`.t VALUES (2, 9, 9)")
        rig.wait_for(connect, before + 4)
        rig.stop(connect)
    rig.judge()

    execute(root, f"UPDATE `{database}`.u SET n = 10 WHERE id = 900001", f"ALTER TABLE `{database}`.u ADD e INT FIRST")
    rig.command("import-debezium", "--offsets-file", str(rig.offsets), "--ignore-dumps")
    rig.pipeline.drain()
    rig.judge()


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-01")
@pytest.mark.parametrize("source", ["stack"], indirect=True)
def test_the_six_steps_of_the_page_and_the_way_back(
    properties: dict[str, str],
    source: tuple[Any, dict[str, str]],
    stack: Any,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What docs/from-debezium.md says, by Kafka Connect's REST interface, in one worker that goes on running."""
    root, account = source
    rig = Rig(properties, root, stack, database, tmp_path, account, old=False)
    for name, value in rig.env.items():
        monkeypatch.setenv(name, value)
    execute(root, *(f"CREATE TABLE `{database}`.{t} (id INT PRIMARY KEY, n INT)" for t in ("t", "u")))
    with rig.running(_RAPID_MS) as connect:
        execute(root, f"INSERT INTO `{database}`.t VALUES (1, 1), (2, 2)")
        rig.wait_for(connect, 2)
        many_rows(root, database, 1000, 5_000)
        rig.wait_for(connect, 500)
        with pytest.raises(RunInProgressError, match="not stopped"):
            rig.command("import-debezium", "--connect-url", rig.url)
        rig.ask("PUT", "stop")
        rig.wait_until("STOPPED", 0)
        rig.repeated = rig.repeated_boundaries()
        document = rig.command("import-debezium", "--connect-url", rig.url)
        assert "is STOPPED" in document["stopped"][0]
        rig.pipeline.drain()
        rig.judge()
        assert [table.findings for table in rig.pipeline.verify().tables] == [{}, {}]
        execute(root, f"UPDATE `{database}`.t SET n = 7 WHERE id = 1")
        rig.pipeline.drain()
        before = rig.records()
        rig.ask("PATCH", "offsets", rig.command("export-debezium"))
        rig.ask("PUT", "resume")
        rig.wait_until("RUNNING", 1)
        execute(root, f"DELETE FROM `{database}`.t WHERE id = 2", f"INSERT INTO `{database}`.u VALUES (9, 9)")
        rig.wait_for(connect, before + 3)
        rig.ask("PUT", "stop")
        rig.wait_until("STOPPED", 0)
        rig.judge()
        execute(root, f"INSERT INTO `{database}`.u VALUES (10, 10)")
        rig.command("import-debezium", "--connect-url", rig.url)
        rig.pipeline.drain()
        rig.judge()


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-01")
@pytest.mark.parametrize("source", ["stack"], indirect=True)
def test_an_offset_inside_an_incremental_snapshot_is_refused_until_the_connector_has_ended_it(
    properties: dict[str, str],
    source: tuple[Any, dict[str, str]],
    stack: Any,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, account = source
    account |= {"signal.data.collection": f"{database}.signals"}
    rig = Rig(properties, root, stack, database, tmp_path, account, old=False)
    for name, value in rig.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stopped, "WATCH_S", 1.0)
    execute(root, *(f"CREATE TABLE `{database}`.{t} (id INT PRIMARY KEY, n INT)" for t in ("t", "u")))
    execute(root, f"CREATE TABLE `{database}`.signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32), data TEXT)")
    many_rows(root, database, 1000, 20_000)
    count = rows(root, f"SELECT COUNT(*) FROM `{database}`.t")[0][0]
    asked = json.dumps({"data-collections": [f"{database}.t"], "type": "incremental"})
    taken = ("import-debezium", "--offsets-file", str(rig.offsets), "--ignore-dumps")
    with rig.running(_RAPID_MS) as connect:
        execute(root, f"INSERT INTO `{database}`.signals VALUES ('s', 'execute-snapshot', '{asked}')")
        rig.wait_for(connect, 2_000)
        rig.stop(connect)
    assert rig.records() < count, "the connector was stopped in its snapshot"
    with pytest.raises(StateError, match=rf"an incremental snapshot of the connector is not over.*{database}\.t"):
        rig.command(*taken)
    with rig.running(_RAPID_MS) as connect:
        rig.wait_for(connect, count)
        execute(root, f"UPDATE `{database}`.t SET n = 8 WHERE id = 1500")
        rig.wait_for(connect, count + 1)
        rig.stop(connect)
    rig.command(*taken)
    execute(root, f"UPDATE `{database}`.t SET n = 9 WHERE id = 1501", f"DELETE FROM `{database}`.t WHERE id = 1502")
    rig.pipeline.drain()
    found = {(v["id"], v["n"]) for v in compacted(rig.pipeline.records("t")).values()}
    assert found == set(rows(root, f"SELECT id, n FROM `{database}`.t"))
    operations = Counter(value["op"] for r in rig.pipeline.records("t") if (value := payload(r.value)) is not None)
    assert operations["u"] == 2 and operations["d"] == 1 and operations["r"] >= count
