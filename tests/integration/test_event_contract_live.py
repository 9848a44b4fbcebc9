"""What only real servers can prove of topics, transactions, zones, large values and the manuals' server settings."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from kit.private_mysql import PrivateServer, running_server
from kit.records import payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import MemoryOffsetStore

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.preflight import preflight, read_facts
from airflow_provider_mysql_cdc.cdc.errors import (
    ConfigError,
    LedgerMismatchError,
    LedgerMissingError,
    NoOffsetError,
    RecordTooLargeError,
    SchemaError,
)

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
MEGABYTE = 1 << 20
PROPERTIES = PLAIN


def tables(root: Any, database: str, *names: str) -> None:
    for name in names:
        execute(root, f"CREATE TABLE `{database}`.{name} (id INT PRIMARY KEY, v INT)")
        execute(root, f"INSERT INTO `{database}`.{name} VALUES (1, 1)")


# -- topics and transactions ------------------------------------------------------------------------------------------


@pytest.mark.req("TOPIC-01", "TOPIC-03", "TOPIC-11", "TOPIC-12", "EVT-03")
def test_each_table_gets_a_topic_of_its_own_made_when_it_is_missing(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    pipeline.properties["topic.creation.default.partitions"] = "2"
    prefix = pipeline.properties["topic.prefix"]
    tables(root, database, "a", "b")
    assert pipeline.topics() == {}
    pipeline.snapshot()
    tables(root, database, "born_later")
    execute(
        root,
        f"UPDATE `{database}`.a SET v = 2",
        f"DELETE FROM `{database}`.b",
        f"INSERT INTO `{database}`.b VALUES (2, 2)",
    )
    pipeline.drain()
    names = ("a", "b", "born_later")
    assert pipeline.topics() == {f"{prefix}.{database}.{name}": 2 for name in names}
    events = {name: [(payload(r.key), payload(r.value)) for r in pipeline.records(name)] for name in names}
    for name, found in events.items():
        assert all(key is not None for key, _ in found)
        sources = {(v["source"]["name"], v["source"]["db"], v["source"]["table"]) for _, v in found if v}
        assert sources == {(prefix, database, name)}
    operations = {name: sorted(v["op"] if v else "" for _, v in found) for name, found in events.items()}
    assert operations == {"a": ["r", "u"], "b": ["", "c", "d", "r"], "born_later": ["c"]}


@pytest.mark.req("TXN-08")
def test_only_transactions_since_metadata_were_asked_for_have_them(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    tables(root, database, "a")
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.a VALUES (2, 2)")
    pipeline.drain()
    topic = f"{pipeline.properties['topic.prefix']}.transaction"
    assert topic not in pipeline.topics()
    pipeline.properties["provide.transaction.metadata"] = "true"
    execute(root, f"INSERT INTO `{database}`.a VALUES (3, 3)")
    pipeline.drain()
    blocks = {(v := payload(r.value))["after"]["id"]: v["transaction"] for r in pipeline.records("a")}
    assert blocks[1] is None and blocks[2] is None
    ids = [payload(r.key)["id"] for r in pipeline.read(topic) if payload(r.value).get("event_count") == 1]
    assert ids == [blocks[3]["id"]]


@pytest.mark.req("TOPIC-08", "SCH-15")
def test_a_changed_prefix_never_goes_on_in_silence(pipeline: Pipeline, root: Any, database: str) -> None:
    own = {"ledger.topic": f"{database}_ledger", "schema.history.internal.kafka.topic": f"{database}_history"}
    pipeline.properties |= own
    before = pipeline.properties["topic.prefix"]
    tables(root, database, "a")
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.a VALUES (2, 2)")

    def renamed(store: Any, *left_out: str) -> Pipeline:
        kept = {k: v for k, v in pipeline.properties.items() if k not in left_out}
        return Pipeline(kept | {"topic.prefix": before + "_new"}, store)

    # An offset of the old prefix, and nothing in Kafka under the new one.
    with pytest.raises(LedgerMissingError):
        renamed(pipeline.store, *own).drain()
    with pytest.raises(NoOffsetError):
        renamed(MemoryOffsetStore(), *own).drain()
    # The same ledger: neither a drain nor a snapshot goes on from another prefix's offset.
    for run in ("drain", "snapshot"):
        with pytest.raises(LedgerMismatchError, match=rf"belongs to topic\.prefix={before}, not to") as caught:
            getattr(renamed(MemoryOffsetStore()), run)()
        assert f"set topic.prefix back to {before}" in caught.value.remedy and not caught.value.can_retry
    # The same history, a ledger of its own.
    with pytest.raises(SchemaError, match=rf"belongs to topic\.prefix={before}, not to"):
        renamed(MemoryOffsetStore(), "ledger.topic").snapshot()
    never = renamed(MemoryOffsetStore(), "ledger.topic")
    never.properties["snapshot.mode"] = "never"
    with pytest.raises(SchemaError, match=rf"belongs to topic\.prefix={before}, not to"):
        never.drain()
    assert never.topics() == {}
    # Nothing was harmed: under its own name the stream goes on.
    pipeline.drain()
    assert [payload(r.value)["after"]["id"] for r in pipeline.records("a")] == [1, 2]


# -- large values -----------------------------------------------------------------------------------------------------


@pytest.mark.req("TYPE-24", "TYPE-25", "TYPE-32")
def test_a_large_value_comes_whole_where_kafka_takes_it_and_stops_by_name_where_not(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    big = {
        "kafka.message.max.bytes": str(64 * MEGABYTE),
        "topic.creation.default.max.message.bytes": str(64 * MEGABYTE),
    }
    pipeline.properties |= big
    execute(
        root,
        f"CREATE TABLE `{database}`.doc (id INT PRIMARY KEY, b LONGBLOB, t LONGTEXT)",
        f"CREATE TABLE `{database}`.small (id INT PRIMARY KEY, b LONGBLOB)",
        f"INSERT INTO `{database}`.doc VALUES (1, REPEAT(X'00ff10', {6 * MEGABYTE}), 'x')",
    )
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.doc VALUES (2, REPEAT(X'00ff10', {6 * MEGABYTE}), REPEAT('ü', 4000000))")
    pipeline.drain()
    first, second = (payload(r.value)["after"] for r in pipeline.records("doc"))
    assert base64.b64decode(first["b"]) == base64.b64decode(second["b"]) == b"\x00\xff\x10" * (6 * MEGABYTE)
    assert second["t"] == "ü" * 4_000_000
    for name in big:
        del pipeline.properties[name]
    execute(root, f"INSERT INTO `{database}`.small VALUES (1, REPEAT('x', {2 * MEGABYTE}))")
    with pytest.raises(RecordTooLargeError) as caught:
        pipeline.drain()
    assert pipeline.table_topic("small") in caught.value.where and "message.max.bytes" in caught.value.remedy
    pipeline.properties |= big
    pipeline.drain()
    assert [len(payload(r.value)["after"]["b"]) for r in pipeline.records("small")] == [(2 * MEGABYTE + 2) // 3 * 4]


# -- heartbeats -------------------------------------------------------------------------------------------------------


@pytest.mark.req("EX-44", "STRM-30", "CFG-58")
def test_the_manuals_heartbeat_statement(pipeline: Pipeline, root: Any, database: str) -> None:
    statement = "INSERT INTO gtid_history_table (select * from mysql.gtid_executed)"
    pipeline.properties |= {"heartbeat.interval.ms": "1000", "heartbeat.action.query": statement}
    tables(root, database, "a")
    execute(
        root,
        f"CREATE TABLE `{database}`.gtid_history_table SELECT * FROM mysql.gtid_executed WHERE 1 = 0",
        f"GRANT INSERT ON `{database}`.gtid_history_table TO cdc@'%'",
    )
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.a VALUES (2, 2)")
    with pytest.raises(ConfigError, match=r"heartbeat\.action\.query cannot be run") as caught:
        pipeline.drain()
    assert "No database selected" in caught.value.why and "name tables with their database" in caught.value.remedy
    pipeline.settle()
    assert len(pipeline.records("a")) == 2, "the batch before it is complete"
    pipeline.properties["heartbeat.action.query"] = statement.replace("gtid_history", f"`{database}`.gtid_history")
    execute(root, f"INSERT INTO `{database}`.a VALUES (3, 3)")
    pipeline.drain()
    assert len(pipeline.records("a")) == 3
    assert rows(root, f"SELECT COUNT(*) > 0 FROM `{database}`.gtid_history_table") == [(1,)]


# -- a server set up as the manuals say, in a time zone of its own -----------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    settings = {
        "server-id": "223344",
        "log_bin": "mysql-bin",
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "expire_logs_days": "10",
        "default_time_zone": "+05:30",
    }
    with running_server(tmp_path_factory, "8.0.15", settings) as made:
        yield made


@pytest.fixture
def conn(server: PrivateServer, database: str) -> Iterator[Any]:
    with server.connect() as made:
        execute(made, f"CREATE DATABASE `{database}`")
        yield made


@pytest.fixture
def manual(properties: dict[str, str], server: PrivateServer, conn: Any, database: str) -> Pipeline:
    return Pipeline(properties | PLAIN | server.properties())


@pytest.mark.req(
    "EX-46",
    "EX-47",
    "EX-48",
    "EX-49",
    "SETUP-01",
    "SETUP-09",
    "SETUP-12",
    "SETUP-13",
    "SETUP-15",
    "SETUP-22",
    "CFG-116",
)
def test_server_settings_checks_and_account_of_the_manuals(
    manual: Pipeline, server: PrivateServer, conn: Any, database: str, unique: str
) -> None:
    grants = "GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%'"
    execute(conn, f"CREATE USER '{unique}'@'%' IDENTIFIED BY 'password'")
    with pytest.raises(pymysql.MySQLError, match="syntax"):
        execute(conn, grants.format(user=unique) + " IDENTIFIED BY 'password'")  # the manuals' form; gone since 8.0
    execute(conn, grants.format(user=unique), "FLUSH PRIVILEGES")
    manual.properties |= {"database.user": unique, "database.password": "password"}
    with connect(manual.cfg.connection_settings()) as ours:
        facts = read_facts(ours, "here")
        # The manuals leave the first setting at its default; this server is in India.
        found = [finding.what for finding in preflight(ours, manual.cfg, snapshot=True)]
        assert found == ["binlog_row_metadata is MINIMAL", "the server's time zone is +05:30"]
    manuals_query = (
        'SELECT variable_value as "BINARY LOGGING STATUS (log-bin) ::" FROM performance_schema.global_variables '
        "WHERE variable_name='log_bin'"
    )
    assert rows(conn, manuals_query) == [("ON",)] and facts.is_on("log_bin")
    gtid = dict(rows(conn, "show global variables like '%GTID%'"))
    assert (gtid["enforce_gtid_consistency"], gtid["gtid_mode"]) == ("ON", "ON") and facts.is_on("gtid_mode")
    assert (facts.variables["server_id"], facts.variables["expire_logs_days"]) == ("223344", "10")
    tables(conn, database, "a")
    assert manual.snapshot().complete
    execute(conn, f"INSERT INTO `{database}`.a VALUES (2, 2)")
    manual.drain()
    last = payload(manual.records("a")[-1].value)["source"]
    assert (last["server_id"], last["file"].partition(".")[0]) == (223344, "mysql-bin")


@pytest.mark.req("TYPE-50", "TYPE-51", "TYPE-52")
@pytest.mark.parametrize(
    ("process", "driver"), [("UTC", {}), ("America/New_York", {"database.connectionTimeZone": "Asia/Tokyo"})]
)
@pytest.mark.exhaustive(but="New_York")
def test_zones_of_process_server_session_and_driver_do_not_matter(
    manual: Pipeline, conn: Any, database: str, process: str, driver: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TIMESTAMP is UTC and DATETIME the digits as stored, from a server whose zone is +05:30."""
    monkeypatch.setenv("TZ", process)
    time.tzset()
    try:
        manual.properties |= driver
        execute(
            conn,
            f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, ts TIMESTAMP NOT NULL DEFAULT '2020-01-01 05:30:00', "
            "dt DATETIME, t TIME, d DATE)",
        )
        values = "'2024-03-10 08:00:00', '2024-03-10 02:30:00', '02:30:00', '2024-03-10'"
        execute(conn, f"INSERT INTO `{database}`.t VALUES (1, {values})")
        manual.snapshot()
        execute(conn, f"INSERT INTO `{database}`.t VALUES (2, {values})")
        execute(conn, "SET SESSION time_zone = '-08:00'")
        execute(conn, f"INSERT INTO `{database}`.t VALUES (3, {values})")
        manual.drain()
    finally:
        monkeypatch.undo()
        time.tzset()
    found = [payload(r.value) for r in manual.records("t")]
    stored = {"dt": 1_710_037_800_000, "t": 9_000_000_000, "d": 19_792}
    assert [v["after"] for v in found] == [
        {"id": 1, "ts": "2024-03-10T02:30:00Z", **stored},
        {"id": 2, "ts": "2024-03-10T02:30:00Z", **stored},
        {"id": 3, "ts": "2024-03-10T16:00:00Z", **stored},
    ]
    assert all(abs(v["source"]["ts_ms"] - time.time() * 1000) < 600_000 for v in found)
