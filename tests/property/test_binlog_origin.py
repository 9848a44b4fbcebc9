"""Fingerprints of binlog files: what they depend on, and when two can be of one file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import file_fingerprint as origin
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError, SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, same_fingerprint

Head = tuple[int, bytes, bytes | None]


def event(kind: int, body: bytes, *, at: int = 0, flags: int = 0) -> bytes:
    return pack("<IBIIIH", at, kind, 1, 19 + len(body), 0, flags) + body


def file(head: Head, *, in_use: bool = False, more: bool = True) -> Iterator[bytes]:
    """Yield the events of a dump of a file: when it was made, the set before it, its first transaction."""
    made, previous, first = head
    yield event(c.ROTATE_EVENT, b"\4\0\0\0\0\0\0\0binlog.000001")
    yield event(c.FORMAT_DESCRIPTION_EVENT, b"layout" + bytes([c.CHECKSUM_CRC32]) + b"csum", at=made, flags=in_use)
    yield event(c.PREVIOUS_GTIDS_LOG_EVENT, previous + b"csum")
    if first is not None:
        yield event(c.GTID_LOG_EVENT, first + b"csum")
        yield event(c.QUERY_EVENT, b"BEGIN")
    elif more:
        yield event(c.STOP_EVENT, b"csum")


def fingerprint(head: Head, **kwargs: Any) -> str:
    return origin._fingerprint(file(head, **kwargs), "binlog.000001")


def test_a_refused_dump_is_no_shorter_file_but_where_gtids_were_switched() -> None:
    """What else is refused would give the file another fingerprint, as if the binlog had been reset."""
    for text, ends in (("cannot replicate anonymous transaction", True), ("auto_position is not possible", False)):
        payload = b"\xff" + pack("<H", 1236) + b"#HY000" + text.encode()
        packet = pack("<I", len(payload)) + payload
        dump: Any = SimpleNamespace(next_chunk=lambda *_, packet=packet: packet)
        with nullcontext() if ends else pytest.raises(SourceSettingError):
            assert list(origin._dump_events(dump, "here")) == []


heads = st.tuples(st.integers(0, 3), st.sampled_from([b"", b"a", b"b"]), st.sampled_from([None, b"x", b"y"]))
origins = st.none() | heads.map(fingerprint)


@given(heads, heads)
@example((1, b"a", b"x"), (1, b"a", b"y"))
@example((1, b"a", b"x"), (1, b"a", None))
@example((1, b"a", b"x"), (1, b"b", b"x"))
@example((1, b"a", b"x"), (2, b"a", b"x"))
def test_two_files_are_distinguished_by_all_that_both_have(a: Head, b: Head) -> None:
    can_be_one = a[:2] == b[:2] and (a[2] is None or b[2] is None or a[2] == b[2])
    assert same_fingerprint(fingerprint(a), fingerprint(b)) == can_be_one


@given(origins, origins)
def test_the_comparison_has_no_direction_and_what_is_not_known_contradicts_nothing(
    a: str | None, b: str | None
) -> None:
    assert same_fingerprint(a, a) and same_fingerprint(a, None)
    assert same_fingerprint(a, b) == same_fingerprint(b, a)


@given(heads, st.booleans(), st.booleans())
def test_closing_a_file_changes_nothing(head: Head, in_use: bool, more: bool) -> None:
    assert fingerprint(head, in_use=in_use, more=more) == fingerprint(head)


def test_a_file_without_its_format_is_named() -> None:
    with pytest.raises(BinlogCorruptError, match=r"binlog\.000001"):
        origin._fingerprint(iter([]), "binlog.000001")


@given(origins, st.sampled_from(["binlog.000001", "binlog.000002"]))
def test_a_fingerprint_goes_with_its_file(mark: str | None, name: str) -> None:
    offset = BinlogOffset("binlog.000001", 4, None, "s", mark)
    assert offset.with_position(name, 9).origin == (mark if name == offset.file else None)
