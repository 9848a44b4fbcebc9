import pytest

from airflow_provider_mysql_cdc.cdc.verify.read.entries import (
    EntryBlocks,
    EntryKind,
    FoldEntry,
    bucket_of,
    is_sampled,
    read_entries,
)

pytestmark = pytest.mark.quick


def entries(count: int) -> list[FoldEntry]:
    return [FoldEntry(i % 3, EntryKind.ALIVE, i, i * 2, i * 3, b"k%d" % i, b"v" * i) for i in range(count)]


def collect(blocks: EntryBlocks) -> dict[int, list[FoldEntry]]:
    found: dict[int, list[FoldEntry]] = {}
    for bucket, block in (*blocks.take_full(), *blocks.take_rest()):
        found.setdefault(bucket, []).extend(read_entries(block))
    return found


def test_entries_come_out_of_their_buckets_as_they_went_in() -> None:
    blocks, written = EntryBlocks(7), entries(2000)
    for entry in written:
        blocks.add(entry)
    found = collect(blocks)
    assert sorted(e for of_bucket in found.values() for e in of_bucket) == sorted(written)
    assert all(bucket_of(e.key, 7) == bucket for bucket, of_bucket in found.items() for e in of_bucket)


def test_a_truncate_is_in_every_bucket() -> None:
    blocks = EntryBlocks(5, 1.0)
    blocks.add(FoldEntry(0, EntryKind.TRUNCATE, 0, 4, 9, b"", b""))
    assert {bucket: [e.kind for e in found] for bucket, found in collect(blocks).items()} == {
        bucket: [EntryKind.TRUNCATE] for bucket in range(5)
    }


def test_a_sample_has_about_its_share_of_keys_and_always_the_same() -> None:
    keys = [b"%d" % i for i in range(20_000)]
    sampled = [key for key in keys if is_sampled(key, 10.0)]
    assert 1_700 < len(sampled) < 2_300
    blocks = EntryBlocks(3, 10.0)
    for key in keys:
        blocks.add(FoldEntry(0, EntryKind.ROW, 0, 0, 0, key, b""))
    assert sorted(e.key for found in collect(blocks).values() for e in found) == sorted(sampled)


def test_pending_blocks_stay_small_however_many_buckets_there_are() -> None:
    blocks = EntryBlocks(4096)
    assert blocks._block_bytes * 4096 <= 64 << 20
