"""The chunks of a snapshot in the ledger: one record for each chunk, so that no record grows with their number.

``chunk/<db.table>/<n>`` is written when the chunk is planned, with the list that it belongs to and its order there. It
is written again, with ``offset`` and the number of rows, in the transaction that commits the chunk's rows. The
``snapshot`` record names the valid list and its length. It is written after all planned chunks, so an incomplete list
is never used.

When the snapshot is done, the records of its chunks are deleted. An interrupted snapshot is done as well, once each
table that is not read completely has become a scan, which windows of the drain read (``incremental.scan_updates``).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import (
    CHUNK_PREFIX,
    SNAPSHOT_KEY,
    TABLE_REPORT_PREFIX,
)
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import NULLED_SUFFIX
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import SKIPPED_SUFFIX
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.stored_record import read_as, record_location
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk

ListEntry = dict[str, Any]
"""The members ``list`` (random id of the list) and ``order`` of a chunk's record."""


def record_chunks(
    job: JobLedger, epoch: int, chunks: list[SnapshotChunk], done: Mapping[str, dict[str, Any]]
) -> dict[str, ListEntry]:
    """Write a record for each chunk, then the record that makes the list valid.

    Args:
        job: The ledger; its transactions are bounded.
        epoch: The snapshot's epoch.
        chunks: All chunks, in the order of the snapshot.
        done: The records of chunks that are not read again, by chunk id.

    Returns:
        The list entry of each chunk, by id; the record of the finished chunk must contain it.
    """
    list_id = secrets.token_hex(8)
    entries = {chunk.id: {"list": list_id, "order": n} for n, chunk in enumerate(chunks)}
    job.put_all(
        (CHUNK_PREFIX + c.id, {**done.get(c.id, {}), "epoch": epoch, **entries[c.id], "chunk": c.to_json()})
        for c in chunks
    )
    job.put(SNAPSHOT_KEY, {"epoch": epoch, "status": "planned", "list": list_id, "count": len(chunks)})
    return entries


def recorded_chunks(ledger: LedgerState, epoch: int) -> tuple[list[SnapshotChunk], dict[str, ListEntry]]:
    """Return the chunks that an earlier attempt has listed, in the order of the snapshot, and their list entries.

    Args:
        ledger: The ledger.
        epoch: The snapshot's epoch.

    Raises:
        StateError: The ledger does not contain a complete list.
    """
    snapshot_record = ledger.snapshot or {}
    list_id = snapshot_record.get("list") if snapshot_record.get("epoch") == epoch else None
    chunk_records = [
        r for r in ledger.chunks.values() if list_id is not None and (r["epoch"], r["list"]) == (epoch, list_id)
    ]
    chunk_records.sort(key=lambda r: int(r["order"]))
    if list_id is None or len(chunk_records) != snapshot_record["count"]:
        raise StateError(
            "the ledger does not contain all chunks of this snapshot",
            where=f"snapshot {epoch}",
            why=f"{len(chunk_records)} of {snapshot_record.get('count', 'an unknown number')} records exist",
            remedy="find out what deleted records of the ledger topic; then take the snapshot again "
            "(mysql_cdc_reset_offset, mysql_cdc_snapshot with again=true)",
        )
    with record_location(f"a ledger record with key {CHUNK_PREFIX}..."):
        chunks = [SnapshotChunk.from_json(r["chunk"]) for r in chunk_records]
    return chunks, {c.id: {"list": list_id, "order": n} for n, c in enumerate(chunks)}


def done_records(ledger: LedgerState, epoch: int, chunks: Iterable[SnapshotChunk]) -> dict[str, dict[str, Any]]:
    """Return the records of the listed chunks that are read, by chunk id.

    Args:
        ledger: The ledger.
        epoch: The snapshot's epoch.
        chunks: The list.
    """
    done = ledger.done_chunks(epoch)
    return {chunk.id: done[chunk.id] for chunk in chunks if chunk.id in done}


def delete_chunk_records(job: JobLedger, ledger: LedgerState) -> None:
    """Delete the records of all chunks, and of what notifications have reported of their tables.

    Args:
        job: The ledger; its transactions are bounded.
        ledger: Its content; its snapshot is done or was abandoned.
    """
    job.put_all((key, None) for key in [*(CHUNK_PREFIX + name for name in ledger.chunks), *report_keys(ledger)])


def report_keys(ledger: LedgerState) -> list[str]:
    """Return the keys of the records that say what notifications have reported of the tables.

    Args:
        ledger: The ledger.
    """
    return [key for key in ledger.other_records if key.startswith(TABLE_REPORT_PREFIX)]


def done_record(epoch: int, drain_start: BinlogOffset) -> dict[str, Any]:
    """Return the snapshot's record after every chunk is done, or has become a part of a scan.

    Args:
        epoch: The snapshot's epoch.
        drain_start: The position at which the drain begins.
    """
    return {"epoch": epoch, "status": "done", "offset": drain_start.to_json()}


def count_rows(cfg: ConnectorConfig, job: JobLedger, done: Mapping[str, dict[str, Any]]) -> dict[str, int]:
    """Return the rows of each topic, and those left out; add the rows of each table to the job's counts.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        done: The records of the chunks that were read, by chunk id.
    """
    counts: dict[str, int] = {}
    tables: dict[str, int] = {}
    for record in done.values():
        table = TableId(**record["chunk"]["table"])
        topic = record_topics.table_topic_name(cfg, table)
        made = {topic: int(record["rows"])} if "topics" not in record else record["topics"]
        for counter, name, n in (
            *((counts, name, int(n)) for name, n in made.items()),
            (counts, topic + SKIPPED_SUFFIX, int(record["left_out"])),
            (counts, topic + NULLED_SUFFIX, int(record.get("nulled", 0))),
            (tables, table.path(), int(record["rows"])),
        ):
            if n:
                counter[name] = counter.get(name, 0) + n
        job.add_native_counts(read_as(NativeCounts, record.get("native", {})))
    job.add_table_counts(tables)
    return counts
