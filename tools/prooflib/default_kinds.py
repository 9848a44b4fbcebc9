"""Kinds of explained differences in default values: what Debezium leaves of the way SQL writes them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from prooflib.ddl_kinds import unescaped
from prooflib.records import Number
from prooflib.time_kinds import moment_of
from prooflib.values import in_row, in_stream, is_default, of_members, schema_of, texts
from prooflib.volatile import schema_at

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Units a second of the types of a time of day.
_DAY_UNITS = {
    "io.debezium.time.Time": 1000,
    "io.debezium.time.MicroTime": 1_000_000,
    "io.debezium.time.NanoTime": 1_000_000_000,
    "org.apache.kafka.connect.data.Time": 1000,
}
_ISO_TIME = "io.debezium.time.IsoTime"
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_SIGNED = re.compile(r"(-?)(?:(\d+) )?(.*?)(?:\.(\d{1,6}))?")
_PLAIN = re.compile(r"(\d{4}|\d\d)(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d))?(?:\.(\d{1,6}))?")
_DATE = re.compile(r"(\d{1,4})\D(\d{1,2})\D(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2}))?(?:\.(\d{1,6}))?)?")


def is_written(name: str, value: Any, moment: datetime | None, text: str | None) -> bool:
    """Return whether a default is the one that a schema change has as text, in any notation that MySQL reads.

    Args:
        name: Name of the default's schema.
        value: The default.
        moment: The default as a moment, None if its type is none.
        text: The ``defaultValueExpression`` of its column.
    """
    if text is None:
        return False
    if name == "io.debezium.data.Bits":
        return isinstance(value, str) and _is_bits(int.from_bytes(base64.b64decode(value), "little"), text)
    try:
        if name in _DAY_UNITS:
            clock = timedelta(microseconds=int(value) * 1_000_000 // _DAY_UNITS[name])
            return any(clock == written for written in _rounded(_clock(text)))
        if name == _ISO_TIME:
            clock = datetime.fromisoformat(f"1970-01-01T{value}") - EPOCH
            return any(clock == written for written in _rounded(_clock(text)))
        written_moment = _moment(text)
    except (ValueError, OverflowError):
        return False
    # A zero date has no value; NOT NULL it is the epoch.
    if written_moment is None:
        return moment == EPOCH
    return any(moment == EPOCH + since for since in _rounded(written_moment - EPOCH))


def _rounded(exact: timedelta) -> Iterator[timedelta]:
    """Yield a time rounded to each number of digits that a column may keep of its seconds."""
    sign, size = (-1, -exact) if exact < timedelta(0) else (1, exact)
    for digits in range(7):
        step = timedelta(microseconds=10 ** (6 - digits))
        yield sign * ((size + step / 2) // step * step)


def _clock(text: str) -> timedelta:
    """Return a TIME: [-][days ]h:m[:s][.fraction], or digits that end with those of the seconds."""
    match = _SIGNED.fullmatch(text)
    assert match is not None
    parts = match[3].split(":")
    if len(parts) == 1:
        digits = parts[0].rjust(6, "0")
        parts = [digits[:-4], digits[-4:-2], digits[-2:]]
    hours, minutes, seconds = (int(p) for p in (*parts, "0")[:3])
    fraction = int((match[4] or "").ljust(6, "0"))
    size = timedelta(days=int(match[2] or 0), hours=hours, minutes=minutes, seconds=seconds, microseconds=fraction)
    return -size if match[1] else size


def _moment(text: str) -> datetime | None:
    """Return a date or a moment, delimited or as digits; None if it is a zero date.

    Raises:
        ValueError: The text is neither.
    """
    match = _PLAIN.fullmatch(text) or _DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if 0 in (month, day):
        return None
    if len(match[1]) <= 2:
        year += 2000 if year < 70 else 1900
    return datetime(year, month, day, hour, minute, second, int((match[7] or "").ljust(6, "0")), UTC)


def _is_bits(number: int, text: str) -> bool:
    """Return whether a text is a number, or its bits or hexadecimal digits, the last one perhaps cut."""
    digits = text.lower().lstrip("0")
    forms = {str(number), f"{number:b}", f"{number:b}"[:-1], f"{number:x}", f"{number:x}"[:-1]}
    return (digits or "0") in forms or (text, number) == ("true", 1)


if TYPE_CHECKING:
    from prooflib.differ import Difference

_REPLACES = "value.converter.replace.null.with.default"
_UNREAD = (
    "io.debezium.time.",
    "io.debezium.data.Bits",
    "org.apache.kafka.connect.data.Date",
    "org.apache.kafka.connect.data.Time",
)
# Character sets whose text SHOW CREATE TABLE prints in hexadecimal, because utf8mb3 cannot hold it.
_WIDE_CHARSETS = ("utf-8", "utf-16-be", "utf-16-le", "utf-32-be", "gb18030")
_BINARY_FORMS: tuple[Callable[[str], bytes], ...] = (base64.b64decode, base64.urlsafe_b64decode, bytes.fromhex)


def hex_text_default(d: Difference) -> bool:
    """Return whether the recorded default of a text is its bytes in hexadecimal without the last digit."""
    if not texts(d) or not d.theirs:
        return False
    return any(d.ours.encode(charset).hex().upper()[:-1] == d.theirs for charset in _WIDE_CHARSETS)


def escaped_bytes(d: Difference) -> bool:
    """Return whether the recorded bytes are ours as SQL writes them, with backslash escapes.

    In a row it holds for a NULL that the default replaces.
    """
    if not texts(d) or (in_row(d) and not is_default(d)):
        return False
    for decode in _BINARY_FORMS:
        try:
            ours, theirs = decode(d.ours), decode(d.theirs)
        except ValueError:
            continue
        if unescaped(ours.decode("latin-1"), theirs.decode("latin-1")):
            return True
    return False


def sql_literal(d: Difference) -> bool:
    """Return whether the recorded default is a literal as SQL writes it: x'..', b'..', N'..', TRUE, 'a' 'b', 007.

    0x.. and 0b.. lack their last digit then.
    """
    if d.pair[1] is None or d.pair[1].snapshot or not isinstance(d.ours, str) or not isinstance(d.theirs, str):
        return False
    bits = d.path[-1] == "defaultValueExpression" and set(d.ours) <= {"0", "1"}
    if _written_number(d.ours, d.theirs) or (bits and _written_number(str(int(d.ours or "0", 2)), d.theirs)):
        return True
    if bits and len(d.ours) > 1 and d.ours[:-1] == d.theirs:
        return True
    if not texts(d):
        return False
    if d.ours[:2] == "0x" and d.theirs.lower() == d.ours[2:].lower():
        return True
    forms = [(d.ours, d.theirs)]
    for decode in _BINARY_FORMS:
        try:
            forms.append((decode(d.ours).decode("latin-1"), decode(d.theirs).decode("latin-1")))
        except ValueError:
            continue
    is_json = schema_of(d).get("name") == "io.debezium.data.Json"
    return any(_written(ours, theirs) or (not is_json and _same_number(ours, theirs)) for ours, theirs in forms)


def _written_number(number: str, literal: str) -> bool:
    """Return whether a literal is a number in bits or hexadecimal digits, the last one of these perhaps cut."""
    if not number.isdigit() or not re.fullmatch("[0-9a-fA-F]+", literal):
        return False
    digits, value = literal.lower().lstrip("0"), int(number)
    return digits in (f"{value:b}", f"{value:x}") or (value > 15 and digits == f"{value:x}"[:-1])


def rounded_half(d: Difference) -> bool:
    """Return whether the recorded default of an integer is a negative half rounded up where ours is rounded down."""
    numbers = isinstance(d.ours, Number) and isinstance(d.theirs, Number)
    if not numbers or d.path[-1] != "default" or d.pair[1] is None or d.pair[1].snapshot:
        return False
    return d.ours.startswith("-") and "." not in d.ours + d.theirs and int(d.theirs) - int(d.ours) == 1


def cut_bits(d: Difference) -> bool:
    """Return whether the recorded default of a BIT(n) is ours without its last bit."""
    if not texts(d) or d.path[-1] != "default" or d.pair[1] is None or d.pair[1].snapshot:
        return False
    try:
        ours, theirs = (int.from_bytes(base64.b64decode(v), "little") for v in (d.ours, d.theirs))
    except ValueError:
        return False
    return ours > 1 and ours >> 1 == theirs


def _written(value: str, literal: str) -> bool:
    data = value.encode("utf-8" if any(c > "\xff" for c in value) else "latin-1")
    bits = "".join(f"{byte:08b}" for byte in data)
    words = {"1": "true", "0": "false"}
    adjacent = "''" in literal and literal.replace("''", "") == value
    return adjacent or literal.lower() in (data.hex(), bits, f"n'{value.lower()}'", words.get(value))


def _same_number(value: str, literal: str) -> bool:
    are_numbers = _NUMBER.fullmatch(value) is not None and _NUMBER.fullmatch(literal) is not None
    return are_numbers and Decimal(value) == Decimal(literal)


def unpadded(d: Difference) -> bool:
    """Return whether the recorded stream lacks the zero byte of our BINARY without a length, which is one of 1."""
    if not texts(d) or not in_stream(d) or d.theirs or schema_of(d).get("type") not in ("bytes", "string"):
        return False
    return d.ours in ("AA==", "00")


def unread_default(d: Difference, settings: Mapping[str, str]) -> bool:
    """Return whether the recorded stream lacks our default of a date, a time or a bit string, or has 0 (NOT NULL).

    A recorded statement before the record gave the table its structure, and the column this default. In a row it
    holds for a NULL that our default replaces.
    """
    ours, theirs = d.pair
    if ours is None or theirs is None or theirs.snapshot:
        return False
    in_schema = d.path[-1] == "default"
    # Images and columns are in brackets in the path of a schema.
    steps = [s[1:-1] for s in d.path if s[0] == "["] if in_schema else d.path[2:]
    mine, other = (schema_at(r, (d.path[0], "payload", *steps)) for r in (ours, theirs))
    if not (isinstance(mine, dict) and isinstance(other, dict)) or not _may_be_unread(mine) or "default" not in mine:
        return False
    name, default = str(mine.get("name")), mine["default"]
    if not is_written(name, default, moment_of(name, default), _recorded_default(d, steps[-1])):
        return False
    if in_schema:
        return other.get("default", "0") in ("0", "1970-01-01Z", "1970-01-01T00:00:00Z", "00:00:00Z")
    replaced = settings.get(_REPLACES, "true") != "false"
    return replaced and d.theirs is None and "default" not in other and bool(mine["default"] == d.ours)


def _recorded_default(d: Difference, column: str) -> str | None:
    """Return the default that the last recorded statement on the table gave a column, None without one."""
    for change in reversed(d.context.statements):
        for table in (c["table"] for c in change.payload["tableChanges"] if c["table"]):
            for found in table["columns"]:
                if found["name"] == column:
                    text = found.get("defaultValueExpression")
                    return text if isinstance(text, str) else None
    return None


def _may_be_unread(schema: dict[str, Any]) -> bool:
    return str(schema.get("name")).startswith(_UNREAD)


def trailing_blanks(d: Difference) -> bool:
    """Return whether the recorded members of an ENUM or SET have blanks at their end, which the server cuts."""
    if not texts(d) or not in_stream(d):
        return False
    if d.path[:2] == ("value", "payload") and "enumValues" not in d.path and not of_members(d):
        return False
    return bool(re.sub(r" +(?='?(,|$))", "", d.theirs) == d.ours)


def zero_length(d: Difference) -> bool:
    """Return whether the recorded length of a column is 10 where ours is 0."""
    return (d.ours, d.theirs) == ("0", "10")
