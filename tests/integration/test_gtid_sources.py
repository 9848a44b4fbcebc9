"""Transactions of servers that do not count (``gtid.source.*``): their rows, and a failover that they would stop."""

from __future__ import annotations

from typing import Any

import pytest
from kit.failover_rig import committed, follow, insert, refused
from kit.records import compacted, payload
from kit.replication import Pair
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

FLAT = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
FOREIGN = "aaaaaaaa-0000-0000-0000-000000000001"
EXCLUDED = {"gtid.source.excludes": "AAAAAAAA-.*"}


@pytest.fixture
def pair(servers: Pair, database: str) -> Pair:
    """Return a primary with a table of one row, and its replica."""
    return servers.begin(
        f"CREATE DATABASE `{database}`",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(20))",
        f"INSERT INTO `{database}`.t VALUES (1, 'a')",
    )


def stream(pair: Pair, properties: dict[str, str], **more: str) -> Pipeline:
    """Return a stream with a snapshot of the primary."""
    made = Pipeline(properties | pair.primary.server.properties() | FLAT | more)
    made.snapshot()
    return made


def foreign(root: Any, gtid: str, statement: str) -> None:
    """Execute a statement as another server's transaction."""
    execute(root, f"SET gtid_next='{FOREIGN}:{gtid}'", statement, "SET gtid_next='AUTOMATIC'")


def row(db: str, number: int) -> str:
    return f"INSERT INTO `{db}`.t (id, v) VALUES ({number}, 'foreign')"


def ids(pipeline: Pipeline) -> list[int]:
    events = [payload(record.value) for record in pipeline.records("t") if record.value]
    return [event["after"]["id"] for event in events if event["op"] == "c"]


def lines_about(pipeline: Pipeline, text: str) -> list[str]:
    return [line for line in pipeline.lines if text in line]


@pytest.mark.req("STRM-07", "CFG-36")
@pytest.mark.parametrize("written", ["true", "false"])
@pytest.mark.exhaustive(but="true")
def test_rows_of_servers_that_do_not_count_are_not_written_and_their_statements_are_followed(
    pair: Pair, properties: dict[str, str], database: str, written: str
) -> None:
    metadata = {"provide.transaction.metadata": "true", "gtid.source.filter.dml.events": written}
    pipeline = stream(pair, properties, **EXCLUDED, **metadata)
    root = pair.primary.root
    insert(root, database, 10)
    foreign(root, "1", row(database, 11))
    foreign(root, "2", f"ALTER TABLE `{database}`.t ADD w INT DEFAULT 5 FIRST")
    foreign(root, "red:1", row(database, 12))
    execute(root, "SET binlog_transaction_compression=ON")
    foreign(root, "red:2", row(database, 13))
    insert(root, database, 14)
    execute(root, "SET binlog_transaction_compression=OFF")
    pipeline.drain()
    assert ids(pipeline) == ([10, 14] if written == "true" else [10, 11, 12, 13, 14])
    assert payload(pipeline.records("t")[-1].value)["after"] == {"w": 5, "id": 14, "v": "row 14"}
    assert len(lines_about(pipeline, f"of server {FOREIGN} are not written")) == (written == "true")
    ends = [payload(r.value) for r in pipeline.read(f"{pipeline.properties['topic.prefix']}.transaction")]
    counts = {e["id"]: e["event_count"] for e in ends if e["status"] == "END"}
    assert {counts[f"{FOREIGN}:{n}"] for n in ("1", "red:1", "red:2")} == {0 if written == "true" else 1}


def test_without_transaction_metadata_rows_that_do_not_count_are_left_out_too(
    pair: Pair, properties: dict[str, str], database: str
) -> None:
    pipeline = stream(pair, properties, **{"gtid.source.includes": pair.primary.uuid})
    insert(pair.primary.root, database, 10)
    foreign(pair.primary.root, "1", row(database, 11))
    insert(pair.primary.root, database, 12)
    pipeline.drain()
    assert ids(pipeline) == [10, 12]


@pytest.mark.exhaustive
@pytest.mark.req("SETUP-32", "STRM-07")
def test_transactions_that_do_not_count_do_not_stop_a_failover(
    pair: Pair, properties: dict[str, str], database: str
) -> None:
    """Each server has some that the other lacks: before, between and behind those that count."""
    pipeline = stream(pair, properties)
    pipeline.drain()
    old, new = pair.primary.root, pair.replica.root
    execute(new, "SET GLOBAL super_read_only=OFF")
    foreign(new, "7", row(database, 70))
    insert(old, database, 20)
    pair.catch_up()
    pair.replica.promote()
    foreign(old, "8", row(database, 80))
    foreign(old, "9", row(database, 90))
    pipeline.properties.update(EXCLUDED)
    pipeline.drain()
    assert ids(pipeline) == [20]
    foreign(new, "9", row(database, 90))
    insert(new, database, 30)
    foreign(new, "10", row(database, 100))
    pipeline.properties.update(pair.replica.server.properties())
    pipeline.properties.pop("gtid.source.excludes")
    assert f"gtid_executed lacks {FOREIGN}:8" in refused(pipeline).why
    pipeline.properties.update(EXCLUDED)
    pipeline.drain()
    assert ids(pipeline) == [20, 30]
    (line,) = lines_about(pipeline, "transactions that do not count")
    assert f"lacks {FOREIGN}:8;" in line and f"before the place, {FOREIGN}:7" in line
    insert(new, database, 31)
    pipeline.drain()
    assert ids(pipeline) == [20, 30, 31]
    assert f"{FOREIGN}:7:9-10" in (committed(pipeline).gtids or "")


def test_transactions_that_do_not_count_may_come_again_behind_those_that_do(
    pair: Pair, properties: dict[str, str], database: str
) -> None:
    pipeline = stream(pair, properties, **EXCLUDED)
    pair.replica.promote()
    foreign(pair.primary.root, "1", row(database, 50))
    pipeline.drain()
    insert(pair.replica.root, database, 40)
    foreign(pair.replica.root, "1", row(database, 50))
    insert(pair.replica.root, database, 41)
    pipeline.properties.update(pair.replica.server.properties())
    pipeline.drain()
    assert ids(pipeline) == [40, 41]


@pytest.mark.parametrize("repeated", [False, True], ids=["before the place", "behind the place"])
@pytest.mark.exhaustive(but="behind")
def test_statements_of_transactions_that_do_not_count_stop_a_failover_if_their_order_differs(
    pair: Pair, properties: dict[str, str], database: str, repeated: bool
) -> None:
    pipeline = stream(pair, properties, **EXCLUDED)
    statement = f"ALTER TABLE `{database}`.t ADD w INT DEFAULT 5"
    new = pair.replica.root
    if repeated:
        pair.replica.promote()
        foreign(pair.primary.root, "1", statement)
        insert(new, database, 60)
        foreign(new, "1", statement)
    else:
        execute(new, "SET GLOBAL super_read_only=OFF")
        foreign(new, "1", statement)
        insert(pair.primary.root, database, 60)
        pair.catch_up()
    pipeline.drain()
    before = dict(pipeline.properties)
    pipeline.properties.update(pair.replica.server.properties())
    error = refused(pipeline)
    assert not error.can_retry and "stands there in another order" in error.why and "ADD w INT" in error.why
    pipeline.properties.update(before)
    insert(pair.primary.root, database, 61)
    pipeline.drain()
    assert ids(pipeline)[-1] == 61
    pipeline.properties.update(pair.replica.server.properties())
    pair.primary, pair.replica = pair.replica, pair.primary


def test_statements_about_databases_that_are_not_captured_do_not_stop_a_failover(
    pair: Pair, properties: dict[str, str], database: str
) -> None:
    """They stand in another order on the way there, and on the way back."""
    pipeline = stream(pair, properties, **EXCLUDED)
    old, new = pair.primary.root, pair.replica.root
    execute(new, "SET GLOBAL super_read_only=OFF")
    for number, statement in enumerate(("CREATE", "ALTER", "DROP"), 1):
        more = " CHARACTER SET latin1" * (statement != "DROP")
        foreign(new, str(number), f"{statement} DATABASE `{database}_other`{more}")
    insert(old, database, 60)
    pair.catch_up()
    pipeline.drain()
    pair.replica.promote()
    pipeline.properties.update(pair.replica.server.properties())
    insert(new, database, 61)
    pipeline.drain()
    assert ids(pipeline) == [60, 61] and committed(pipeline).server_uuid == pair.replica.uuid
    pair.primary.follow(pair.replica)
    pair.primary, pair.replica = pair.replica, pair.primary
    pair.catch_up()
    pipeline.properties.update(pair.replica.server.properties())
    pipeline.drain()
    assert committed(pipeline).server_uuid == pair.replica.uuid
    assert len(lines_about(pipeline, "goes on at server")) == 2


def test_structures_are_compared_where_a_statement_may_be_missing(
    pair: Pair, properties: dict[str, str], database: str
) -> None:
    pipeline = stream(pair, properties, **EXCLUDED)
    pair.replica.promote()
    foreign(pair.primary.root, "1", f"ALTER TABLE `{database}`.t ADD w INT DEFAULT 5 FIRST")
    pipeline.drain()
    pipeline.properties.update(pair.replica.server.properties())
    pipeline.drain()
    assert lines_about(pipeline, f"the structure of {database}.t in the schema history differs from the server's")
    insert(pair.replica.root, database, 90)
    pipeline.drain()
    assert payload(pipeline.records("t")[-1].value)["after"] == {"id": 90, "v": "row 90"}


def test_a_stream_that_does_not_ask_for_gtids_stays_at_its_server(
    pair: Pair, properties: dict[str, str], database: str
) -> None:
    pipeline = stream(pair, properties, **{"gtid.ignore.on.recovery": "true"})
    insert(pair.primary.root, database, 10)
    pipeline.drain()
    pair.switch()
    follow(pipeline, pair)
    assert "gtid.ignore.on.recovery=true" in refused(pipeline).why
    pipeline.properties["gtid.ignore.on.recovery"] = "false"
    insert(pair.primary.root, database, 11)
    pipeline.drain()
    have = {r["id"]: r["v"] for r in compacted(pipeline.records("t")).values() if r}
    assert have == dict(rows(pair.primary.root, f"SELECT id, v FROM `{database}`.t"))
