"""The chunks of a snapshot in the ledger: one record for each chunk, so that no record grows with their number.

``chunk/<db.table>/<n>`` is written when the chunk is planned, with the list that it belongs to and its order there. It
is written again, with ``offset`` and the number of rows, in the transaction that commits the chunk's rows. The
``snapshot`` record names the valid list and its length. It is written after all planned chunks, so an incomplete list
is never used.

A finished snapshot keeps only the records of chunks that were read, or whose rows were dropped, at a later position
than the start of the drain: they filter the events of the drain, which deletes them once it has passed that position.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CHUNK_PREFIX, SNAPSHOT_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import record_location
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.remaining_chunks import DroppedChunk, spans_to_json

ListEntry = dict[str, Any]
"""The members ``list`` (random id of the list) and ``order`` of a chunk's record."""


def record_chunks(job: JobLedger, epoch: int, chunks: list[SnapshotChunk]) -> dict[str, ListEntry]:
    """Write a record for each chunk, then the record that makes the list valid.

    Args:
        job: The ledger; its transactions are bounded.
        epoch: The snapshot's epoch.
        chunks: All chunks, in the order of the snapshot.

    Returns:
        The list entry of each chunk, by id; the record of the finished chunk must contain it.
    """
    list_id = secrets.token_hex(8)
    entries = {chunk.id: {"list": list_id, "order": n} for n, chunk in enumerate(chunks)}
    job.put_all((CHUNK_PREFIX + c.id, {"epoch": epoch, **entries[c.id], "chunk": c.to_json()}) for c in chunks)
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
        r for r in ledger.chunks.values() if list_id is not None and (r["epoch"], r.get("list")) == (epoch, list_id)
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


def filtering_chunk_records(ledger: LedgerState) -> list[dict[str, Any]]:
    """Return the records of a finished snapshot's chunks that filter events.

    A snapshot that was repeated while the stream continued filters no events: its rows contain what an event changed,
    but not which rows were deleted, and consumers that know such a row would keep it.

    Args:
        ledger: The ledger.
    """
    snapshot_record = ledger.snapshot or {}
    if snapshot_record.get("status") != "done" or snapshot_record.get("repeated"):
        return []
    return list(ledger.done_chunks(int(snapshot_record["epoch"])).values())


def renamed_rows_members(chunk: SnapshotChunk, rows_written: Mapping[TableId, tuple[int, int]]) -> dict[str, Any]:
    """Return the members of a chunk's record that count its rows by table, if they were written under other names.

    Args:
        chunk: The chunk.
        rows_written: Rows written and rows left out, by the table under whose name they were written.
    """
    if set(rows_written) <= {chunk.table}:
        return {}
    return {
        "names": [{"db": t.db, "table": t.table, "rows": n, "left_out": left} for t, (n, left) in rows_written.items()]
    }


def rows_by_table(record: Mapping[str, Any]) -> dict[TableId, tuple[int, int]]:
    """Return rows written and rows left out of a finished chunk, by the table under whose name they were written.

    Args:
        record: The chunk's ledger record.
    """
    named = record.get("names") or [{**record["chunk"], "rows": record["rows"], "left_out": record.get("left_out", 0)}]
    return {TableId(n["db"], n["table"]): (int(n["rows"]), int(n["left_out"])) for n in named}


def dropped_chunk_members(position: BinlogOffset, dropped: DroppedChunk) -> dict[str, Any]:
    """Return the members of the record of a chunk whose rows were dropped before they were read.

    Args:
        position: The binlog position up to which its table was followed.
        dropped: The chunk.
    """
    return {"gone": {"offset": position.to_json(), "spans": spans_to_json(dropped.spans)}}


def contained_event_range(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the mapping that defines which events a chunk filters: ``offset``, ``spans`` and ``ts_ms``.

    Args:
        record: The chunk's ledger record. Rows that were read filter the events that they contain. Rows that were
            dropped before filter all events that were logged before the drop; on another server none.
    """
    event_range: Mapping[str, Any] = record.get("gone", record)
    return event_range


def delete_chunk_records(job: JobLedger, ledger: LedgerState, still_filtering: Iterable[Mapping[str, Any]]) -> None:
    """Delete the records of chunks that are no longer needed.

    Args:
        job: The ledger; its transactions are bounded.
        ledger: Its content; its snapshot is done or was abandoned.
        still_filtering: Records of ``ledger`` that still filter events.
    """
    kept_ids = set(map(id, still_filtering))
    job.put_all((CHUNK_PREFIX + name, None) for name, r in ledger.chunks.items() if id(r) not in kept_ids)


def done_record(epoch: int, drain_start: BinlogOffset, *, repeated: bool = False) -> dict[str, Any]:
    """Return the snapshot's record after every chunk is done.

    Args:
        epoch: The snapshot's epoch.
        drain_start: The position at which the drain begins.
        repeated: Whether the stream continued after an earlier snapshot, so that consumers already know the rows.
    """
    return {"epoch": epoch, "status": "done", "offset": drain_start.to_json(), "repeated": repeated}
