"""Records as JSON lines: one line a record, key and value as the bytes that were written."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelinelib.topics import READER
from topiclib.wire import RecordError, WireReader

from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts, end_offsets_of_topics
from prooflib.scratch import SENTINEL
from prooflib.workload import ProofError

TopicLine = tuple[str, TopicRecord]
_TRANSACTION_ID = re.compile(rb'"id":\s*"([^"]+)"')


Ends = Mapping[str, Mapping[int, tuple[int, int]]]


def topic_ends(kafka_settings: dict[str, Any]) -> Ends:
    """Return the first offset and the end of each partition of all topics."""
    admin = make_admin(kafka_settings)
    for last in (False, False, True):
        counts = {t: range(count) for t, count in all_partition_counts(admin).items() if not t.startswith("__")}
        try:
            return end_offsets_of_topics(admin, counts)
        except SinkError:  # a topic that is being deleted
            if last:
                raise
            time.sleep(1)
    raise AssertionError


def read_topics(
    kafka_settings: dict[str, Any], prefix: str, before: Ends | None = None, own: Collection[str] = ()
) -> list[TopicLine]:
    """Return the committed records of a capture, by topic, partition and offset.

    Args:
        kafka_settings: Settings of the client.
        prefix: The topic prefix.
        before: The ends of all topics before the capture, if it may have written outside of its prefix; else None.
        own: The pipeline's own topics.
    """
    topics = all_partition_counts(make_admin(kafka_settings))
    begins = {t: {p: 0 for p in range(n)} for t, n in topics.items() if t == prefix or t.startswith(prefix + ".")}
    if before is not None:
        outside = {t: ends for t, ends in topic_ends(kafka_settings).items() if t not in begins and t not in own}
        begins |= {
            t: {p: e for p, (_, e) in before.get(t, {}).items()} for t, ends in outside.items() if ends != before.get(t)
        }
    records_found: list[TopicLine] = []
    for topic in sorted(begins):
        records = [r for r in READER.read(kafka_settings, topic) if r.offset >= begins[topic].get(r.partition, 0)]
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
    """Return the records without those of the sentinel database, whatever transforms have made of them."""
    transactions = {
        found
        for topic, record in records_found
        if topic == f"{prefix}.transaction" and _names_sentinel(record)
        for found in _transaction_ids(record)
    }
    return [
        (topic, record)
        for topic, record in records_found
        if not (SENTINEL in topic or _names_sentinel(record))
        and not (topic == f"{prefix}.transaction" and transactions & _transaction_ids(record))
    ]


def _transaction_ids(record: TopicRecord) -> set[bytes]:
    return set(_TRANSACTION_ID.findall((record.key or b"") + (record.value or b"")))


def _names_sentinel(record: TopicRecord) -> bool:
    return SENTINEL.encode() in (record.key or b"") + (record.value or b"")


def line(topic: str, record: TopicRecord) -> str:
    """Return a record as a line; a key or value that is no JSON becomes a string."""
    headers = ",".join(f"{{{_quoted(n)}:{_quoted(None if v is None else v.decode())}}}" for n, v in record.headers)
    return (
        f'{{"topic":{_quoted(topic)},"partition":{record.partition},"key":{_text(record.key)},'
        f'"value":{_text(record.value)},"headers":[{headers}]}}\n'
    )


def _quoted(text: str | None) -> str:
    return json.dumps(text, ensure_ascii=False)


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = data.decode()
    try:
        json.loads(text)
    except ValueError:
        return _quoted(text)
    return text


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines; a name that ends in ``.gz`` is compressed, the same bytes for the same lines."""
    data = "".join(lines).encode()
    if path.suffix == ".gz":
        with path.open("wb") as stream, gzip.GzipFile(fileobj=stream, mode="wb", mtime=0, filename="") as packed:
            packed.write(data)
    else:
        path.write_bytes(data)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a capture, compressed or not, without those of the sentinel database."""
    try:
        data = path.read_bytes()
        # str.splitlines() would also break at U+0085 or U+2028 inside a value.
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
        # A capture that stopped before its first record is empty.
        return [line for line in text.removesuffix("\n").split("\n") if SENTINEL not in line] if text else []
    except OSError as error:
        raise ProofError(f"{path}: {error.strerror or error}") from None
