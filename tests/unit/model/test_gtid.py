"""GTID sets: text, binary form, arithmetic, and the tracker that follows a stream."""

from __future__ import annotations

import random

import pytest
from kit.cases import for_each
from pymysqlreplication.gtid import GtidSet as OtherGtidSet

from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet, GtidTracker, standard_text

A = "a1730108-e599-11f1-8bb7-02fc00000001"
B = "b2840219-f6aa-11f1-8bb7-02fc00000002"


@for_each(
    ("text", "canonical"),
    [
        ("", ""),
        (None, ""),
        (f"{A}:1", f"{A}:1"),
        (f"{A.upper()}:1-5", f"{A}:1-5"),
        (f"{A}:7:1-3:4", f"{A}:1-4:7"),
        (f"{A}:1-10:5-20", f"{A}:1-20"),
        (f"{B}:1,\n {A}:2-3", f"{A}:2-3,{B}:1"),
        (f"{A}:1,{A}:2", f"{A}:1-2"),
        (f"{A}:5-2:9", f"{A}:9"),
        (f"{A}:blue:1-3:1-2:Blue:4", f"{A}:blue:1-4"),
        (f"{A}:1-2:zebra:5:ant_1:7", f"{A}:1-2:ant_1:7:zebra:5"),
    ],
)
def test_text_becomes_canonical(text: str | None, canonical: str) -> None:
    assert str(GtidSet.parse(text)) == canonical
    assert GtidSet.parse(canonical) == GtidSet.parse(text)


@for_each(
    "text",
    ["nonsense", A, f"{A}:", f"{A}:0", f"{A}:x-1", f"{A}:blue", f"{A}:1:blue", f"{A[:-1]}:1", f"{A}:1-2-3", f"{A}:1.5"],
)
def test_what_is_no_set_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a GTID set"):
        GtidSet.parse(text)


def test_union_subtract_contains() -> None:
    left, right = GtidSet.parse(f"{A}:1-10:blue:1-5"), GtidSet.parse(f"{A}:4-6:blue:5-9,{B}:1")
    assert str(left.union(right)) == f"{A}:1-10:blue:1-9,{B}:1"
    assert str(left.subtract(right)) == f"{A}:1-3:7-10:blue:1-4"
    assert str(right.subtract(left)) == f"{A}:blue:6-9,{B}:1"
    assert left.contains(f"{A}:2-3:blue:1") and not left.contains(f"{A}:blue:6") and not left.contains(f"{B}:1")
    assert left.contains("") and not GtidSet() and left


def test_what_stands_behind_the_first_one_of_another_set() -> None:
    logged = GtidSet.parse(f"{A}:31-49:51-60:blue:1")
    unlogged = GtidSet.parse(f"{A}:1-30:50:61:blue:3:red:7,{B}:1-9")
    assert str(unlogged.behind_first_of(logged)) == f"{A}:50:61:blue:3"


def test_add_returns_a_new_set() -> None:
    old = GtidSet.parse(f"{A}:1-2")
    assert str(old.add(f"{A}:3")) == f"{A}:1-3" and str(old) == f"{A}:1-2"


def test_a_tag_is_not_its_untagged_uuid() -> None:
    assert not GtidSet.parse(f"{A}:1-5").contains(f"{A}:blue:1")


@for_each("text", ["", f"{A}:1", f"{A}:1-3:7-9,{B}:4", f"{A}:9223372036854775806"])
def test_untagged_encoding_equals_that_of_mysql_replication(text: str) -> None:
    assert GtidSet.parse(text).encode() == OtherGtidSet(text).encoded()
    assert GtidSet.decode(GtidSet.parse(text).encode()) == GtidSet.parse(text)


def test_tagged_encoding_is_what_the_server_writes() -> None:
    """The bytes are the body of a PREVIOUS_GTIDS event of MySQL 9.7.4."""
    body = bytes.fromhex(
        "0102000000000001"
        "a1730108e59911f18bb702fc00000001" "00" "0100000000000000" "0100000000000000" "fa07000000000000"
        "a1730108e59911f18bb702fc00000001" "08626c7565" "0100000000000000" "0100000000000000" "0500000000000000"
    )  # fmt: skip
    assert str(GtidSet.decode(body)) == f"{A}:1-2041:blue:1-4"
    assert GtidSet.decode(body).encode() == body


def test_encoding_that_is_cut_off_is_refused() -> None:
    body = GtidSet.parse(f"{A}:1-3:blue:1").encode()
    for length in range(1, len(body)):
        with pytest.raises(ValueError, match="cut off"):
            GtidSet.decode(body[:length])


def test_tracker_equals_the_union_whatever_the_order() -> None:
    rng = random.Random(4)
    numbers = list(range(1, 60))
    rng.shuffle(numbers)
    tracker, expected = GtidTracker(f"{A}:20-30,{B}:1"), GtidSet.parse(f"{A}:20-30,{B}:1")
    for number in numbers[:45]:
        tsid = A if number % 3 else f"{A}:blue"
        tracker.add(f"{tsid}:{number}")
        expected = expected.add(f"{tsid}:{number}")
        assert tracker.gtid_set() == expected
    assert tracker.text() == str(expected)


def test_tracker_of_an_unknown_start_stays_unknown() -> None:
    tracker = GtidTracker(None)
    tracker.add(f"{A}:5")
    assert tracker.text() is None


def test_tracker_of_an_empty_start_is_known() -> None:
    tracker = GtidTracker("")
    assert tracker.text() == ""
    tracker.add(f"{A}:1")
    tracker.add(f"{A}:1")
    assert tracker.text() == f"{A}:1"


def test_a_text_that_a_server_gives_again_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that follows a quiet source asks ten times a second."""
    first, second = f"{B}:1-3:4,\n{A}:7", f"{B}:1-5,\n{A}:7"
    parsed, parse = list[str | None](), GtidSet.parse
    monkeypatch.setattr(GtidSet, "parse", lambda text: parsed.append(text) or parse(text))
    standard_text.cache_clear()
    for _ in range(3):
        assert standard_text(first) == f"{A}:7,{B}:1-4"
        assert standard_text(second) == f"{A}:7,{B}:1-5"
    assert parsed == [first, second] and standard_text(None) == ""
