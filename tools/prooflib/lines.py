"""Records as JSON lines: one line a record, key and value as the bytes that were written."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelinelib.topics import READER
from topiclib.wire import RecordError, WireReader

from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts
from prooflib.scratch import SENTINEL
from prooflib.workload import ProofError

TopicLine = tuple[str, TopicRecord]


def read_topics(kafka_settings: dict[str, Any], prefix: str) -> list[TopicLine]:
    """Return the committed records of a prefix's topics, by topic, partition and offset."""
    admin = make_admin(kafka_settings)
    topics = sorted(t for t in all_partition_counts(admin) if t == prefix or t.startswith(prefix + "."))
    records_found: list[TopicLine] = []
    for topic in topics:
        records = READER.read(kafka_settings, topic)
        records_found += [(topic, r) for r in sorted(records, key=lambda r: (r.partition, r.offset))]
    return records_found


def avro_as_json(records_found: Sequence[TopicLine], wire: WireReader) -> list[TopicLine]:
    """Return records in Avro as JsonConverter with schemas would have written them.

    Raises:
        ProofError: A key or value is not in Confluent's wire format.
    """
    out = []
    for topic, record in records_found:
        try:
            key_and_value = replace(record, key=wire.as_json(record.key), value=wire.as_json(record.value))
        except RecordError as error:
            raise ProofError(f"{topic}, offset {record.offset}: {error}") from None
        out.append((topic, key_and_value))
    return out


def without_sentinel(records_found: Sequence[TopicLine], prefix: str) -> list[TopicLine]:
    """Return the records without those of the sentinel database."""
    transactions = {
        _payload(r)["id"]
        for topic, r in records_found
        if topic == f"{prefix}.transaction" and f"{SENTINEL}.done".encode() in (r.value or b"")
    }
    return [(topic, r) for topic, r in records_found if not _of_sentinel(topic, r, prefix, transactions)]


def _of_sentinel(topic: str, record: TopicRecord, prefix: str, transactions: set[str]) -> bool:
    if topic.startswith(f"{prefix}.{SENTINEL}."):
        return True
    if topic == prefix:
        return bool(_payload(record)["databaseName"] == SENTINEL)
    return topic == f"{prefix}.transaction" and _payload(record)["id"] in transactions


def _payload(record: TopicRecord) -> dict[str, Any]:
    value = json.loads(record.value or b"{}")
    payload: dict[str, Any] = value.get("payload", value)
    return payload


def line(topic: str, record: TopicRecord) -> str:
    """Return a record as a line.

    Raises:
        ProofError: The record's key or value is not JSON.
    """
    headers = ",".join(f"{{{_quoted(n)}:{_quoted(None if v is None else v.decode())}}}" for n, v in record.headers)
    text = (
        f'{{"topic":{_quoted(topic)},"partition":{record.partition},"key":{_text(record.key)},'
        f'"value":{_text(record.value)},"headers":[{headers}]}}\n'
    )
    try:
        json.loads(text)
    except ValueError as error:
        raise ProofError(f"{topic}, offset {record.offset}: not JSON ({error}): {text[:300]}") from None
    return text


def _quoted(text: str | None) -> str:
    return json.dumps(text, ensure_ascii=False)


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode()


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines; a name that ends in ``.gz`` is compressed, the same bytes for the same lines."""
    data = "".join(lines).encode()
    if path.suffix == ".gz":
        with path.open("wb") as stream, gzip.GzipFile(fileobj=stream, mode="wb", mtime=0, filename="") as packed:
            packed.write(data)
    else:
        path.write_bytes(data)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a capture, compressed or not."""
    try:
        data = path.read_bytes()
        # str.splitlines() would also break at U+0085 or U+2028 inside a value.
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode().removesuffix("\n").split("\n")
    except OSError as error:
        raise ProofError(f"{path}: {error.strerror or error}") from None
