"""murmur2 against values made by Kafka's own Java classes.

The table comes from kafka-clients 4.1.1: ``Utils.murmur2(key)`` and ``BuiltInPartitioner.partitionForKey(key, n)``
for n = 1, 2, 3, 7, 12 and 1000.
"""

from __future__ import annotations

import random

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.sink import murmur2

COUNTS = (1, 2, 3, 7, 12, 1000)
# key as hex, Java's hash (signed), Java's partition for each count
# fmt: off
JAVA: tuple[tuple[str, int, tuple[int, ...]], ...] = (
    ('', 275646681, (0, 1, 0, 2, 9, 681)),
    ('61', -1563381124, (0, 0, 1, 5, 4, 524)),
    ('6162', 316155434, (0, 0, 2, 0, 2, 434)),
    ('616263', 479470107, (0, 1, 0, 4, 3, 107)),
    ('61626364', -1323649548, (0, 0, 2, 5, 8, 100)),
    ('3231', -973932308, (0, 0, 0, 3, 0, 340)),
    ('666f6f626172', -790332482, (0, 0, 0, 0, 6, 166)),
    ('612d6c6974746c652d6269742d6c6f6e672d737472696e67', -985981536, (0, 0, 2, 1, 8, 112)),
    ('612d6c6974746c652d6269742d6c6f6e6765722d737472696e67', -1486304829, (0, 1, 2, 0, 11, 819)),
    ('7b226964223a317d', -56768732, (0, 0, 0, 3, 0, 916)),
    ('7b22736368656d61223a6e756c6c2c227061796c6f6164223a7b226964223a317d7d', 438522820, (0, 0, 1, 1, 4, 820)),
    ('7b226e616d65223a224dc3bc6c6c6572e282acf09f9880227d', -662171940, (0, 0, 2, 6, 8, 708)),
    ('00', 375494588, (0, 0, 2, 0, 8, 588)),
    ('ff', -311467685, (0, 1, 0, 5, 3, 963)),
    ('80808080', -95523324, (0, 0, 2, 1, 8, 324)),
    ('a5', 525049751, (0, 1, 2, 2, 11, 751)),
    ('4dca', -2111853672, (0, 0, 2, 4, 8, 976)),
    ('182530', 393645699, (0, 1, 0, 6, 3, 699)),
    ('bb1d6d13', -1321809389, (0, 1, 0, 4, 3, 259)),
    ('2cded6237b', 155980054, (0, 0, 1, 6, 10, 54)),
    ('2ed91e3f721f', 2096813431, (0, 1, 1, 6, 7, 431)),
    ('cb1971174494d6', 2024662380, (0, 0, 0, 6, 0, 380)),
    ('493c9d5c3460be31', -2014281299, (0, 1, 0, 0, 9, 349)),
    ('201e69fedaa0eee8b9', -6887056, (0, 0, 1, 1, 4, 592)),
    ('997f5c7c2999fdafe593', 822088124, (0, 0, 2, 4, 8, 124)),
    ('253cd654af4dfad71427a0', -202092944, (0, 0, 0, 5, 0, 704)),
    ('aeb3fee9232f8af2211f9ee4', 646626675, (0, 1, 0, 2, 3, 675)),
    ('91c5b10becb5563bfc1e6f9342', -1380821671, (0, 1, 1, 4, 1, 977)),
    ('7ecbc8fe2955e5cd8e46dc8ed4b7', 1713312310, (0, 0, 1, 3, 10, 310)),
    ('c2764d2a5a4d767706f85d8690024a', 505043482, (0, 0, 1, 6, 10, 482)),
    ('d6bda3401be9c8cbccc935f6cd1f6122', 234655820, (0, 0, 2, 0, 8, 820)),
    ('6ae15338ae1a34004d33ba0d246ac04c81b1baf23e3bf9eef5f79f2b4934af', 530837376, (0, 0, 0, 6, 0, 376)),
    ('87f5520b69b94b0d982e85bb55b672a872637acd7466fcb60e0e8ff18463b0e4b2', -326635608, (0, 0, 2, 4, 8, 40)),
)
# fmt: on


@for_each(("key", "hash_", "partitions"), JAVA)
def test_hash_and_partitions_equal_java(key: str, hash_: int, partitions: tuple[int, ...]) -> None:
    data = bytes.fromhex(key)
    assert murmur2.murmur2(data) == hash_ & 0xFFFFFFFF
    assert tuple(murmur2.partition_python(data, n) for n in COUNTS) == partitions
    assert tuple(murmur2.partition(data, n) for n in COUNTS) == partitions


def test_a_key_of_all_256_bytes_equals_java() -> None:
    assert murmur2.murmur2(bytes(range(256))) == -1948347274 & 0xFFFFFFFF


def test_the_native_form_is_in_use_here() -> None:
    assert murmur2.native_partitioner() is not None
    assert murmur2.partition is not murmur2.partition_python


def test_native_and_python_forms_agree_on_random_keys() -> None:
    rng, native = random.Random(1), murmur2.native_partitioner()
    assert native is not None
    for _ in range(3000):
        key = rng.randbytes(rng.randrange(70))
        count = rng.choice((2, 3, 12, 97, 2**31 - 1))
        assert native(key, count) == murmur2.partition_python(key, count)


def test_a_record_without_key_goes_to_partition_0_every_time() -> None:
    assert {murmur2.partition(None, n) for n in COUNTS} == {0}
    assert {murmur2.partition_python(None, n) for n in COUNTS} == {0}


def test_python_serves_where_the_library_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(murmur2.ctypes, "PyDLL", refuse)
    assert murmur2.native_partitioner() is None


@for_each(("key", "_", "partitions"), JAVA)
def test_a_writer_asks_for_the_partition_that_java_chooses(key: str, _: int, partitions: tuple[int, ...]) -> None:
    assert tuple(partition_of(bytes.fromhex(key), count) for count in COUNTS) == partitions
    assert partition_of(None, 1) == 0
