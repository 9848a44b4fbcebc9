"""Values of Connect as text, and text as values, as ``Values`` and ``SimpleDateFormat`` of Java have them."""

from __future__ import annotations

import math
import re
import struct
from binascii import b2a_base64
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.model.java import java_double, java_float
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    CONNECT_DATE,
    CONNECT_TIME,
    CONNECT_TIMESTAMP,
    DECIMAL,
    RecordSchema,
)

_EPOCH = 2440588
"""The Julian day number of 1970-01-01."""
_CUTOVER = -141427
"""1582-10-15, in days since 1970."""
_TOKEN = re.compile(r"''|'((?:[^']|'')+)'|([A-Za-z])\2*|[^A-Za-z']+", re.DOTALL)
_ISO_ZONES = tuple(
    re.compile(f"Z|{digits}", re.ASCII) for digits in (r"([+-])(\d\d)", r"([+-])(\d\d)(\d\d)", r"([+-])(\d\d):(\d\d)")
)
_NUMBER = re.compile(r"[ \t]*-?\d{1,20}")
_ZONE = re.compile(r"GMT([+-])(\d{1,2}):(\d\d)|GMT(?![+-])|UTC|([+-])(\d\d)(\d\d)", re.ASCII)
_LETTERS = frozenset("yMLdHhkKmsSEaDuzZX")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MS_PER_DAY = 86_400_000


class JavaDateFormat:
    """Write milliseconds since 1970 by a pattern, and read them.

    Args:
        pattern: A pattern of ``SimpleDateFormat``.

    Raises:
        ValueError: It has a letter that is not supported here, or an open quote.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern, self._parts, at = pattern, list[tuple[str, str]](), 0
        while at < len(pattern):
            match = _TOKEN.match(pattern, at)
            if match is None:
                raise ValueError("has a quote that does not end")
            at = match.end()
            if match[2] is None:
                quoted = match[1]
                self._parts.append(("", (match[0] if quoted is None else quoted).replace("''", "'")))
            elif match[0].startswith("XXXX"):
                raise ValueError("has more than three X")
            elif match[2] in _LETTERS:
                self._parts.append(("M" if match[2] == "L" else match[2], match[0]))
            else:
                raise ValueError(f"has the letter {match[2]}; there is {''.join(sorted(_LETTERS))}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JavaDateFormat) and other.pattern == self.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def format(self, milliseconds: int) -> str:
        """Return the text of a time.

        Args:
            milliseconds: Since 1970, UTC.
        """
        time = _Time.of(milliseconds)
        return "".join(text if not letter else _written(letter, len(text), time) for letter, text in self._parts)

    def parse(self, text: str) -> int:
        """Return the milliseconds since 1970 of a text, which may go on after the time.

        Args:
            text: The text.

        Raises:
            ValueError: It does not have this format.
        """
        found: dict[str, int] = {}
        at = 0
        for index, (letter, token) in enumerate(self._parts):
            if not letter:
                if not text.startswith(token, at):
                    raise ValueError(text)
                at += len(token)
                continue
            follows = self._parts[index + 1][0] if index + 1 < len(self._parts) else ""
            at = _read(letter, token, text, at, found, adjacent=bool(follows) and follows not in "EazZX")
        if found.keys() & {"E", "u"} and not found.keys() & {"d", "D"}:
            raise ValueError(text)  # Java takes a day of the first week then
        return _milliseconds(found)


class _Time(NamedTuple):
    """A time in Java's calendar: Gregorian from 1582-10-15, Julian before."""

    year: int
    month: int
    day: int
    days: int
    """Days since 1970-01-01."""
    ms: int
    """Milliseconds of the day."""

    @classmethod
    def of(cls, milliseconds: int) -> _Time:
        """Return the time of milliseconds since 1970."""
        days, ms = divmod(milliseconds, _MS_PER_DAY)
        number = days + _EPOCH
        count = number + 1401
        if days >= _CUTOVER:
            count += (4 * number + 274277) // 146097 * 3 // 4 - 38
        years, rest = divmod(4 * count + 3, 1461)
        months, day = divmod(5 * (rest // 4) + 2, 153)
        month = (months + 2) % 12 + 1
        return cls(years - 4716 + (14 - month) // 12, month, day // 5 + 1, days, ms)


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970 of a date in Java's calendar."""
    early = (14 - month) // 12
    years = year + 4800 - early
    number = day + (153 * (month + 12 * early - 3) + 2) // 5 + 365 * years + years // 4
    gregorian = number - years // 100 + years // 400 - 32045 - _EPOCH
    return gregorian if gregorian >= _CUTOVER else number - 32083 - _EPOCH


def _written(letter: str, width: int, time: _Time) -> str:
    if letter == "y":
        year = time.year if time.year > 0 else 1 - time.year
        return f"{year % 100:02}" if width == 2 else f"{year:0{width}}"
    if letter == "M" and width > 2:
        return _MONTHS[time.month - 1] if width > 3 else _MONTHS[time.month - 1][:3]
    if letter == "E":
        name = _DAYS[(time.days + 3) % 7]
        return name if width > 3 else name[:3]
    seconds, milliseconds = divmod(time.ms, 1000)
    minutes, hour = seconds // 60, seconds // 3600
    if letter in "azZX":
        zone = {"a": "AM" if hour < 12 else "PM", "z": "UTC", "Z": "+0000", "X": "Z"}
        return zone[letter] if letter != "z" or width < 4 else "Coordinated Universal Time"
    numbers = {
        "M": time.month,
        "d": time.day,
        "H": hour,
        "k": hour or 24,
        "K": hour % 12,
        "h": hour % 12 or 12,
        "m": minutes % 60,
        "s": seconds % 60,
        "S": milliseconds,
        "D": time.days - _days(time.year, 1, 1) + 1,
        "u": (time.days + 3) % 7 + 1,
    }
    return f"{numbers[letter]:0{width}}"


def _read(letter: str, token: str, text: str, at: int, found: dict[str, int], *, adjacent: bool) -> int:
    """Read one field of a text into ``found``; return the offset behind it."""
    if letter == "M" and len(token) > 2:
        return _read_name(_MONTHS, "M", text, at, found)
    if letter == "E":
        return _read_name(_DAYS, "E", text, at, found)
    if letter == "a":
        return _read_name(("AM", "PM"), "a", text, at, found)
    if letter in "zZX":
        return _read_zone(letter, len(token), text, at, found)
    end = at + len(token) if adjacent else len(text)
    match = _NUMBER.match(text, at, end)
    if match is None or end > len(text):
        raise ValueError(text)
    number = int(match[0])
    if letter == "y" and len(token) <= 2 and len(match[0].strip()) == 2:
        found["yy"] = 1
    found[letter] = number
    return match.end()


def _read_name(known: tuple[str, ...], letter: str, text: str, at: int, found: dict[str, int]) -> int:
    for number, name in enumerate(known, 1):
        for form in (name, name[:3]):
            if text[at : at + len(form)].lower() == form.lower():
                found[letter] = number
                return at + len(form)
    raise ValueError(text)


def _read_zone(letter: str, width: int, text: str, at: int, found: dict[str, int]) -> int:
    form = _ISO_ZONES[width - 1] if letter == "X" else _ZONE
    match = form.match(text, at)
    if match is None:
        raise ValueError(text)
    sign, hours, minutes = (*filter(None, match.groups()), "", "", "")[:3]
    offset = int(hours or 0) * 60 + int(minutes or 0)
    found["Z"] = -offset if sign == "-" else offset
    return match.end()


def _milliseconds(found: dict[str, int]) -> int:
    """Return the time of read fields; two digits of a year are one of the hundred that began 80 years ago."""
    if "yy" not in found:
        return _lenient(found)
    now = datetime.now(UTC)
    first = now.year - 80
    year = first - first % 100 + found["y"]
    year += 100 if year < first else 0
    time = _lenient({**found, "y": year})
    start = _days(first, now.month, now.day) * _MS_PER_DAY + (now.hour * 60 + now.minute) * 60_000
    return _lenient({**found, "y": year + 100}) if year == first and time < start else time


def _lenient(found: dict[str, int]) -> int:
    """Return the time of read fields, which may be out of range, as a lenient calendar has it."""
    months = found.get("M", 1) - 1
    year = found.get("y", 1970) + months // 12
    days = _days(year, months % 12 + 1, 1) + found.get("d", 1) - 1
    if "D" in found:
        days = _days(year, 1, 1) + found["D"] - 1
    hours = found.get("H", 0 if found.get("k") == 24 else found.get("k", 0))
    if "K" in found or "h" in found:
        half = 0 if found.get("h") == 12 else found.get("h", 0)
        hours = found.get("K", half) + (12 if found.get("a") == 2 else 0)
    seconds = (hours * 60 + found.get("m", 0) - found.get("Z", 0)) * 60 + found.get("s", 0)
    return days * _MS_PER_DAY + seconds * 1000 + found.get("S", 0)


_DAY_MS = 86_400_000
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
"""A number as ``BigDecimal`` reads it."""
_TIME, _DATE = JavaDateFormat("HH:mm:ss.SSS'Z'"), JavaDateFormat("yyyy-MM-dd")
_TIMESTAMP = JavaDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
_FLOAT = struct.Struct("<f")


def float32(value: float) -> float:
    """Return the 4-byte float that is nearest to a number."""
    try:
        rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def decimal_of(schema: RecordSchema, unscaled: bytes) -> Decimal:
    """Return the number that a Decimal's bytes stand for.

    Args:
        schema: Its schema, whose parameter ``scale`` counts.
        unscaled: The bytes.
    """
    scale = int((schema.parameters or {}).get("scale", "0"))
    sign, digits, _ = Decimal(int.from_bytes(unscaled, "big", signed=True)).as_tuple()
    return Decimal((sign, digits, -scale))  # scaleb would round to 28 digits


def unscaled_of(number: Decimal) -> tuple[int, int]:
    """Return unscaled value and scale of a finite number, as ``BigDecimal`` has them.

    Args:
        number: The number.
    """
    sign, digits, exponent = number.as_tuple()
    unscaled = int(Decimal((sign, digits, 0)))
    return unscaled, -int(exponent)


def decimal_bytes(unscaled: int) -> bytes:
    """Return the shortest two's complement bytes of a number."""
    size = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() >> 3) + 1
    return unscaled.to_bytes(size, "big", signed=True)


def java_decimal(number: Decimal) -> str:
    """Return a number as ``BigDecimal.toString`` does."""
    sign, digits, exponent = number.as_tuple()
    text, scale = "".join(map(str, digits)), -int(exponent)
    adjusted = len(text) - 1 - scale
    if scale >= 0 and adjusted >= -6:
        if scale:
            text = text.rjust(scale + 1, "0")
            text = f"{text[:-scale]}.{text[-scale:]}"
    else:
        text = text[0] + (f".{text[1:]}" if len(text) > 1 else "") + (f"E{adjusted:+d}" if adjusted else "")
    return "-" * sign + text


def java_number(kind: str, value: float) -> str:
    """Return a floating point number as Java's ``toString`` does.

    Args:
        kind: ``float`` or ``double``.
        value: The number.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return java_float(value) if kind == "float" else java_double(value)


def milliseconds_of(schema: RecordSchema, value: int) -> int | None:
    """Return the milliseconds of Connect's Date, Time or Timestamp; None for other schemas."""
    if schema.name == CONNECT_DATE:
        return value * _DAY_MS
    return value if schema.name in (CONNECT_TIME, CONNECT_TIMESTAMP) else None


def date_text(milliseconds: int) -> str:
    """Return a ``java.util.Date`` as ``Values.dateFormatFor`` writes it."""
    if milliseconds < _DAY_MS:
        return _TIME.format(milliseconds)
    return (_TIMESTAMP if milliseconds % _DAY_MS else _DATE).format(milliseconds)


def value_text(schema: RecordSchema | None, value: Any, *, embedded: bool = False) -> str:
    """Return a value as text, a struct, array or map like JSON.

    Args:
        schema: Its schema, or None.
        value: The value.
        embedded: Whether it is inside of another one, where text stands in quotes.
    """
    if value is None:
        return "null"
    kind = None if schema is None else schema.type
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value) if embedded else value
    if schema is not None and isinstance(value, int) and (ms := milliseconds_of(schema, value)) is not None:
        return date_text(ms)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return java_number("float" if kind == "float" else "double", value)
    if isinstance(value, bytes):
        if schema is not None and schema.name == DECIMAL:
            return java_decimal(decimal_of(schema, value))
        text = b2a_base64(value, newline=False).decode()
        return f'"{text}"' if embedded else text
    if isinstance(value, list):
        items = None if schema is None else schema.items
        return f"[{','.join(value_text(items, item, embedded=True) for item in value)}]"
    members: list[tuple[Any, RecordSchema | None, Any]]
    if schema is not None and kind == "struct":
        members = [(m.name, m.schema, m.read(value)) for m in schema.fields]
    else:
        members = [(name, None if schema is None else schema.items, member) for name, member in value.items()]
    texts = (f"{value_text(None, n, embedded=True)}:{value_text(s, v, embedded=True)}" for n, s, v in members)
    return "{" + ",".join(texts) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
