"""The records equal those that Debezium 3.6.1 wrote for the same workloads, but for the explained differences."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics

PEER = Path(__file__).resolve().parents[1] / "golden" / "peer"
CASES = sorted(f"{f.parent.name}/{f.name.removesuffix('.jsonl.gz')}" for f in PEER.glob("captured/*/*.jsonl.gz"))
# Recorded with Apicurio's AvroConverter, which has its schemas from the same conversion as Confluent's.
AVRO = sorted(
    f"{f.parent.name}/{f.name.removesuffix('.schemas.json.gz')}" for f in PEER.glob("captured/*/*.schemas.json.gz")
)
# Subjects whose schema differs in an explained way: the defaults of their columns.
OTHER_SCHEMAS = {"types/avro": {"cap.tdb.defs-value"}}
# A NOT NULL value without a form in the mode stops the pipeline, as it stops Debezium.
STOPS: dict[str, tuple[type[Exception], str]] = {
    "types/time_connect": (ValueDecodeError, "column t of table tdb.nn_zero"),
    "types/time_isostring": (ValueDecodeError, "column t of table tdb.nn_zero"),
}
# Modes that change how values and rows are written and nothing that goes from one batch to the next: the workload's
# mode "default" shows that the places where batches end cannot be told from the records.
WRITTEN_ONLY = ("types/", "dml/", "ddl/no_data")


@pytest.fixture(scope="session")
def proof_stack(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return servers that a capture may empty: a worker's own, or scratch servers that end with the tests."""
    from prooflib.scratch import FOLDER, scratch_stack
    from stacklib import kafka, mysql, stop_stack

    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        mine = request.getfixturevalue("stack")
        # Servers that the environment names are somebody's.
        if mine.mysql_origin == mine.kafka_origin == "stack":
            yield mine
            return
    folder = FOLDER if worker is None else FOLDER / worker
    ran = mysql.running(folder / "mysql") or kafka.running(folder / "kafka")
    yield scratch_stack(folder)
    if not ran:
        stop_stack(folder, wipe=worker is not None)


def mode_of(case: str) -> dict[str, str]:
    from prooflib.workload import read_properties

    return read_properties(PEER / "modes" / f"{case.partition('/')[2]}.properties")


@pytest.mark.req(
    "EVT-01", "TYPE-01", "TXN-01", "COL-01", "SNAP-07", "SNAP-16", "SNAP-39", "SNAP-40", "STRM-17", "SCH-20"
)
@pytest.mark.req("INC-02", "INC-04", "INC-06", "INC-47")
@pytest.mark.parametrize("case", [c for c in CASES if c not in AVRO])
@pytest.mark.exhaustive(
    but="^(ddl/extras|dml/extras|filters|row_image|routing|signals/incremental$|tx/tx|types/default)"
)
@pytest.mark.halves
def test_records_equal_the_recorded_ones(case: str, proof_stack: Any) -> None:
    """Every record of a workload and mode equals the recorded one, or the difference is explained."""
    from prooflib.capture import capture
    from prooflib.workload import read_workload

    workload = read_workload(PEER / "workloads" / f"{case.partition('/')[0]}.sql")
    few = case.startswith(WRITTEN_ONLY) and not case.endswith("/default")
    done = capture(workload, mode_of(case), proof_stack, few=few)
    expected = STOPS.get(case)
    if expected is None:
        assert done.error is None
        assert done.batches >= 2
    else:
        assert isinstance(done.error, expected[0])
        assert expected[1] in str(done.error)
    judged(case, done)


@pytest.mark.req("EVT-01")
@pytest.mark.parametrize("part", ["value", "key"])
@pytest.mark.exhaustive(but="value")
def test_records_without_schemas_have_the_recorded_payloads(part: str, proof_stack: Any) -> None:
    """The comparison says which part it compared without schemas."""
    from prooflib.capture import capture
    from prooflib.workload import read_workload

    workload = read_workload(PEER / "workloads" / "tx.sql")
    bare = {f"{part}.converter.schemas.enable": "false"}
    done = capture(workload, {**mode_of("tx/default"), **bare}, proof_stack, few=True)
    assert done.error is None
    assert judged("tx/default", done) == {part}


@pytest.mark.exhaustive(but="types/avro")
@pytest.mark.req("EVT-02", "EVT-40", "INC-02")
@pytest.mark.parametrize("case", AVRO)
def test_avro_records_and_schemas_equal_the_recorded_ones(case: str, proof_stack: Any, registry: str) -> None:
    """The same with Avro: records are compared as JSON, registered schemas letter by letter."""
    from prooflib.capture import capture
    from prooflib.workload import read_workload

    workload = read_workload(PEER / "workloads" / f"{case.partition('/')[0]}.sql")
    done = capture(workload, mode_of(case), proof_stack, few="incremental" not in case, registry=registry)
    assert done.error is None
    judged(case, done)
    with gzip.open(PEER / "captured" / f"{case}.schemas.json.gz") as stream:
        recorded = {subject: set(texts) for subject, texts in json.load(stream).items()}
    other = OTHER_SCHEMAS.get(case, set())
    theirs = {text for texts in recorded.values() for text in texts}
    heads = [f'"name":"Envelope","namespace":"{subject.removesuffix("-value")}"' for subject in other]
    ours = {text for text in done.schemas if not any(head in text for head in heads)}
    assert ours == theirs - {text for subject in other for text in recorded[subject]}
    assert len(ours) >= len(recorded) - len(other)


def test_what_transforms_write_outside_of_the_prefix_is_captured(stack: Any, properties: dict[str, str]) -> None:
    """And nothing that other runs have left there, nor what the pipeline writes for itself."""
    from confluent_kafka import Producer
    from prooflib.lines import read_topics, topic_ends

    settings, name = {"bootstrap.servers": stack.kafka}, properties["topic.prefix"]

    def write(*topics: str) -> None:
        ensure_topics(make_admin(settings), dict.fromkeys(topics, TopicSpec(1, 1)))
        producer = Producer(settings)
        for topic in topics:
            producer.produce(topic, b"{}")
        assert producer.flush(30) == 0

    write(f"x-{name}-known", f"x-{name}-quiet")
    before = topic_ends(settings)
    write(f"{name}.a", f"x-{name}-known", f"x-{name}-new", f"x-{name}-own")
    found = read_topics(settings, name, before, [f"x-{name}-own"])
    assert [(t, r.offset) for t, r in found] == [(f"{name}.a", 0), (f"x-{name}-known", 1), (f"x-{name}-new", 0)]
    assert [t for t, _ in read_topics(settings, name)] == [f"{name}.a"]


def judged(case: str, done: Any) -> frozenset[str]:
    """Fail unless each difference of a capture from the recorded one is explained; return parts without schemas."""
    from prooflib.compare_cli import LIST, judge, report
    from prooflib.differ import compare
    from prooflib.explained import read_explained
    from prooflib.lines import read_lines
    from prooflib.records import parse_records
    from prooflib.time_kinds import session_zones

    theirs = parse_records(read_lines(PEER / "captured" / f"{case}.jsonl.gz"), case)
    result = compare(parse_records(done.lines, "ours"), theirs, session_zones(mode_of(case)))
    left, _ = judge(case, result, read_explained(LIST), mode_of(case))
    found = report(left)
    print(*found, sep="\n")
    assert found == []
    return result.without_schemas
