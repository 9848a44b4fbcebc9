"""The chunks of a snapshot in the ledger: one record each, so that no record grows with their number.

``chunk/<db.table>/<n>`` is written when the chunk is planned, with the list it belongs to and its place there, and
again, with ``offset`` and rows, in the transaction that commits its rows. The ``snapshot`` record names the list that
counts, and how long it is; it is written after all planned chunks, so an interrupted list is never taken for a whole
one.

A finished snapshot keeps the records of those chunks only that were read, or whose rows were gone, at a later position
than where the drain begins: they filter its events. A drain deletes them when it has passed that position.
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
"""What a chunk's record says of the list: ``list`` (its random id) and ``order``."""


def record_chunks(job: JobLedger, epoch: int, chunks: list[SnapshotChunk]) -> dict[str, ListEntry]:
    """Write the chunks down, and then that they are all.

    Args:
        job: The ledger; its transactions are bounded.
        epoch: The snapshot's epoch.
        chunks: All chunks, in the order of the snapshot.

    Returns:
        The place of each chunk, by id; it belongs into the record that says that the chunk is done.
    """
    list_id = secrets.token_hex(8)
    entries = {chunk.id: {"list": list_id, "order": n} for n, chunk in enumerate(chunks)}
    job.put_all((CHUNK_PREFIX + c.id, {"epoch": epoch, **entries[c.id], "chunk": c.to_json()}) for c in chunks)
    job.put(SNAPSHOT_KEY, {"epoch": epoch, "status": "planned", "list": list_id, "count": len(chunks)})
    return entries


def recorded_chunks(ledger: LedgerState, epoch: int) -> tuple[list[SnapshotChunk], dict[str, ListEntry]]:
    """Return the chunks that an earlier attempt has listed, in the order of the snapshot, and their places.

    Args:
        ledger: The ledger.
        epoch: The snapshot's epoch.

    Raises:
        StateError: The ledger holds no whole list.
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
    """Return what the ledger still holds of the chunks of a finished snapshot: those that filter events.

    A snapshot beside a stream filters none. Its rows contain what an event changed, but not that a row is gone: whoever
    was told of the row before would keep it.

    Args:
        ledger: The ledger.
    """
    snapshot_record = ledger.snapshot or {}
    if snapshot_record.get("status") != "done" or snapshot_record.get("repeated"):
        return []
    return list(ledger.done_chunks(int(snapshot_record["epoch"])).values())


def renamed_rows_members(chunk: SnapshotChunk, rows_written: Mapping[TableId, tuple[int, int]]) -> dict[str, Any]:
    """Return what the record of a chunk says whose rows went out under other names than its table's.

    Args:
        chunk: The chunk.
        rows_written: Rows written and rows left out, by the table under whose name they are.
    """
    if set(rows_written) <= {chunk.table}:
        return {}
    return {
        "names": [{"db": t.db, "table": t.table, "rows": n, "left_out": left} for t, (n, left) in rows_written.items()]
    }


def rows_by_table(record: Mapping[str, Any]) -> dict[TableId, tuple[int, int]]:
    """Return rows written and rows left out of a chunk that is done, by the table under whose name they are.

    Args:
        record: The chunk's ledger record.
    """
    named = record.get("names") or [{**record["chunk"], "rows": record["rows"], "left_out": record.get("left_out", 0)}]
    return {TableId(n["db"], n["table"]): (int(n["rows"]), int(n["left_out"])) for n in named}


def dropped_chunk_members(position: BinlogOffset, dropped: DroppedChunk) -> dict[str, Any]:
    """Return what the record of a chunk says whose rows were gone before they were read.

    Args:
        position: The position up to which its table was followed.
        dropped: The chunk.
    """
    return {"gone": {"offset": position.to_json(), "spans": spans_to_json(dropped.spans)}}


def contained_event_range(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what says which events a chunk holds back: ``offset``, ``spans`` and ``ts_ms``.

    Args:
        record: The chunk's ledger record. Rows that were read hold back what they contain. Of rows that were gone
            before, everything is held back that was logged before they went; on another server nothing.
    """
    event_range: Mapping[str, Any] = record.get("gone", record)
    return event_range


def delete_chunk_records(job: JobLedger, ledger: LedgerState, still_filtering: Iterable[Mapping[str, Any]]) -> None:
    """Delete the records of chunks that nobody needs any more.

    Args:
        job: The ledger; its transactions are bounded.
        ledger: What it holds; its snapshot is done, or was given up.
        still_filtering: Records of ``ledger`` that still filter events.
    """
    kept_ids = set(map(id, still_filtering))
    job.put_all((CHUNK_PREFIX + name, None) for name, r in ledger.chunks.items() if id(r) not in kept_ids)


def done_record(epoch: int, drain_start: BinlogOffset, *, repeated: bool = False) -> dict[str, Any]:
    """Return the snapshot's record when every chunk is done.

    Args:
        epoch: The snapshot's epoch.
        drain_start: Where the drain begins.
        repeated: Whether the stream went on behind an earlier one, so that consumers know the rows already.
    """
    return {"epoch": epoch, "status": "done", "offset": drain_start.to_json(), "repeated": repeated}
