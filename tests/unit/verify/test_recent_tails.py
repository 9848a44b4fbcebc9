"""What follows the rows of an event is read again, unless only its times differ from an earlier one."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.verify.recent_tails import RecentTails, json_times

pytestmark = pytest.mark.quick
SOURCE = b',"source":{"pos":4,"ts_ms":12},"op":"r","ts_ms":%d,"ts_us":%d}'


def tails(value: bytes, start: int = 0) -> RecentTails[str]:
    found = RecentTails[str](json_times)
    assert found.read(value, start) is None
    assert found.learn(value, start, "said") == "said"
    return found


def test_another_time_is_not_read_again() -> None:
    recent = tails(b"row" + SOURCE % (1, 2), 3)
    for value, start in ((SOURCE % (1, 2), 0), (b"longer" + SOURCE % (0, 1_795_748_230_487_902), 6)):
        assert recent.read(value, start) == "said"


def test_another_time_of_the_same_length_is_known_from_the_end() -> None:
    recent = tails(b"row" + SOURCE % (17, 2), 3)
    for value, end in (
        (SOURCE % (99, 0), (0, "said")),
        (b"longer" + SOURCE % (10, 9), (6, "said")),
        (SOURCE % (1, 22), None),
        (SOURCE % (7, 2), None),
        (SOURCE.replace(b":%d,", b":0%d,") % (7, 2), None),
        ((SOURCE % (17, 2))[1:], None),
    ):
        assert recent.read_end(value) == end


@for_each(
    "other",
    [
        SOURCE.replace(b'"pos":4', b'"pos":5') % (1, 2),
        SOURCE.replace(b'"op":"r"', b'"op":"c"') % (1, 2),
        SOURCE.replace(b"ts_us", b"ts_ns") % (1, 2),
        SOURCE % (1, 2) + b"}",
        SOURCE % (1, 2) + b" ",
        SOURCE.replace(b',"ts_us":%d', b"") % 1,
        SOURCE.replace(b',"ts_ms":%d,', b',"ts_ms":%d,"more":1,') % (1, 2),
        SOURCE.replace(b',"ts_ms":%d,', b',"ts_ms":%d,"ts_ms":1,') % (1, 2),
        SOURCE.replace(b',"ts_ms":%d,', b',"ts_ms":0%d,') % (1, 2),
        SOURCE.replace(b',"ts_ms":%d,', b',"ts_ms":null%d,') % (1, 2),
        SOURCE % (1, -2),
        b"",
    ],
)
def test_every_other_text_is_read(other: bytes) -> None:
    recent = tails(SOURCE % (1, 2))
    assert recent.read(other, 0) is None and recent.read_end(other) is None and recent.read_end(b"r" + other) is None


def test_a_text_without_times_at_its_end_is_not_remembered() -> None:
    text = b',"source":{"ts_ms":12},"op":"r","transaction":null}'
    assert tails(text).read(text, 0) is None and tails(text).read_end(text) is None


def test_one_of_several_changes_is_remembered() -> None:
    recent, texts = tails(SOURCE % (1, 2)), [SOURCE.replace(b'"pos":4', b'"pos":%d' % n) for n in range(10, 30)]
    for text in texts:
        recent.learn(text % (1, 2), 0, text.decode())
    remembered = [text for text in texts if recent.read(text % (3, 4), 0) is not None]
    assert len(remembered) == 1 and recent.read(remembered[0] % (3, 4), 0) == remembered[0].decode()
    assert recent.read(SOURCE % (1, 2), 0) is None
