"""Times by the patterns of Java's ``SimpleDateFormat``."""

from __future__ import annotations

import re

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.transforms.value_text import JavaDateFormat

pytestmark = pytest.mark.quick


@for_each(
    ("pattern", "milliseconds", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", 1709210096789, "2024-02-29T12:34:56.789Z"),
        ("yyyyMMdd HHmmss", 1709210096000, "20240229 123456"),
        ("d.M.yy h:mm a", 1709251260000, "1.3.24 12:01 AM"),
        ("L LLL", 1709251260000, "3 Mar"),
        ("EEE, dd MMM yyyy", 1709164800000, "Thu, 29 Feb 2024"),
        ("''yyyy''", -62135596800000, "'0001'"),
        ("'''a'''''", 0, "'a''"),
        ("HH:mm:ss.SSS Z", -1, "23:59:59.999 +0000"),
        ("D, k:mm", 1709164800000, "60, 24:00"),
        # Before 1582-10-15 Java's calendar is the Julian one.
        ("yyyy-MM-dd EEE", -12219292800000, "1582-10-15 Fri"),
        ("yyyy-MM-dd EEE", -12219292800001, "1582-10-04 Thu"),
        ("yyyy-MM-dd D", -30610224000000, "0999-12-27 361"),
        ("y-MM-dd HH:mm:ss.SSS", 2**63 - 1, "292278994-08-17 07:12:55.807"),
    ],
)
def test_times_are_written_as_simple_date_format_does(pattern: str, milliseconds: int, text: str) -> None:
    assert JavaDateFormat(pattern).format(milliseconds) == text


@for_each(
    ("pattern", "text", "milliseconds"),
    [
        ("yyyy-MM-dd HH:mm:ss", "2024-02-29 12:34:56", 1709210096000),
        ("yyyy-MM-dd HH:mm:ss", "2024-02-29 12:34:56 and more", 1709210096000),
        ("yyyyMMddHHmmss", "20240229123456", 1709210096000),
        # Blanks and signs count among the characters of a field that another one follows.
        ("yyyyMMdd", "2024-07-01T00", 1701907200000),
        ("HHmm", " 15", 3900000),
        ("yyyy-MM-dd", "2024-14-01", 1738368000000),
        ("dd MMM yyyy HH:mm Z", "29 Feb 2024 14:34 +0200", 1709210040000),
        ("h:mm a", "12:01 AM", 60_000),
        ("h:mm a", "13:00 PM", 90_000_000),
        ("k:mm", "25:00", 90_000_000),
        ("HH:mmX", "12:00+0230", 36_000_000),
        ("HH:mmXX", "12:00+0230", 34_200_000),
        ("HH:mmXX", "12:00+02", None),
        ("HH:mm Z", "12:00 GMT-1:30", 48_600_000),
        ("HH:mm Z", "12:00 +02:00", None),
        ("HH:mm Z", "12:00 Z", None),
        ("yy-MM-dd", "70-01-02", 86_400_000),
        ("yy-MM-dd", "00-01-01", 946684800000),
        ("yyyy-MM-dd", "1000-01-01", -30609792000000),
        ("yyyy-MM-dd", "12345-01-01", 327403382400000),
        ("yyyy-MM-dd", "29.02.2024", None),
        ("HH:mm", "x", None),
        ("EEEE", "Monday", None),
    ],
)
def test_times_are_read_as_simple_date_format_does(pattern: str, text: str, milliseconds: int | None) -> None:
    if milliseconds is None:
        with pytest.raises(ValueError, match=re.escape(text)):
            JavaDateFormat(pattern).parse(text)
    else:
        assert JavaDateFormat(pattern).parse(text) == milliseconds


@for_each("pattern", ["yyyy-w", "'open", "yyyy G", "XXXX"])
def test_patterns_that_are_not_supported_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="has"):
        JavaDateFormat(pattern)
