"""Read literals of dates and times as the server does."""

from __future__ import annotations

import re

_DATETIME = re.compile(
    r"(\d{1,4})[^\w\s](\d{1,2})[^\w\s](\d{1,2})(?:(?:T|\s+)(\d{1,2})(?:[^\w\s](\d{1,2})(?:[^\w\s](\d{1,2})(?:\.(\d*))?)?)?)?",
    re.ASCII,
)
_DATED_TIME = re.compile(r"\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d(?:\.\d*)?)", re.ASCII)
_DATETIME_DIGITS = re.compile(r"(\d{4})(\d{2})(\d{2})(?:(\d{2})(\d{2})(\d{2})(?:\.(\d*))?)?", re.ASCII)
_TIME = re.compile(r"(-?)(?:(\d+)\s+)?(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?", re.ASCII)
_TIME_DIGITS = re.compile(r"(-?)()(\d{0,3}?)(\d{0,2}?)(\d{1,2})(?:\.(\d*))?", re.ASCII)
READ_DIGITS = 7
"""Digits of a fraction of a second that count."""
_LEAST_DATETIME = 12
"""Characters from which on the text of a TIME is read as a datetime first."""
DateTimeParts = tuple[int, int, int, int, int, int]
"""Year, month, day, hour, minute, second."""


def split_datetime(text: str) -> tuple[DateTimeParts, str]:
    """Return year, month, day, hour, minute and second of a date or datetime, and the digits of its fraction.

    A zero date, or one with a zero month or day, is returned as it is.

    Args:
        text: The literal's text; of a number with all its digits (``all_digits``).

    Raises:
        ValueError: The text is no date, or has a time zone's offset.
    """
    match = _DATETIME.fullmatch(text.strip()) or _DATETIME_DIGITS.fullmatch(all_digits(text.strip()))
    if match is None:
        if text.strip(" 0.") == "":
            return (0, 0, 0, 0, 0, 0), ""
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(group or 0) for group in match.groups()[:6])
    # Before a point a year has two digits, or four.
    year_size = len(match[1])
    if text.strip()[year_size : year_size + 1] == ".":
        if year_size == 3:
            raise ValueError(text)
        year_size = max(year_size, 2)
    if year_size == 2 and (year, month, day, hour, minute, second) != (0, 0, 0, 0, 0, 0):
        year += 2000 if year < 70 else 1900
    return (year, month, day, hour, minute, second), match[7] or ""


def all_digits(text: str) -> str:
    """Return a date or datetime written as a number with a year of four digits, other text unchanged.

    The server fills up with zeros on the left to 6 (YYMMDD), 8, 12 (YYMMDDhhmmss) or 14 digits.

    Args:
        text: The number.
    """
    number, point, fraction = text.replace("T", "").partition(".")
    size = next((size for size in (6, 8, 12, 14) if len(number) <= size), 0)
    if not number.isdecimal() or not size or not number.strip("0"):
        return text
    number = number.zfill(size)
    if size in (6, 12):
        number = ("20" if int(number[:2]) < 70 else "19") + number
    return number + point + fraction


def split_time(text: str) -> tuple[str, int, str]:
    """Return sign, seconds and the digits of the fraction of a time: ``[-][D ]HH:MM[:SS[.f]]``, or ``[-]HHMMSS``.

    Args:
        text: The literal's text; a date before the time does not count.

    Raises:
        ValueError: The text is no time; or a date before it has zeros, or another form, in which versions differ.
    """
    text = text.strip()
    if len(text) >= _LEAST_DATETIME and _DATETIME.fullmatch(text):
        (_, month, day, *_), fraction = split_datetime(text)
        dated = _DATED_TIME.fullmatch(text)
        if dated is None or not (month and day):
            raise ValueError(text)
        sign, seconds, _ = split_time(dated[1])
        return sign, seconds, fraction[:READ_DIGITS]
    match = _TIME.fullmatch(text) or _TIME_DIGITS.fullmatch(text)
    if match is None:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups()[1:5])
    if max(minutes, seconds) > 59:
        raise ValueError(text)
    return match[1], ((days * 24 + hours) * 60 + minutes) * 60 + seconds, match[6] or ""
