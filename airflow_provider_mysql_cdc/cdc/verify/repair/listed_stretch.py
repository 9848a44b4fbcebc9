"""A stretch of a window that is a list of keys: which of the rows read are theirs, and what is written of each key.

The window's view is at the end of its batch, and nobody writes behind the batch until the stretch is committed or
fenced off. So the row of a key is written as the view shows it, and where the view has none, its delete: neither
overtakes a later change. With ``message.key.columns`` a row may have the record key of a ghost: deletes and tombstones
are before all rows, and a row that has such a key is written behind them though nothing is wrong with it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.snapshot.range_writer import KeyedRecord
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock
from airflow_provider_mysql_cdc.cdc.verify.compare.event_entries import row_entry
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventReader, Row, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.read.repair_marks import settled_header
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import RowRecords, WrittenRow
from airflow_provider_mysql_cdc.cdc.verify.read.row_text import row_values
from airflow_provider_mysql_cdc.cdc.verify.repair.ghost_delete import GhostDeletes
from airflow_provider_mysql_cdc.cdc.verify.repair.listed_keys import Kinds, ListedKey
from airflow_provider_mysql_cdc.cdc.verify.report.hidden_values import hide_in_row
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable


@dataclass(slots=True)
class ListedStretch:
    """Choose the rows of listed keys, and make the other records.

    Args:
        compared: The table.
        reader: Reads the topic's records.
        records: Writes rows as records.
        deletes: Makes deletes and tombstones.
        repaired: Number of differences that are repaired when the stretch is committed, by kind.
        left: Keys whose rows need a header of their own, so that each is a stretch by itself.
        reasons: What cannot be repaired, and why, one sentence each.
    """

    cfg: ConnectorConfig
    compared: ComparedTable
    keys: Sequence[ListedKey]
    reader: EventReader
    records: RowRecords
    deletes: GhostDeletes
    repaired: Counter[DifferenceKind] = field(default_factory=Counter)
    left: list[ListedKey] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    _found: dict[bytes, list[WrittenRow]] = field(default_factory=dict)
    _order: list[bytes] = field(default_factory=list)
    _holders: dict[bytes, bytes] = field(default_factory=dict)
    _chosen: Counter[bytes] = field(default_factory=Counter)

    def record_keys(self) -> dict[bytes, Row]:
        """Return the record keys that may be deleted and that other rows may have, with their fields."""
        if self.compared.own_key or self.compared.keyless:
            return {}
        records = (record for key in self.keys for record in (*key.records, key.last) if record is not None)
        found = dict[bytes, Row]()
        for record in records:
            with suppress(UnreadableRecord):
                if record.key is not None and (fields := self._key_fields(record.key, record.headers)) is not None:
                    found[record.key] = fields
        return found

    def _key_fields(self, key: bytes, headers: Headers) -> Row | None:
        return self.reader.read(key, None, headers).key

    def listed_rows(self, blocks: Iterable[RowBlock]) -> Iterator[RowBlock]:
        """Yield the rows of the listed keys, one by one, and of each record key that may be deleted one."""
        self._found, self._order, self._holders = {}, [], {}
        self.records.errors.clear()
        wanted, record_keys = {key.row for key in self.keys}, self.record_keys()
        for block in blocks:
            for packet, row in self._written(block):
                key, value, partition, headers = row
                entry = row_entry(self.compared, self.reader.read(key, value, headers), partition)
                holds = key is not None and key in record_keys and key not in self._holders
                if holds and key is not None:
                    self._holders[key] = entry.key
                if entry.key in wanted:
                    self._found.setdefault(entry.key, []).append((key, entry.value, partition, headers))
                if holds or entry.key in wanted:
                    self._order.append(entry.key)
                    yield RowBlock(1, packet, large=True)

    def _written(self, block: RowBlock) -> Iterator[tuple[bytes, WrittenRow]]:
        """Yield rows and their records; rows that no record can be made of are left out."""
        errors = len(self.records.errors)
        rows = list(self.records.of_block(block))
        if len(rows) == block.rows:
            yield from zip(block, rows, strict=True)
            return
        del self.records.errors[errors:]  # the rows are written once more, one by one
        for packet in block:
            for row in self.records.of_block(RowBlock(1, packet, large=True)):
                yield packet, row

    def first_records(self) -> Iterator[KeyedRecord]:
        """Yield deletes and tombstones, and choose the rows that are written behind them."""
        self.repaired, self._chosen, self.left, self.reasons = Counter(), Counter(), [], []
        if errors := self.records.errors:
            self.reasons.append(f"{len(errors):,} rows cannot be read: {errors[0].message()}")
        gone = same = 0
        for key in self.keys:
            try:
                records, kinds = self._of_key(key)
            except UnreadableRecord as error:
                self.reasons.append(str(error))
                continue
            gone += 0 if kinds is not None else sum(key.kinds.values())
            same += sum(key.kinds.values()) if kinds == {} and key not in self.left else 0
            self.repaired.update(kinds or {})
            for record in records:
                if record.key is not None and (holder := self._holders.get(record.key)) is not None:
                    self._chosen[holder] = 1
                yield record
        if same:
            self.reasons.append(f"{same:,} no longer differ: the table in the source is as the topic says")
        if gone:
            self.reasons.append(f"{gone:,} have records with an earlier key of the table, or none any longer")

    def chosen_rows(self, blocks: Iterable[RowBlock]) -> Iterator[RowBlock]:
        """Yield the rows that are written, of those that ``listed_rows`` has yielded."""
        for identity, block in zip(self._order, blocks, strict=True):
            if self._chosen[identity] > 0:
                self._chosen[identity] -= 1
                yield block

    def _of_key(self, key: ListedKey) -> tuple[list[KeyedRecord], Kinds | None]:
        """Return what is written before the rows of a key, and the differences that it repairs; None without records.

        Raises:
            UnreadableRecord: The key cannot be repaired.
        """
        found = [] if key.row is None else self._found.get(key.row, [])
        if key.equal is not None:
            return self._of_equal_rows(key, len(found))
        if len(found) > 1:
            assert key.row is not None
            why = f"{len(found)} rows have the same key in records: {self._key_text(key.row)}"
            raise UnreadableRecord(f"{why}; choose a form of the key that tells them apart")
        kinds = key.kinds_left(found[0][1] if found else None)
        if not found or not kinds:
            return self._delete(key, kinds) if kinds else ([], {})
        if key.settled and len(self.keys) > 1:
            self.left.append(key)
            return [], {}
        ((row_key, _, partition, headers),) = found
        others = key.others(partition, row_key)
        if self.cfg.is_ticdc and any(record.partition != partition for record in others):
            # There a record without a value is a delete, and readers of several partitions cannot tell it from others.
            place = f"[{others[0].partition}]@{others[0].offset}"
            raise UnreadableRecord(f"a record in another partition than that of its row stays: {place}")
        self._chosen[key.row or b""] = 1
        moved = self._deletes_of(key.last) if key.last is not None and self._has_moved(key, row_key, headers) else []
        return [*moved, *(self.deletes.tombstone(self.compared.topic, record) for record in others)], kinds

    def _has_moved(self, key: ListedKey, row_key: bytes | None, headers: Headers) -> bool:
        """Return whether a row's last event has other values of message.key.columns than the row."""
        last = key.last
        if self.compared.own_key or key.event_row is None or last is None or last.key is None or row_key is None:
            return False
        return self._key_fields(last.key, last.headers) != self._key_fields(row_key, headers)

    def _delete(self, key: ListedKey, kinds: Kinds) -> tuple[list[KeyedRecord], Kinds | None]:
        if self.records.errors and key.row is not None:
            raise UnreadableRecord(f"its row may be one that cannot be read: {self._key_text(key.row)}")
        topic, last = self.compared.topic, key.last
        if last is None:
            # The row of an event without a key is deleted behind it, without one.
            last = next((record for record in reversed(key.records) if record.key is None), None)
        others = key.others() if last is None else key.others(last.partition, last.key)
        if last is None and not others:
            return [], None
        deletes = [] if last is None else self._deletes_of(last)
        more = settled_header(key.settled)
        deletes = [record._replace(headers=[*record.headers, *more]) for record in deletes]
        return [*(self.deletes.tombstone(topic, record) for record in others), *deletes], kinds

    def _deletes_of(self, last: TopicRecord) -> list[KeyedRecord]:
        try:
            return list(self.deletes.records(self.compared.topic, last))
        except UnreadableRecord as error:
            place = f"{self.compared.topic}[{last.partition}]@{last.offset}"
            raise UnreadableRecord(
                f"the row of {self.compared.table.id} at {place} cannot be deleted: {error}"
            ) from error

    def _of_equal_rows(self, key: ListedKey, rows: int) -> tuple[list[KeyedRecord], Kinds]:
        assert key.row is not None and key.equal is not None
        surplus = key.equal.count - rows
        if surplus < 0:
            self._chosen[key.row] = -surplus
            return [], {DifferenceKind.MISSING: -surplus}
        if not surplus:
            return [], {}
        last = key.equal.records[-surplus:]
        return [delete for record in last for delete in self._deletes_of(record)], {DifferenceKind.GHOST: len(last)}

    def _key_text(self, identity: bytes) -> str:
        """Return a key as text, without values that must not be shown."""
        return json.dumps(hide_in_row(self.cfg, self.compared.table.id, row_values(identity)), ensure_ascii=False)
