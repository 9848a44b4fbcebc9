"""A full description of all structures in the middle of the schema history, so that a replay may begin there.

A drain writes it between two batches, in one Kafka transaction. The description says the same as the records before it;
without it, the cost of each start would grow with every statement of the stream. It has the members that snapshots
write too, so Debezium reads its ``tableChanges``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.emit.schema_change import change_dict, snapshot_statements
from airflow_provider_mysql_cdc.cdc.errors import SchemaError, StoredVersionError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import quote_name
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.history_replay import replay
from airflow_provider_mysql_cdc.cdc.schema.stored_structure import DescriptionPart


def description_size(state: SchemaState) -> int:
    """Return the number of records that describe structures.

    Args:
        state: The structures.
    """
    return 1 + len(state.database_defaults) + len(state.tables) + len(state.unparsed)


def describe_all(cfg: ConnectorConfig, state: SchemaState, position: BinlogOffset, epoch: int) -> list[HistoryRecord]:
    """Return the records of a full description.

    Args:
        cfg: The connector's configuration.
        state: All structures.
        position: The offset at which they are valid.
        epoch: Epoch of the batch that ends there.
    """
    prefix, now_ms = cfg[F.TOPIC_PREFIX], time.time_ns() // 1_000_000
    charsets = snapshot_statements(state.server_defaults, {}, {})[0].ddl
    start = DescriptionPart(description_size(state), state.server_defaults)
    records = [HistoryRecord(prefix, position, epoch, now_ms, "", charsets, snapshot=True, part=start)]
    for db, defaults in state.database_defaults.items():
        ddl = f"CREATE DATABASE {quote_name(db)} CHARSET {defaults.charset} COLLATE {defaults.collation}"
        part = DescriptionPart(defaults=defaults)
        records.append(HistoryRecord(prefix, position, epoch, now_ms, db, ddl, snapshot=True, part=part))
    for table_id, table in state.tables.items():
        change = change_dict(TableChange("CREATE", table_id, None, table, "", table_id.db))
        part = DescriptionPart(indexes=state.non_unique_indexes.get(table_id, ()))
        records.append(
            HistoryRecord(
                prefix,
                position,
                epoch,
                now_ms,
                table_id.db,
                "",
                table_changes=(change,),
                snapshot=True,
                structure=table,
                part=part,
            )
        )
    for table_id, unparsed in state.unparsed.items():
        change = change_dict(TableChange("CREATE", table_id, None, None, unparsed.sql, table_id.db))
        records.append(
            HistoryRecord(
                prefix,
                position,
                epoch,
                now_ms,
                table_id.db,
                unparsed.sql,
                unparsed.context,
                (change,),
                snapshot=True,
                part=DescriptionPart(),
            )
        )
    return records


def replays_to(cfg: ConnectorConfig, values: Iterable[bytes], state: SchemaState, position: BinlogOffset) -> bool:
    """Return whether the records of a description, read back, give exactly the structures that they describe.

    Args:
        cfg: The connector's configuration.
        values: Values of the records.
        state: The structures.
        position: The offset at which they are valid.
    """
    records = list(map(HistoryRecord.from_bytes, values))
    read_back = replay(records, until=position, epoch=records[0].epoch + 1, captures=cfg.needs_schema)
    return _content(read_back) == _content(state)


def _content(state: SchemaState) -> tuple[object, ...]:
    indexes = {table: indexes for table, indexes in state.non_unique_indexes.items() if indexes}
    ordered = (list(state.tables.items()), list(state.unparsed.items()))
    return *ordered, dict(state.database_defaults), state.server_defaults, indexes


def complete_descriptions(records: Iterable[HistoryRecord]) -> Iterator[HistoryRecord]:
    """Yield the records of a history without those of a drain's description that is not complete.

    Kafka shows all records of such a description or none, because they are one transaction. A topic that was copied or
    cut may have only some of them. The records before it say the same.

    Args:
        records: The history in the order of its topic.
    """
    pending: list[HistoryRecord] = []
    missing = 0
    for record in records:
        if record.continues_history and record.part is not None:
            yield from _without_description(pending)
            pending, missing = [], record.part.records
        elif _is_member(record) and not (pending and _same_description(record, pending[0])):
            continue  # the first record of its description is not there
        if not missing:
            yield record
            continue
        pending.append(record)
        missing -= _is_member(record)
        if not missing:
            yield from pending
            pending = []
    yield from _without_description(pending)


def _is_member(record: HistoryRecord) -> bool:
    """Return whether a record belongs to a drain's description; a copy for another server's binlog does not."""
    return record.part is not None and not record.carried_from


def _same_description(record: HistoryRecord, first: HistoryRecord) -> bool:
    return record.snapshot and record.epoch == first.epoch and record.position == first.position


def starts_complete_description(values: Sequence[bytes], bases: Iterable[BinlogOffset], prefix: str) -> bool:
    """Return whether a replay to each of some offsets begins with the first of these records, or with a later one.

    Args:
        values: Values of the last records of the history.
        bases: The offsets.
        prefix: ``topic.prefix``.
    """
    if b'"ddl":"SET ' not in values[0] or b'"snapshot":true' not in values[0]:
        return False
    try:
        first = HistoryRecord.from_bytes(values[0])
        if first.prefix != prefix or not all(map(first.is_base_for, bases)):
            return False
        records = 0 if first.part is None else first.part.records
        if not records:
            return True
        described = values[:records]
        if len(described) < records or not all(b'"part":{' in value for value in described):
            return False
        return _same_description(HistoryRecord.from_bytes(described[-1]), first)
    except (SchemaError, StoredVersionError):  # whoever reads all records names the damaged one
        return False


def _without_description(records: Iterable[HistoryRecord]) -> Iterator[HistoryRecord]:
    return (record for record in records if not _is_member(record))
