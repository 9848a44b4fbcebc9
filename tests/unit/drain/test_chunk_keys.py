"""Keys of rows in the chunks of a resumed snapshot, whatever key the events show."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from kit.decode_builder import body, column, context, image, table, table_map
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.drain.chunk_lookup import ChunkLookup
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import ChunkVisibility
from airflow_provider_mysql_cdc.cdc.drain.snapshot_filter import EventRows, SnapshotFilter
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk

T = table(column("id", "INT", nullable=False), column("n", "INT"), key=("id",))
MAP = table_map((wt.LONG, 0), (wt.LONG, 0))
UPDATE = 1
# Keys up to 5 were read in a later view.
CHUNK = SnapshotChunk(T.id, 0, ("id",), None, (5,), kinds=("SIGNED",))


def row(number: int, n: int) -> bytes:
    return image(2, struct.pack("<ii", number, n))


def kept(
    options: DecoderOptions, *rows: bytes, chunk: SnapshotChunk = CHUNK, gone: bool = False
) -> list[tuple[int, int]]:
    """Return row and leg of the records of an UPDATE that the chunk does not contain."""
    held = ChunkLookup([chunk], ChunkVisibility(BinlogOffset("binlog.000001", 100)), dropped=gone)
    filters = SnapshotFilter(config(), {T.id: [held]})
    filters.prepare_table(T, MAP)
    buf, pos, end = body(*rows, columns=2, images=2)
    event: Any = SimpleNamespace(file="binlog.000001", end_pos=50, buf=buf, end=end)
    made: list[Any] = []
    compile_decoder(T, MAP, options, EnvelopeText()).update(buf, pos, end, context(), made)
    return [(r[2], r[3]) for r in filters.outside_chunks(T.id, made, event, EventRows(event, pos, UPDATE))]


PLAIN, OTHER = DecoderOptions(key_columns=("id",)), DecoderOptions(key_columns=("n",))


@pytest.mark.parametrize("options", [PLAIN, OTHER], ids=["the table's key", "message.key.columns"])
def test_rows_are_recognised_by_the_chunks_own_columns(options: DecoderOptions) -> None:
    assert kept(options, row(5, 7), row(5, 7), row(6, 7), row(6, 7)) == [(1, 0)]


def test_a_changed_key_leaves_and_enters_chunks_by_what_it_was_and_is() -> None:
    """Delete and tombstone speak of the row before, the create of the row afterwards."""
    assert kept(PLAIN, row(6, 1), row(5, 1)) == [(0, 0), (0, 1)], "out of no chunk, into one"
    assert kept(PLAIN, row(5, 1), row(6, 1)) == [(0, 2)], "out of a chunk, into none"
    assert kept(PLAIN, row(4, 1), row(5, 1)) == []
    assert kept(PLAIN, row(6, 1), row(7, 1)) == [(0, 0), (0, 1), (0, 2)]


def test_of_rows_that_were_gone_those_under_a_changed_key_are_reported() -> None:
    """Where nothing tells what a key meant, nothing is held back, and the stream goes on."""
    rows = (row(4, 7), row(4, 8))
    assert kept(PLAIN, *rows, chunk=CHUNK, gone=True) == kept(PLAIN, *rows) == []
    for kind, bound in (("BINARY 4", "61626364"), ("DATE", "2024-01-01")):
        changed = SnapshotChunk(T.id, 0, ("id",), None, (bound,), kinds=(kind,))
        assert kept(PLAIN, *rows, chunk=changed, gone=True) == [(0, 0)]
        with pytest.raises(SchemaError, match="cannot be compared"):
            kept(PLAIN, *rows, chunk=changed)
