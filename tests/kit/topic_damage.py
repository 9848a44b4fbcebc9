"""Damage records of a topic by hand, in every format, and read it as a consumer that was not written here."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
from confluent_kafka import Producer
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from kit.avro_rig import Readers

Edit = Callable[[dict[str, Any]], None]


class TopicDamage:
    """Damage the topic of one table.

    Args:
        pipeline: The stream.
        table: The table.
        registry: The schema registry of a stream whose records are Avro; None for JSON.
    """

    def __init__(self, pipeline: Pipeline, table: str, registry: str | None = None) -> None:
        self.pipeline, self.table, self.topic = pipeline, table, pipeline.table_topic(table)
        self.registry = registry
        self._readers = None if registry is None else Readers(registry)

    def decode(self, data: bytes | None, *, key: bool = False) -> Any:
        """Return a record's key or value."""
        if data is None:
            return None
        if self._readers is not None:
            return self._readers.read(self.topic, data, key=key)
        found = json.loads(data)
        return found["payload"] if isinstance(found, dict) and set(found) == {"schema", "payload"} else found

    def edited(self, record: TopicRecord, edit: Edit, *, key: bool = False) -> bytes:
        """Return a record's value, or key, after an edit of what it holds."""
        data = record.key if key else record.value
        assert data is not None
        if self._readers is not None:
            schema = self._readers.parsed(self._readers.id_of(data))
            held = fastavro.schemaless_reader(io.BytesIO(data[5:]), schema)
            edit(held)
            out = io.BytesIO()
            fastavro.schemaless_writer(out, schema, held)
            return data[:5] + out.getvalue()
        document = json.loads(data)
        edit(document["payload"] if set(document) == {"schema", "payload"} else document)
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()

    def records(self, id_: int) -> list[TopicRecord]:
        """Return the events of a row, tombstones too."""
        wanted = next(r.key for r in self.pipeline.records(self.table) if self._id_of(r.key) == id_)
        return [record for record in self.pipeline.records(self.table) if record.key == wanted]

    def last(self, id_: int) -> TopicRecord:
        """Return the last event of a row that has a value."""
        return [record for record in self.records(id_) if record.value is not None][-1]

    def _id_of(self, key: bytes | None) -> Any:
        try:
            return self.decode(key, key=True)["id"]
        except Exception:  # a key that was damaged on purpose
            return None

    def copy(self, record: TopicRecord) -> None:
        """Write a record once more, with its headers."""
        self._produce(record.key, record.value, record.partition, list(record.headers))

    def produce(self, *records: tuple[bytes | None, bytes | None, int], **headers: bytes) -> None:
        """Write records past the stream."""
        for record in records:
            self._produce(*record, [(name.replace("_", "-"), content) for name, content in headers.items()])

    def _produce(self, key: bytes | None, value: bytes | None, partition: int, headers: list[Any]) -> None:
        producer = Producer({"bootstrap.servers": self.pipeline.properties["kafka.bootstrap.servers"]})
        producer.produce(self.topic, key=key, value=value, partition=partition, headers=headers)
        assert producer.flush(10) == 0

    def compacted_rows(self, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """Return the rows of the last record of each key in each partition: what compaction leaves.

        Every record that is left has to be an event.
        """
        left: dict[tuple[int, bytes | None], TopicRecord] = {}
        for record in self.pipeline.records(self.table):
            left[record.partition, record.key] = record
        events = [self.decode(record.value) for record in left.values() if record.value is not None]
        rows = [event.get("after", event) for event in events if event.get("op") != "d"]
        return sorted((tuple(row[name] for name in columns) for row in rows), key=repr)


def damage_every_kind(damage: TopicDamage, source_name: str = "source") -> None:
    """Damage one key for each kind of difference.

    Rows 1 to 9 of the table, in which rows 1 and 2 were updated once and row 4 was deleted.
    """

    def changed(**members: Any) -> Edit:
        def edit(event: dict[str, Any]) -> None:
            for name, value in members.items():
                if name in ("pos", "file"):
                    event[source_name][name] = value
                elif name == "name":
                    event["after"] = {**event["after"], "name": value}
                else:
                    event[name] = value

        return edit

    def row(id_: int) -> Any:
        return damage.decode(damage.last(id_).value)["after"]

    doubled, second, third, misplaced, unread, encoded = (damage.last(n) for n in (1, 2, 3, 5, 6, 7))
    gone, deleted, stale = damage.last(8), damage.last(4), damage.last(9)
    other = {**row(3), "name": "never there"}
    row_of_4 = damage.decode(deleted.value)["before"]
    damage.copy(doubled)
    damage.produce(
        # An event of an earlier place, which the stream has not written.
        (second.key, damage.edited(second, changed(op="u", before={**row(2), "name": "x"}, pos=5)), second.partition),
        (third.key, damage.edited(third, changed(op="u", before=other, pos=2**31)), third.partition),
        (deleted.key, damage.edited(deleted, changed(op="c", before=None, after=row_of_4)), deleted.partition),
        (deleted.key, deleted.value, deleted.partition),
        (misplaced.key, misplaced.value, (misplaced.partition + 1) % 3),
        (unread.key, b"\xff damaged", unread.partition),
        (b"\xfe damaged", b"\xff damaged", 1),
        (encoded.key, b'{"schema":{"type":"string"},"payload":"x"}' if encoded.value else b"", encoded.partition),
        (gone.key, damage.edited(gone, changed(op="d", before=row(8), after=None)), gone.partition),
        (gone.key, None, gone.partition),
        (stale.key, damage.edited(stale, changed(op="u", before=row(9), name="stale")), stale.partition),
    )
