"""Row events of contract 1.9 equal the seeds' samples, through the decoder and the source block.

Where the samples differ from Debezium 1.9.7, ``real_payload`` and ``real_schema`` say what it writes.
"""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from golden.contract_rig import (
    OLD,
    V1,
    context_of,
    created,
    customers,
    customers_block,
    customers_records,
    numbers,
    parsed,
    read,
    streamed,
)
from golden.golden_data import DATA, real_payload, real_schema, sample
from kit.cases import for_each
from kit.decode_builder import body, image, table_map

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EnvelopeText, EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.drain.side_records import PLACEHOLDER, TransactionMetadata
from airflow_provider_mysql_cdc.cdc.emit.contracts import MYSQL_1_9, contract
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.emit.heartbeat import transaction_record
from airflow_provider_mysql_cdc.cdc.emit.source_block import (
    change_time,
    fill,
    fill_snapshot,
    source_block,
    source_dict,
)
from airflow_provider_mysql_cdc.cdc.emit.source_marks import marked_context
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
BARE = ["before", "after", "source", "op", "ts_ms"]
PLACE = BinlogOffset("binlog.000001", 4)


@pytest.mark.req("EX-50", "EX-05", "EX-06", "EVT-10", "EVT-12", "EVT-13", "EVT-14", "EVT-15", "EVT-16", "EVT-17")
@pytest.mark.req("EVT-35")
def test_schemas_of_the_samples_table_equal_the_samples() -> None:
    text = envelope_text(customers(), OLD)
    assert text.key_schema == dumps(real_schema(sample("EX-05")["schema"]))
    assert text.value_schema == dumps(real_schema(sample("EX-06")["schema"]))


@pytest.mark.req("EX-06", "EX-08", "EX-10", "EVT-24", "EVT-25", "EVT-26", "EVT-36", "EVT-11")
@pytest.mark.parametrize("name", ["EX-06", "EX-08", "EX-10"])
def test_whole_events_equal_the_samples(name: str) -> None:
    theirs = sample(name)["payload"]
    record = customers_records(theirs)[0]
    mine = parsed(record[1])
    assert mine["payload"] == real_payload(theirs)
    # Members stand in the order of the schema, which the samples follow but for the one create event (EVT-21).
    assert list(mine["payload"]) == ["before", "after", "source", "op", "ts_ms", "transaction"]
    assert list(mine["payload"]["source"]) == [m.name for m in MYSQL_1_9.source]
    assert mine["schema"] == real_schema(sample("EX-06")["schema"])
    assert parsed(record[0]) == {"schema": real_schema(sample("EX-05")["schema"]), "payload": {"id": 1004}}


@pytest.mark.req("EX-07", "EX-09", "EX-11", "DIS-12", "DIS-25")
@pytest.mark.parametrize(("name", "newer"), [("EX-07", "EX-06"), ("EX-09", "EX-08"), ("EX-11", "EX-10")])
def test_the_oldest_manuals_events_differ_by_the_stated_names_only(name: str, newer: str) -> None:
    """The source schema's name is a substitution of the product's name; the times are not milliseconds (DIS-25)."""
    theirs = sample(name)
    assert theirs["payload"]["source"]["version"] == "1.1.2.Final"
    mine = parsed(customers_records(theirs["payload"], product_version="1.1.2.Final")[0][1])
    assert mine["payload"] == real_payload(theirs["payload"], "1.1.2.Final")
    if theirs["schema"] != "<elided>":
        schema = dumps(mine["schema"]).replace(
            "io.debezium.connector.mysql.Source", "io.product.connector.mysql.Source"
        )
        assert schema == dumps(real_schema(theirs["schema"]))
    older, latest = (dict(sample(n)["payload"]["source"]) for n in (name, newer))
    different = {k for k in latest if older[k] != latest[k]}
    assert different == ({"version"} if name == "EX-07" else {"version", "ts_ms"})


@pytest.mark.req("EVT-38")
@pytest.mark.parametrize("name", ["EX-08", "EX-09"])
def test_the_name_that_the_update_samples_write_twice_stands_once(name: str) -> None:
    lines = (DATA / "seed_samples.json").read_text().splitlines()
    theirs = next(line for line in lines if line.startswith(f'"{name}"'))
    assert theirs.count('"name":"mysql-server-1"') == 2
    value = customers_records(sample(name)["payload"])[0][1] or b""
    payload = value[value.index(b'"payload":') :]
    assert payload.count(b'"name":"mysql-server-1"') == 1
    assert payload.index(b'"connector":') < payload.index(b'"name":')


@pytest.mark.req("EX-19", "EVT-01")
def test_key_and_value_are_a_schema_and_a_payload_each() -> None:
    skeleton: Any = sample("EX-19")
    key, value, *_ = customers_records(sample("EX-06")["payload"])[0]
    assert [m for data in (key, value) for m in parsed(data)] == [member for member, _ in skeleton]
    ctx = context_of(customers_block(), sample("EX-06")["payload"]["source"], 1)
    after = sample("EX-06")["payload"]["after"]
    ((key, value, *_),) = streamed(customers(), OLD, ctx, None, after, EnvelopeText())
    assert list(parsed(key)) == ["id"] and list(parsed(value)) == [*BARE, "transaction"]


@pytest.mark.req("SNAP-44", "SNAP-48")
@for_each("marker", ["true", "first", "last_in_data_collection", "last", "incremental"])
@for_each("options", [OLD, V1])
def test_snapshot_is_what_the_schema_says(marker: str, options: Any) -> None:
    """Debezium 1.9.7 has four texts; the format before Debezium 0.10 has a boolean."""
    ctx = EventContext()
    block = source_block(TableId("d", "t"), prefix="p", version="1.9", source_struct=options.source_struct)
    fill_snapshot(ctx, block, PLACE, 0, marker)
    text = marker if marker in ("last", "incremental") else "true"
    assert json.loads(f"{ctx.src_head}0{ctx.src_tail}")["snapshot"] == (True if options is V1 else text)


@pytest.mark.req("EVT-27", "EVT-41", "TXN-11", "DIS-34")
@pytest.mark.parametrize("typed", [True, False])
def test_an_incremental_read_equals_the_sample(typed: bool) -> None:
    """Numbers are numbers, by their columns' types."""
    theirs = numbers(sample("EX-14"))
    table = created("CREATE TABLE t (pk INT PRIMARY KEY, value VARCHAR(255))")
    options = replace(OLD, transaction=True)
    block = source_block(table.id, prefix="p", version="1.9", typed=typed)
    ctx = EventContext()
    fill_snapshot(ctx, block, PLACE, 0, "incremental")
    ctx.tail = block.op_tail(theirs["ts_ms"] * 1_000_000)
    value = parsed(read(table, options, ctx, (b"1", b"New data"))[1])
    mine = value["payload"]
    fields = {f["field"]: f for f in value["schema"]["fields"]}
    assert list(mine) == list(theirs) == list(fields)
    assert (fields["after"]["fields"][0]["type"], fields["ts_ms"]["type"]) == ("int32", "int64")
    assert mine["source"]["snapshot"] == theirs["source"]["snapshot"]
    assert mine | {"source": None} == theirs | {"source": None}


@pytest.mark.req("EX-18", "TXN-09", "TXN-10", "DIS-34")
def test_an_event_with_transaction_metadata_equals_the_sample() -> None:
    theirs = numbers(sample("EX-18"))
    table = created("CREATE TABLE a (pk INT PRIMARY KEY, aa INT)")
    options = replace(OLD, transaction=True)
    place = {"ts_ms": 0, "server_id": 1, "file": "b.000001", "pos": 4, "thread": 1, "query": None, "gtid": None}
    ctx = context_of(source_block(table.id, prefix="p", version="1.9"), place, theirs["ts_ms"])
    ctx.transaction = PLACEHOLDER
    transactions = TransactionMetadata(ConnectorConfig.from_properties(BASE | {"event.contract": "1.9"}))
    transactions.begin(theirs["transaction"]["id"], "b.000001", 4)
    (record,) = transactions.number_records(table.id, streamed(table, options, ctx, None, theirs["after"]))
    value = parsed(record[1])
    assert list(value["payload"]) == list(theirs) == [f["field"] for f in value["schema"]["fields"]]
    assert value["payload"] | {"source": "<elided>"} == theirs
    assert value["schema"]["fields"][-1] == {
        "type": "struct",
        "fields": [
            {"type": "string", "optional": False, "field": "id"},
            {"type": "int64", "optional": False, "field": "total_order"},
            {"type": "int64", "optional": False, "field": "data_collection_order"},
        ],
        "optional": True,
        "field": "transaction",
    }


@pytest.mark.req("TXN-09", "EVT-14")
@pytest.mark.parametrize(("options", "more"), [(OLD, ["transaction"]), (V1, [])])
def test_transaction_is_a_member_without_transaction_metadata_too(options: Any, more: list[str]) -> None:
    """Not before Debezium 0.10, which had no transaction metadata."""
    plain, enriched = (
        json.loads(envelope_text(customers(), options, transaction=on).value_schema or "") for on in (False, True)
    )
    assert [f["field"] for f in plain["fields"]] == [*BARE, *more]
    assert [f["field"] for f in enriched["fields"]] == [*BARE, "transaction"]


@pytest.mark.req("EX-16", "EX-17")
@pytest.mark.parametrize(("name", "counts"), [("EX-16", None), ("EX-17", {"s1.a": 1, "s2.a": 1})])
def test_transaction_records_equal_the_samples(name: str, counts: dict[str, int] | None) -> None:
    theirs = sample(name)
    _, value = transaction_record(theirs["id"], 0, counts, recent=False, value_schema=False)
    assert value.decode() == dumps(theirs)
    _, value = transaction_record(theirs["id"], 0, counts, recent=False)
    assert [f["field"] for f in json.loads(value)["schema"]["fields"]] == list(theirs)


@pytest.mark.req("EX-53", "TXN-07")
@pytest.mark.parametrize("contract_version", ["3.x", "1.9"])
def test_transaction_ids_equal_the_samples(contract_version: str) -> None:
    by_gtid, by_place = sample("EX-53")
    cfg = ConnectorConfig.from_properties(BASE | {"event.contract": contract_version})
    for gtid, theirs in ((by_gtid, by_gtid), (None, by_place)):
        transactions = TransactionMetadata(cfg)
        transactions.begin(gtid, "mysql-bin.000002", 1913)
        topic, key, value, _ = transactions.begin_record()
        assert topic == "p.transaction"
        assert (parsed(key)["payload"], parsed(value)["payload"]["id"]) == ({"id": theirs}, theirs)


@pytest.mark.req("EX-52", "TYPE-49", "TYPE-50")
@pytest.mark.parametrize("options", [OLD, replace(OLD, contract="3.x")])
def test_temporal_values_equal_the_samples(options: Any) -> None:
    """A TIMESTAMP is stored in UTC, and the snapshot's session reads it in UTC: 06:37:03 in Los Angeles is 13:37:03."""
    theirs = list(sample("EX-52").values())
    table = created("CREATE TABLE t (d DATETIME, s TIMESTAMP)")
    packed = 1 << 39 | (2018 * 13 + 6) << 22 | 20 << 17 | 6 << 12 | 37 << 6 | 3
    row = image(2, packed.to_bytes(5, "big") + struct.pack(">I", 1529501823))
    decoder = compile_decoder(
        table, table_map((wt.DATETIME2, 0), (wt.TIMESTAMP2, 0)), options, envelope_text(table, options)
    )
    out: list[Any] = []
    buf, pos, end = body(row, columns=2)
    decoder.write(buf, pos, end, EventContext(tail=',"ts_ms":0}'), out)
    out.append(read(table, options, EventContext(tail=',"ts_ms":0}'), (b"2018-06-20 06:37:03", b"2018-06-20 13:37:03")))
    assert [list(parsed(r[1])["payload"]["after"].values()) for r in out] == [theirs, theirs]


@pytest.mark.req("EVT-12", "EVT-39", "SCH-30", "SCH-31")
def test_row_events_with_the_block_before_0_10() -> None:
    """Members, order, optionality and default are those of SCH-30; the block has neither connector nor ts_ms."""
    assert envelope_text(customers(), V1).key_schema == dumps(sample("EX-05")["schema"])
    theirs = sample("EX-02")
    fields = next(f for f in theirs["schema"]["fields"] if f["field"] == "source")["fields"]
    value = json.loads(envelope_text(customers(), V1).value_schema or "")
    mine = value["fields"][2]
    assert mine["fields"] == fields and (mine["name"], mine["optional"]) == (
        "io.debezium.connector.mysql.Source",
        False,
    )
    payload = sample("EX-08")["payload"]
    block = customers_block(V1)
    ctx = context_of(block, payload["source"], payload["ts_ms"])
    ((key, data, *_),) = streamed(customers(), V1, ctx, payload["before"], payload["after"])
    assert parsed(key)["payload"] == {"id": 1004}
    assert parsed(data)["payload"]["ts_ms"] == payload["ts_ms"]
    source = parsed(data)["payload"]["source"]
    assert list(source) == [f["field"] for f in fields]
    assert source == {
        "version": theirs["payload"]["source"]["version"],
        **{k: payload["source"][k] for k in ("name", "server_id", "gtid", "file", "pos", "row", "snapshot", "thread")},
        "ts_sec": 1465581029,
        **{k: payload["source"][k] for k in ("db", "table", "query")},
    }
    fill_snapshot(ctx, block, PLACE, 1465581029523)
    source = json.loads(f"{ctx.src_head}0{ctx.src_tail}")
    # As in EX-02, a snapshot knows no time of the change.
    assert (source["ts_sec"], source["snapshot"], source["thread"], source["db"]) == (0, True, None, "inventory")
    facts = source | {"name": "mysql-server-1"}
    assert dumps(source_dict(block.layout, facts)) == dumps(source)


@pytest.mark.req("EVT-39")
def test_the_block_before_0_10_is_refused_with_contract_3() -> None:
    with pytest.raises(ConfigError) as caught:
        ConnectorConfig.from_properties(BASE | {"source.struct.version": "v1"})
    text = str(caught.value)
    assert all(part in text for part in ("source.struct.version", "Debezium 2 removed", "Set event.contract=1.9"))
    cfg = ConnectorConfig.from_properties(BASE | {"source.struct.version": "v1", "event.contract": "1.9"})
    assert not cfg.notes
    assert ConnectorConfig.check(BASE | {"source.struct.version": "v2"}) == []


def test_a_streamed_event_without_a_commit_time_takes_the_events_own() -> None:
    ctx = EventContext()
    event = SimpleNamespace(timestamp=12, server_id=1, file="b.000001", start_pos=4)
    fill(ctx, customers_block(V1), event, SimpleNamespace(gtid=None, commit_us=0, thread=0, query=None))
    assert json.loads(f"{ctx.src_head}0{ctx.src_tail}")["ts_sec"] == 12


def test_an_unknown_contract_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"mysql 3\.x, mysql 1\.9, db2 1\.9, mysql 1\.9 with source struct v1"):
        contract("2.0")
    with pytest.raises(ConfigError, match=r"3\.x for mysql with source struct v1"):
        contract("3.x", source_struct="v1")


@pytest.mark.req("EVT-12", "TXN-09")
def test_rows_have_the_time_of_their_event_and_not_of_the_commit() -> None:
    """Debezium 1.9.7 shows the row event's whole seconds, 3.6.1 the commit's microseconds; in Avro as in JSON."""
    event = SimpleNamespace(timestamp=1_700_000_000, server_id=1, file="f", start_pos=4)
    at: Any = SimpleNamespace(gtid=None, commit_us=1_795_693_993_846_123, thread=0, query=None)
    new = replace(OLD, contract="3.x")
    for options, expected in ((OLD, 1_700_000_000_000_000), (V1, 1_700_000_000_000_000), (new, at.commit_us)):
        block, ctx = customers_block(options), EventContext()
        fill(ctx, block, event, at)
        source = json.loads(f"{ctx.src_head}0{ctx.src_tail}")
        assert source.get("ts_ms", 0) == (0 if options is V1 else expected // 1000)
        assert source.get("ts_sec", 0) == (expected // 1_000_000 if options is V1 else 0)
        assert change_time(block.layout, event, at) == expected
        # The kernel knows the time of the commit only.
        assert (marked_context(block) is None) is (options is not new)
