"""A drain behind transforms: records that are dropped, routed or unwrapped disturb no counting of events."""

from __future__ import annotations

import json
import random
import struct
import time
from typing import Any

import pytest
from kit.binlog_bytes import Dump
from kit.cases import for_each
from kit.chain_rig import CONNECT, DEBEZIUM, transforms
from kit.plain_drain import KINDS, MAP, OTHER_MAPS, drained, state_of
from kit.transaction_bytes import begin_body, gtid_body, map_body, rows_body

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.drain import table_route
from airflow_provider_mysql_cdc.cdc.errors import TransformError
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition

pytestmark = pytest.mark.quick
MATCHES = f"{CONNECT}predicates.TopicNameMatches"
UNWRAP = {"type": f"{DEBEZIUM}ExtractNewRecordState", "add.fields": "op", "delete.tombstone.handling.mode": "drop"}
CHAINS = {
    "unwrap": transforms(unwrap=UNWRAP),
    "drops a table, renames the other": {
        **transforms(
            filter={"type": f"{CONNECT}Filter", "predicate": "other"},
            unwrap=UNWRAP,
            route={"type": f"{CONNECT}RegexRouter", "regex": r"p\.d\.(.*)", "replacement": "p.flat.$1"},
        ),
        "predicates": "other",
        "predicates.other.type": MATCHES,
        "predicates.other.pattern": r"p\.d\.o",
    },
    "drops everything": {
        **transforms(filter={"type": f"{CONNECT}Filter", "predicate": "all"}),
        "predicates": "all",
        "predicates.all.type": MATCHES,
        "predicates.all.pattern": ".*",
    },
    "counts transactions": {
        **transforms(hoist={"type": f"{CONNECT}HoistField$Value", "field": "event"}),
        "provide.transaction.metadata": "true",
    },
}


def sent(draw: random.Random) -> Dump:
    """Send transactions of several row events of two tables."""
    dump = Dump().begin()
    for number in range(1, 20):
        dump.add(c.GTID_LOG_EVENT, gtid_body(number)).add(c.QUERY_EVENT, begin_body())
        for _ in range(draw.randint(1, 6)):
            table, kind = draw.randint(1, 2), draw.choice(KINDS)
            images = 2 if kind == c.UPDATE_ROWS_EVENT_V2 else 1
            rows = b"".join(
                (b"\0" + struct.pack("<ii", key, draw.getrandbits(8))) * images for key in range(draw.randint(1, 3))
            )
            dump.add(c.TABLE_MAP_EVENT, map_body(table, (MAP, OTHER_MAPS[0])[table - 1]))
            dump.add(kind, rows_body(table, kind, 2, rows))
        dump.add(c.XID_EVENT, bytes(8))
    return dump


def split(noted: list[Any]) -> tuple[list[Any], list[tuple[int, dict[str, Any]]]]:
    """Return the records for consumers without times, and each marker with the number of records before it."""
    records: list[Any] = []
    markers = []
    for (topic, key, value, partition, *_), _ in noted:
        if topic != "ledger.p":
            event = json.loads(value) if value else None
            records.append((topic, key, json.dumps(without_times(event)), partition))
        elif b'"reached"' in value:
            markers.append((len(records), json.loads(value)))
    return records, markers


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(v) for name, v in value.items() if not name.startswith("ts_")}
    return [without_times(item) for item in value] if isinstance(value, list) else value


@pytest.mark.req("FAULT-03", "TOPIC-05")
@for_each("chain", sorted(CHAINS), ids=str)
def test_a_writer_goes_on_behind_each_marker_without_loss_or_repetition(
    monkeypatch: pytest.MonkeyPatch, chain: str
) -> None:
    for seed in range(2):
        dump = sent(random.Random(seed))
        whole, end, writer = drained(
            monkeypatch, dump, [dump.data], plainly=seed == 0, **{"commit.bytes": "1024"}, **CHAINS[chain]
        )
        assert "Error" not in end, end
        records, markers = split(whole)
        assert bool(records) == (chain != "drops everything")
        named = {topic: sum(record[0] == topic for record in records) for topic, *_ in records}
        assert writer.output.counts.by_topic == named == markers[-1][1]["counts"]
        for before, marker in markers[:-1]:
            resume = ResumePosition.from_json(marker["reached"])
            again, end, _ = drained(
                monkeypatch,
                dump,
                [dump.data],
                plainly=seed == 0,
                resume=resume,
                **{"commit.bytes": "1024"},
                **CHAINS[chain],
            )
            assert "Error" not in end, end
            assert split(again)[0] == records[before:], (seed, resume)
        assert len(markers) > 2 or chain == "drops everything"


UNWRAPPED = {
    "tombstone": {},
    "rewrite-with-tombstone": {"add.fields": "op,source.ts_ms,gtid,thread,pos,file,ts_ns,lsn"},
    "delete-to-tombstone": {"add.headers": "op,source.pos,gtid"},
    "rewrite": {"add.fields": "table,ts_ms", "add.headers": "op"},
    "drop": {"add.fields": "source.ts_us"},
    # Of the other table events stay as they are.
    "tombstone of one": {"predicate": "one"},
}


@pytest.mark.req("TOPIC-05")
@for_each("mode", sorted(UNWRAPPED))
def test_unwrapped_rows_are_those_of_the_chain_however_transactions_are_read(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_795_246_498_881_590_461)
    chain = transforms(
        unwrap={
            "type": f"{DEBEZIUM}ExtractNewRecordState",
            "delete.tombstone.handling.mode": mode.removesuffix(" of one"),
            **UNWRAPPED[mode],
        },
        route={"type": f"{CONNECT}RegexRouter", "regex": r"p\.d\.(.*)", "replacement": "p.flat.$1"},
    )
    if mode.endswith(" of one"):
        chain |= {"predicates": "one", "predicates.one.type": MATCHES, "predicates.one.pattern": r"p\.d\.t"}
    for seed in range(3):
        dump = sent(random.Random(seed))

        def records(dump: Dump = dump, **ways: bool) -> tuple[Any, ...]:
            noted, end, writer = drained(monkeypatch, dump, [dump.data], plainly=ways.pop("plainly"), **ways, **chain)
            assert "Error" not in end, end
            rows = [record for record, _ in noted if record[0] != "ledger.p"]
            return rows, writer.output.counts.by_topic, state_of(writer)[1:]

        directly = [records(plainly=True, whole=True), records(plainly=True), records(plainly=False)]
        with monkeypatch.context() as patched:
            patched.setattr(table_route, "create_unwrapped_rows", lambda *_: None)
            by_chain = records(plainly=False)
        assert by_chain[0] and directly == [by_chain] * 3


@pytest.mark.req("TOPIC-05", "FAULT-02")
@for_each("plainly", [True, False])
def test_the_batch_can_end_before_the_transaction_of_a_record_that_a_transform_cannot_take(
    monkeypatch: pytest.MonkeyPatch, plainly: bool
) -> None:
    """Nothing of that transaction is committed; what one before it has written is."""
    dump, boundaries = Dump().begin(), []
    for number, tables in enumerate([(1,), (1, 1), (1, 2, 1), (1,)], start=1):
        boundaries.append(dump.offset().pos)
        dump.add(c.GTID_LOG_EVENT, gtid_body(number)).add(c.QUERY_EVENT, begin_body())
        for key, table in enumerate(tables):
            dump.add(c.TABLE_MAP_EVENT, map_body(table, (MAP, OTHER_MAPS[0])[table - 1]))
            rows = b"\0" + struct.pack("<ii", 10 * number + key, 0)
            dump.add(c.WRITE_ROWS_EVENT_V2, rows_body(table, c.WRITE_ROWS_EVENT_V2, 2, rows))
        dump.add(c.XID_EVENT, bytes(8))
    chain = transforms(
        unwrap={"type": f"{DEBEZIUM}ExtractNewRecordState"},
        route={"type": f"{CONNECT}RegexRouter", "regex": r"p\.d\.o", "replacement": "p.d/o"},
    )
    refusals: list[tuple[Any, Any]] = []
    noted, end, _ = drained(monkeypatch, dump, [dump.data], plainly=plainly, refusals=refusals, **chain)
    assert end.startswith("TransformError: transforms routes to 'p.d/o', which is not a topic name that Kafka allows")
    assert 'topic p.d.o, key {"id": 31}, written to topic p.d/o]' in end
    ((before, error),) = refusals
    assert before.pos == boundaries[2] and isinstance(error, TransformError)
    assert error.where.startswith("binlog.000001:")
    assert split(noted)[1] == []
