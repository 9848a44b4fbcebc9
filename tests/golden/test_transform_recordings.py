"""Records behind transforms equal those that Debezium's and Kafka Connect's own transforms make of the same events."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from kit.cases import for_each
from kit.chain_rig import chained, compact
from outbox_events import NOW, outbox_events

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.formats.chain_writer import ChainWriter

pytestmark = pytest.mark.quick
FOLDER = Path(__file__).parent / "peer_smt"
MODES: dict[str, dict[str, Any]] = json.loads((FOLDER / "modes.json").read_text())
EVENTS = {"uw": "dz_header_to_value", "kc": "kc_insert_key", "rt": "rt_regex", "tz": "dz_schema_filter2"}
"""The mode of each workload whose records the others' are made of."""
VOLATILE = re.compile(r"(^|_|\.)ts_(ms|us|ns)$|gtid$|^thread$|runId$")
FIRST_MARKERS = re.compile(r"^(first|last|first_in_data_collection|last_in_data_collection)$")


@lru_cache(maxsize=8)
def lines(mode: str) -> list[dict[str, Any]]:
    with gzip.open(FOLDER / f"{mode}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def events(workload: str) -> Iterator[dict[str, Any]]:
    """Yield the change events of a workload, without what the mode they come from has added."""
    for line in json.loads(json.dumps(lines(EVENTS[workload]))):
        if workload == "uw":
            if line["value"] is not None:
                assert line["value"]["schema"]["fields"].pop()["field"] == "tier"
                assert line["value"]["payload"].pop("tier") == 42
            line["headers"] = [header for header in line["headers"] if "tier" not in header]
        if workload == "kc":
            assert line["key"]["schema"]["fields"].pop()["field"] == "region"
            assert line["key"]["payload"].pop("region") == "eu"
        if (match := re.fullmatch(r"cap-(.*)-of-([^-]*)", line["topic"])) is not None:
            line["topic"] = f"cap.{match[2]}.{match[1]}"
        yield line


def comparable(value: Any, name: str = "") -> Any:
    if isinstance(value, Mapping):
        return {member: comparable(inner, member) for member, inner in value.items()}
    if isinstance(value, list):
        return [comparable(inner) for inner in value]
    if value is not None and VOLATILE.search(name):
        return "*"
    # Which table is the first of a snapshot depends on the tables beside it.
    return "first or last" if isinstance(value, str) and FIRST_MARKERS.fullmatch(value) else value


def by_topic(records: list[tuple[str, int, Any, Any, Any]]) -> dict[str, list[str]]:
    """Return the records of each topic; their order is that of the binlog in both, unless tables share the topic."""
    found: dict[str, list[str]] = {}
    for topic, partition, key, value, headers in records:
        found.setdefault(topic, []).append(json.dumps(comparable([partition, key, value, headers]), ensure_ascii=False))
    return {topic: sorted(texts) for topic, texts in found.items()}


def replay(writer: ChainWriter, workload: str, properties: Mapping[str, str]) -> str | None:
    """Send a workload's events through a chain; return why it stopped."""
    for line in events(workload):
        if properties.get("tombstones.on.delete") == "false" and line["value"] is None:
            continue
        headers = [(name, text.encode()) for header in line["headers"] for name, text in header.items()]
        try:
            writer.produce(line["topic"], compact(line["key"]), compact(line["value"]), 0, headers)
        except ConfigError as error:
            return error.why
    return None


@for_each("mode", sorted(m for m, recorded in MODES.items() if recorded["workload"] in EVENTS and m != "rt_regex"))
def test_records_are_those_of_debezium(mode: str) -> None:
    recorded = MODES[mode]
    given = {"value.converter.replace.null.with.default": "true", **recorded["properties"]}
    given = {name: text for name, text in given.items() if not name.startswith("table.include.list")}
    writer, inner, _ = chained(given, int(given.get("topic.creation.default.partitions", "1")))
    why = replay(writer, recorded["workload"], given)
    assert why == recorded["error"]
    read = [(r.topic, r.partition, load(r.key), load(r.value), header_texts(r.headers)) for r in inner.produced]
    ours = by_topic(read)
    theirs = by_topic(
        [tuple(line[part] for part in ("topic", "partition", "key", "value", "headers")) for line in lines(mode)]
    )
    for topic, records in ours.items():
        if why is not None:  # how far other topics are depends on the order of the tables
            fewer, more = sorted((set(records), set(theirs.get(topic, records))), key=len)
            assert fewer <= more, topic
        elif topic == "cap":
            assert set(records) <= set(theirs[topic])
        else:
            assert records == theirs[topic], topic
    if why is None:
        named = {topic for topic in theirs if topic.count(".") > 1 and "peer_end" not in topic}
        assert ours and named == {topic for topic in ours if topic.count(".") > 1}


@lru_cache(maxsize=1)
def made() -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return the modes whose records Debezium's transforms have made of recorded events, and their records."""
    records: dict[str, list[Any]] = {}
    with gzip.open(FOLDER / "made.jsonl.gz", "rt", encoding="utf-8") as file:
        for mode, record in map(json.loads, file):
            records.setdefault(mode, []).append(record)
    return json.loads((FOLDER / "made.json").read_text()), records


@for_each("mode", sorted(json.loads((FOLDER / "made.json").read_text())))
def test_records_are_those_that_the_transforms_themselves_make(mode: str) -> None:
    modes, records = made()
    workload, given, error = (modes[mode][part] for part in ("workload", "properties", "error"))
    given = {"value.converter.replace.null.with.default": "true", **given}
    writer, inner, _ = chained(given, int(given.get("topic.creation.default.partitions", "1")))
    why = None
    if workload in EVENTS:
        why = replay(writer, workload, given)
    else:
        for topic, key, value, headers in outbox_events(workload.removeprefix("ob_")):
            try:
                writer.produce(topic, key, value, 0, headers)
            except ConfigError as stop:
                if NO_TOPIC not in stop.what:
                    why = stop.why
                    break
    assert why == error
    ours = [[r.topic, r.partition, load(r.key), load(r.value), header_texts(r.headers)] for r in inner.produced]
    theirs = [record for record in records.get(mode, []) if NO_TOPIC not in record[0]]
    assert [ordered(record) for record in ours] == [ordered(record) for record in theirs]


def load(data: bytes | None) -> Any:
    """Return JSON; a text of StringConverter that is none stands as it is."""
    try:
        return None if data is None else json.loads(data)
    except ValueError:
        return (data or b"").decode()


NO_TOPIC = "Ünicode"
"""Part of a topic that was recorded without a Kafka, which refuses to create it."""


def ordered(value: Any) -> Any:
    """Return JSON with the fields of structs in one order, and with one name for envelopes.

    Of an array's structs Debezium's order is that of hashes; its envelopes are named after the first event that it saw.
    """
    if isinstance(value, str):
        return re.sub(r"^cap\.ob\.outbox\.\w+\.Value$", "the name of an envelope", value)
    if isinstance(value, dict):
        return {name: ordered(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        items = [ordered(item) for item in value]
        is_fields = bool(items) and isinstance(items[0], dict) and "field" in items[0]
        return sorted(items, key=lambda item: item["field"]) if is_fields else items
    return value


@for_each("mode", sorted(mode for mode, recorded in MODES.items() if recorded["workload"] == "ob"))
def test_outbox_events_are_those_of_debezium(mode: str) -> None:
    recorded = MODES[mode]
    given = {"value.converter.replace.null.with.default": "true", **recorded["properties"]}
    table = given.pop("table.include.list").split(".")[-1]
    writer, inner, _ = chained(given, int(given.get("topic.creation.default.partitions", "1")))
    why = None
    for topic, key, value, headers in outbox_events(table):
        try:
            writer.produce(topic, key, value, 0, headers)
        except ConfigError as error:
            if "not a topic name that Kafka allows" in error.what:
                assert NO_TOPIC in error.what
                continue
            why = error.why
            break
    assert (why is None) == (recorded["error"] is None), why
    ours = [
        comparable([r.topic, r.partition, load(r.key), load(r.value), header_texts(r.headers)]) for r in inner.produced
    ]
    theirs = [
        comparable([line[part] for part in ("topic", "partition", "key", "value", "headers")])
        for line in lines(mode)
        if NO_TOPIC not in line["topic"]
    ]
    ours.sort(key=lambda record: record[:2])
    assert [ordered(record) for record in ours] == [ordered(record) for record in theirs]
    if "timestamps" in recorded:
        at = sorted((r.topic, r.partition, number, r.timestamp) for number, r in enumerate(inner.produced))
        # One before 1970 is none for Kafka, and Debezium's clock stands for the event's own time.
        expected = [
            NOW if time > 1_790_000_000_000 else 0 if time == -1 else time
            for topic, *_, time in recorded["timestamps"]
            if NO_TOPIC not in topic
        ]
        assert [time for *_, time in at] == expected


def header_texts(headers: list[tuple[str, bytes | None]]) -> list[dict[str, str | None]]:
    return [{name: None if value is None else value.decode()} for name, value in headers]


def test_an_envelope_is_named_after_its_own_event_whatever_came_before_it() -> None:
    """A writer begins anew with each batch: a name of the first event would change with the batches."""
    given = dict(MODES["ob_place"]["properties"])
    table = given.pop("table.include.list").split(".")[-1]
    writer, inner, _ = chained(given, 1)
    for topic, key, value, headers in outbox_events(table):
        with contextlib.suppress(ConfigError):
            writer.produce(topic, key, value, 0, headers)
    named = {
        (r.topic.rpartition(".")[2], load(r.value)["schema"]["name"])
        for r in inner.produced
        if ".out." in r.topic and r.value
    }
    assert named == {(kind, f"cap.ob.outbox.{kind}.Value") for kind in ("Order", "customer")}
