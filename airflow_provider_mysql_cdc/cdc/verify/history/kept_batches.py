"""The batches whose counts the ledger still has: its topic keeps older records until it is compacted."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PLAN_KEY, WRITER_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.plan import OTHERS_LABEL, Marker, decode
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError, StoredVersionError
from airflow_provider_mysql_cdc.cdc.model.stored_record import as_members
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord, read_topic
from airflow_provider_mysql_cdc.cdc.verify.read.source_place import place_order

CLOCK_SKEW_MS = 600_000
"""How far the clocks of drivers, writers and brokers may be apart."""
_READ_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """Hold what the ledger says of a batch that is complete.

    Args:
        epoch: Its number.
        start: Where it begins in the binlog, as ``source_place`` orders places.
        end: Where it ends.
        begun_ms: When it was planned, milliseconds since 1970.
        ended_ms: When its last marker was written.
        counts: Its records by topic.
    """

    epoch: int
    start: int
    end: int
    begun_ms: int
    ended_ms: int
    counts: Mapping[str, int]


class KeptBatches:
    """Find the batch of an event.

    Args:
        batches: Batches that do not overlap, in the order of the binlog.
    """

    def __init__(self, batches: Sequence[KeptBatch]) -> None:
        self._batches, self._starts = batches, [batch.start for batch in batches]

    def batch_of(self, order: int, timestamp_ms: int) -> KeptBatch | None:
        """Return the batch that has written an event; None if it is none of these.

        Args:
            order: Where the event is in the binlog. Positions come again on another server.
            timestamp_ms: The record's timestamp.
        """
        index = bisect_right(self._starts, order) - 1
        if index < 0:
            return None
        batch = self._batches[index]
        in_time = batch.begun_ms - CLOCK_SKEW_MS <= timestamp_ms <= batch.ended_ms + CLOCK_SKEW_MS
        return batch if order < batch.end and in_time else None


@dataclass(slots=True)
class _Plan:
    kind: str
    writers: int
    begun_ms: int
    prepared: bool
    continued: bool


def read_kept_batches(cfg: ConnectorConfig) -> tuple[KeptBatch, ...]:
    """Return the drained batches of which the ledger topic still has the plan and the last marker of each writer.

    Args:
        cfg: The connector's configuration.

    Raises:
        SinkError: The ledger cannot be read.
    """
    records = read_topic(cfg.kafka_settings(), cfg.ledger_topic, timeout_s=_READ_TIMEOUT_S, stable=True)
    return kept_batches(records)


def kept_batches(records: Iterable[TopicRecord]) -> tuple[KeptBatch, ...]:
    """Return the batches of ledger records, all versions of them.

    Args:
        records: The records, in their order.
    """
    plans: dict[int, _Plan] = {}
    markers: dict[int, dict[int, tuple[Marker, int]]] = {}
    for record in records:
        if record.key is None or record.value is None:
            continue
        key = record.key.decode(errors="replace")
        try:
            if key == PLAN_KEY:
                epoch, plan = _read_plan(record.value)
                plans[epoch] = plan
            elif key.startswith(WRITER_PREFIX):
                marker = Marker.from_json(decode(record.value))
                of_epoch = markers.setdefault(marker.epoch, {})
                of_epoch.pop(marker.writer, None)
                if marker.done:
                    of_epoch[marker.writer] = marker, record.timestamp_ms
        except (DamagedRecordError, StoredVersionError):
            continue  # whoever reads the ledger's state names it
    batches = [
        batch
        for epoch, of_epoch in markers.items()
        if epoch in plans and (batch := _batch(epoch, plans[epoch], list(of_epoch.values()))) is not None
    ]
    return _without_overlaps(batches)


def _read_plan(value: bytes) -> tuple[int, _Plan]:
    plan = as_members(decode(value))
    prepared, continued = bool(plan.objects("prepared")), plan.value("continued_from", None) is not None
    begun_ms = plan.integer("created_ms")
    return plan.integer("epoch"), _Plan(plan.text("kind"), plan.integer("writers"), begun_ms, prepared, continued)


def _batch(epoch: int, plan: _Plan, markers: Sequence[tuple[Marker, int]]) -> KeptBatch | None:
    """Return a batch; None where its counts are not complete, or events have places outside of it.

    Those of prepared XA transactions have places of earlier batches. A batch that goes on at another server may have
    been moved there (``operate.moved_batch``): what was committed before has the former server's places.
    """
    if plan.kind != "drain" or len(markers) != plan.writers or plan.prepared or plan.continued:
        return None
    counts: dict[str, int] = {}
    for marker, _ in markers:
        if (
            marker.prepared
            or marker.xa_searched
            or OTHERS_LABEL in marker.counts
            or (marker.counts and not plan.begun_ms)
        ):
            return None
        for topic, number in marker.counts.items():
            counts[topic] = counts.get(topic, 0) + number
    places = {(place_order(marker.start), place_order(marker.end)) for marker, _ in markers}
    if len(places) != 1:
        return None
    ((start, end),) = places
    ended_ms = max(timestamp_ms for _, timestamp_ms in markers)
    return KeptBatch(epoch, start, end, plan.begun_ms, ended_ms, counts) if start < end else None


def _without_overlaps(batches: Sequence[KeptBatch]) -> tuple[KeptBatch, ...]:
    """Return the batches that have their part of the binlog for themselves, in its order.

    After a reset, and on another server, positions come again.
    """
    ordered = sorted(batches, key=lambda batch: (batch.start, batch.end))
    latest, kept = -1, list[KeptBatch]()
    for number, batch in enumerate(ordered):
        following = ordered[number + 1 : number + 2]
        if batch.start >= latest and all(batch.end <= other.start for other in following):
            kept.append(batch)
        latest = max(latest, batch.end)
    return tuple(kept)
