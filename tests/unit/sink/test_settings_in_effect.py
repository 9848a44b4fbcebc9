"""That a setting reaches what carries it out, and nothing else changes with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.drain import batch_planner as batch
from airflow_provider_mysql_cdc.cdc.drain.side_records import heartbeat
from airflow_provider_mysql_cdc.cdc.formats.record_topics import side_topics
from airflow_provider_mysql_cdc.cdc.formats.table_options import decoder_options
from airflow_provider_mysql_cdc.cdc.job import internal_topics
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.schema import history
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo


@pytest.mark.parametrize(
    ("name", "value", "member", "means"),
    [
        pytest.param("tombstones.on.delete", "false", "tombstones", False, marks=pytest.mark.req("EVT-32", "CFG-38")),
        pytest.param(
            "bigint.unsigned.handling.mode",
            "precise",
            "bigint_unsigned_mode",
            "precise",
            marks=pytest.mark.req("CFG-24"),
        ),
        pytest.param("decimal.handling.mode", "string", "decimal_mode", "string", marks=pytest.mark.req("CFG-23")),
        pytest.param("binary.handling.mode", "hex", "binary_mode", "hex", marks=pytest.mark.req("CFG-40")),
        pytest.param("time.precision.mode", "connect", "time_mode", "connect", marks=pytest.mark.req("CFG-22")),
        pytest.param("enable.time.adjuster", "false", "time_adjuster", False, marks=pytest.mark.req("CFG-63")),
        pytest.param(
            "skipped.operations", "u,d", "skipped_ops", frozenset("ud"), marks=pytest.mark.req("STRM-15", "CFG-66")
        ),
        pytest.param("schema.name.adjustment.mode", "avro", "schema_names", "avro", marks=pytest.mark.req("CFG-41")),
        ("field.name.adjustment.mode", "avro", "field_names", "avro"),
        pytest.param("provide.transaction.metadata", "true", "transaction", True, marks=pytest.mark.req("CFG-71")),
        ("event.contract", "1.9", "contract", "1.9"),
        ("value.converter.replace.null.with.default", "true", "replace_null_with_default", True),
        ("unavailable.value.placeholder", "none", "unavailable", "none"),
        ("unavailable.value.as.null", "true", "unavailable_as_null", True),
        ("topic.prefix", "other", "prefix", "other"),
    ],
)
def test_a_setting_reaches_the_decoders(name: str, value: str, member: str, means: Any) -> None:
    plain, given = decoder_options(config()), decoder_options(config(**{name: value}))
    assert getattr(plain, member) != means
    changed = {member: means}
    if name == "event.contract":  # whose own default differs
        changed["schema_names"] = "avro"
    assert given == replace(plain, **changed)


@pytest.mark.req("CFG-64")
def test_the_older_source_block_reaches_the_decoders() -> None:
    older = config(**{"event.contract": "1.9", "source.struct.version": "v1"})
    assert decoder_options(older).source_struct == "v1"


@pytest.mark.req("STRM-27", "STRM-29", "TOPIC-09", "CFG-56", "CFG-57")
def test_heartbeats_are_for_those_who_ask_in_the_topic_that_they_name() -> None:
    assert side_topics(config()) == ("p",)
    assert side_topics(config(heartbeat__interval__ms="5")) == ("p", "__debezium-heartbeat.p")
    named = config(heartbeat__interval__ms="5", heartbeat__topics__prefix="hb")
    assert side_topics(named)[1] == heartbeat(named)[0] == "hb.p"


@pytest.mark.req("TXN-06", "CFG-71")
def test_transactions_are_for_those_who_ask_in_the_topic_that_they_name() -> None:
    assert side_topics(config(provide__transaction__metadata="true")) == ("p", "p.transaction")
    assert side_topics(config(provide__transaction__metadata="true", topic__transaction="tx")) == ("p", "p.tx")


@for_each(
    ("most", "file"),
    [(0, None), (1, 2), (300, 2), (301, 3), (1300, 3), (1301, 4), (1399, 4), (1400, None)],
)
def test_a_batch_ends_with_the_file_that_makes_it_large_enough(
    monkeypatch: pytest.MonkeyPatch, most: int, file: int | None
) -> None:
    """Transactions never span files; what lies before the start is not counted, and the last file has no end yet."""
    here = BinlogOffset("binlog.000004", 500, "s:1-9", "s")
    files = [("binlog.000000", 5000), ("binlog.000001", 1000), ("binlog.000002", 1000), ("binlog.000003", 99)]
    monkeypatch.setattr(batch, "current_offset", lambda conn: here)
    monkeypatch.setattr(batch, "binary_logs", lambda conn: [*reversed(files), ("binlog.000004", 9000)])
    end = batch.choose_end(None, BinlogOffset("binlog.000001", 700, "s:1-3", "s"), most)
    assert end == (here if file is None else BinlogOffset(f"binlog.00000{file}", 4, None, "s"))


INFO = TopicInfo(1, "id", 1)


@pytest.mark.parametrize("verified", [False, True])
def test_topic_settings_that_a_person_has_verified_need_not_be_readable(
    monkeypatch: pytest.MonkeyPatch, verified: bool
) -> None:
    looked: list[tuple[str, bool]] = []
    for module in (internal_topics, history):
        monkeypatch.setattr(module, "make_admin", lambda settings: None)
        monkeypatch.setattr(
            module, "require_settings", lambda admin, topic, rule, verified: looked.append((topic, verified))
        )
    monkeypatch.setattr(internal_topics, "describe_topics", lambda admin, topics, at: dict.fromkeys(topics, INFO))
    monkeypatch.setattr(internal_topics, "broker_ids", lambda admin: (1,))
    monkeypatch.setattr(history, "existing_topics", lambda admin, topics: dict.fromkeys(topics, INFO))
    monkeypatch.setattr(history, "first_offsets", lambda admin, topic, partitions: {0: 0})
    cfg = config(topic__settings__verified=str(verified).lower())
    internal_topics.require_durable_topics(cfg, pytest.fail)
    history.require_history(cfg)
    assert looked == [(cfg.ledger_topic, verified), (cfg.history_topic, verified), (cfg.history_topic, verified)]
    assert kafka_clients.ledger(cfg)._verified is verified
