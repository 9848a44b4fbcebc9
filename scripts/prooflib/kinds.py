"""Kinds of explained differences: conditions on two values that a path alone cannot state.

A kind looks at both values, at the recorded field schema and at whether a snapshot wrote the record, so that an entry
of the list explains exactly the case its reason names, in workloads not seen before as well.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from prooflib import charset_kinds, ddl_kinds, default_kinds
from prooflib.records import Number
from prooflib.volatile import schema_at

if TYPE_CHECKING:
    from prooflib.differ import Difference

Kind = Callable[["Difference"], bool]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLOAT_MAX = 3.4028234663852886e38
# Units a second of the time types, by schema name.
_UNITS = {
    "io.debezium.time.Timestamp": 1000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
    "org.apache.kafka.connect.data.Timestamp": 1000,
}
_ISO = ("io.debezium.time.IsoDate", "io.debezium.time.IsoTimestamp", "io.debezium.time.ZonedTimestamp")
_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")


def schema_of(d: Difference) -> dict[str, Any]:
    """Return the recorded schema of the value that differs, or of the list it stands in; empty when there is none."""
    record = d.pair[1] or d.pair[0]
    if record is None or d.path[1:2] != ("payload",):
        return {}
    path = d.path
    while path and path[-1].startswith("["):
        path = path[:-1]
    found = schema_at(record, path)
    return found if isinstance(found, dict) else {}


def _in_snapshot(d: Difference) -> bool:
    return d.pair[1] is not None and d.pair[1].snapshot


def _texts(d: Difference) -> bool:
    both = (d.ours, d.theirs)
    return all(isinstance(v, str) and not isinstance(v, Number) for v in both)


def _numbers(d: Difference) -> bool:
    return isinstance(d.ours, Number) and isinstance(d.theirs, Number)


# -- JSON columns ---------------------------------------------------------------------------------------------------

_TEMPORAL = re.compile(r"(-?\d{2,3}:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d{1,6})?")
_OPAQUE = re.compile(r"base64:type\d+:")
_GARBLED_TIME = re.compile(r"-?\d+:\d?-\d+:(\d?-)?\d+(\.\d*-?\d*)?")


def _json_documents(d: Difference) -> tuple[Any, Any] | None:
    if not _texts(d) or not str(schema_of(d).get("name", "")).endswith("data.Json"):
        return None
    try:
        ours, theirs = (json.loads(t, parse_float=Decimal, parse_int=Decimal) for t in (d.ours, d.theirs))
    except (ValueError, InvalidOperation):
        return None
    return ours, theirs


def _json_equal(a: Any, b: Any, text: Callable[[str, str], bool]) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(_json_equal(v, b[k], text) for k, v in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_json_equal(x, y, text) for x, y in zip(a, b, strict=True))
    if isinstance(a, Decimal) and isinstance(b, Decimal):
        return a == b or float(a) == float(b)
    if isinstance(a, str) and isinstance(b, str):
        return a == b or text(a, b)
    return type(a) is type(b) and bool(a == b)


def json_text(d: Difference) -> bool:
    """Return whether both texts are the same JSON document: blanks, and the notation of doubles, may differ."""
    documents = _json_documents(d)
    return documents is not None and _json_equal(*documents, lambda a, b: False)


def json_opaque(d: Difference) -> bool:
    """Return whether the documents are equal but for the text of dates, times and opaque values inside them."""
    documents = _json_documents(d)
    return documents is not None and _json_equal(*documents, _same_opaque)


def _same_opaque(ours: str, theirs: str) -> bool:
    if _OPAQUE.sub("", ours, count=1) == theirs and _OPAQUE.match(ours):
        return True
    match = _TEMPORAL.fullmatch(ours)
    if match is None:
        return False
    whole, fraction = match[1], (match[2] or "").rstrip("0").rstrip(".")
    return theirs in (whole + fraction, whole) if not fraction else theirs.rstrip("0") == whole + fraction


def json_negative_time(d: Difference) -> bool:
    """Return whether the documents are equal but for a negative TIME that the recorded text garbles."""
    documents = _json_documents(d)
    return documents is not None and _json_equal(
        *documents, lambda a, b: _same_opaque(a, b) or (a[:1] == "-" and _GARBLED_TIME.fullmatch(b) is not None)
    )


def json_garbled_datetime(d: Difference) -> bool:
    """Return whether the documents are equal but for a DATETIME whose time of day the recorded text garbles."""
    documents = _json_documents(d)
    return documents is not None and _json_equal(*documents, _garbled_datetime)


def _garbled_datetime(ours: str, theirs: str) -> bool:
    day, blank, clock = theirs.partition(" ")
    whole = bool(blank) and ours[:11] == day + " " and _TEMPORAL.fullmatch(ours) is not None
    return (whole and _GARBLED_TIME.fullmatch(clock) is not None) or _same_opaque(ours, theirs)


# -- numbers --------------------------------------------------------------------------------------------------------


def float_text(d: Difference) -> bool:
    """Return whether both numbers are the same 4-byte float."""
    return _is_float(d) and _single(d.ours) == _single(d.theirs)


def float_six_digits(d: Difference) -> bool:
    """Return whether the recorded snapshot has the six digits that MySQL prints of our FLOAT."""
    if not _is_float(d) or not _in_snapshot(d):
        return False
    printed = f"{float(d.ours):.6g}"
    # A FLOAT without scale is a 4-byte number again when Java has read the six digits.
    return float(printed) == float(d.theirs) or (_of_type(d, "float") and _single(printed) == _single(d.theirs))


def reversed_bits(d: Difference) -> bool:
    """Return whether the recorded snapshot has a bit string with its highest byte first."""
    if not _texts(d) or not _in_snapshot(d) or schema_of(d).get("name") != "io.debezium.data.Bits":
        return False
    return base64.b64decode(d.ours)[::-1] == base64.b64decode(d.theirs)


def real_as_float(d: Difference) -> bool:
    """Return whether the recorded stream has our double as a 4-byte float, or a number beyond its range as infinity."""
    if d.pair[1] is None or _in_snapshot(d):
        return False
    if d.path[-1] == "type":
        return (d.ours, d.theirs) == ("double", "float")
    if not _of_type(d, "float") or not isinstance(d.ours, Number):
        return False
    infinite = d.theirs == ("-Infinity" if float(d.ours) < 0 else "Infinity") and abs(float(d.ours)) > _FLOAT_MAX
    return infinite or (_numbers(d) and abs(float(d.ours)) <= _FLOAT_MAX and _single(d.ours) == _single(d.theirs))


def lost_float4(d: Difference) -> bool:
    """Return whether the recorded stream has a double, always null, where we have a 4-byte float."""
    ours, theirs = d.pair
    if ours is None or theirs is None or _in_snapshot(d):
        return False
    if d.path[-1] == "type":
        values = [theirs.at("value", "payload", image, d.path[-2][1:-1]) for image in ("before", "after")]
        return (d.ours, d.theirs) == ("float", "double") and values == [None, None]
    return d.theirs is None and (schema_at(ours, d.path) or {}).get("type") == "float" and _of_type(d, "double")


def _is_float(d: Difference) -> bool:
    return _numbers(d) and _of_type(d, "float", "double")


def _of_type(d: Difference, *types: str) -> bool:
    schema = schema_of(d)
    return schema.get("type") in types or ("items" in schema and schema["items"].get("type") in types)


def _single(value: str) -> bytes:
    return struct.pack("<f", float(value))


# -- dates ----------------------------------------------------------------------------------------------------------


def year_zero(d: Difference) -> bool:
    """Return whether our YEAR 0000 is a year that the recorded capture made up of it."""
    if d.path[0] == "headers":
        return _texts(d) and d.theirs != d.ours == d.theirs.replace(":1900", ":0")
    of_year = schema_of(d).get("name") == "io.debezium.time.Year" or d.path[-1] == "default"
    return of_year and d.ours == "0" and d.theirs in ("2000", "1900")


def date_in_year_zero(d: Difference) -> bool:
    """Return whether the recorded snapshot moved a date of the year 0000 by 2000 years, a DATETIME by one more.

    Ours is null, or the epoch where the column is NOT NULL.
    """
    if not _in_snapshot(d) or not isinstance(d.theirs, str):
        return False
    epoch = isinstance(d.ours, str) and _moment(d, d.ours) == _EPOCH and not schema_of(d).get("optional", True)
    if d.ours is not None and not epoch:
        return False
    # With enable.time.adjuster=false it stays in the years 0 and 1, which datetime does not reach.
    moments = (_moment(d, d.theirs), _moment(d, d.theirs, timedelta(days=2000 * 365 + 485)))
    return any(m is not None and m.year in (2000, 2001) for m in moments)


def gregorian_gap(d: Difference) -> bool:
    """Return whether the recorded snapshot has a day of October 5 to 14, 1582, ten days later."""
    if not isinstance(d.ours, str) or not isinstance(d.theirs, str) or not _in_snapshot(d):
        return False
    ours, theirs = _moment(d, d.ours), _moment(d, d.theirs)
    if ours is None or theirs is None or theirs - ours != timedelta(days=10):
        return False
    return datetime(1582, 10, 5, tzinfo=UTC) <= ours < datetime(1582, 10, 15, tzinfo=UTC)


def _moment(d: Difference, value: str, later: timedelta = timedelta(0)) -> datetime | None:
    try:
        return _read_moment(str(schema_of(d).get("name")), value, later)
    except (ValueError, OverflowError):
        # Debezium has years before 1 and after 9999, too.
        return None


def _read_moment(name: str, value: str, later: timedelta) -> datetime | None:
    if name in _ISO:
        moment = datetime.fromisoformat(value.removesuffix("Z"))
        return moment.replace(tzinfo=UTC) + later
    if name in _DAYS:
        return _EPOCH + (timedelta(days=int(value)) + later)
    unit = _UNITS.get(name)
    return None if unit is None else _EPOCH + (timedelta(microseconds=int(value) * 1_000_000 // unit) + later)


def zone_of_session(d: Difference) -> bool:
    """Return whether the recorded snapshot has a TIMESTAMP moved by the offset of a time zone."""
    if not _texts(d) or not _in_snapshot(d) or schema_of(d).get("name") != "io.debezium.time.ZonedTimestamp":
        return False
    try:
        ours, theirs = (datetime.fromisoformat(v) for v in (d.ours, d.theirs))
    except ValueError:
        return False
    moved = abs(ours - theirs)
    return timedelta(0) < moved <= timedelta(hours=14) and moved % timedelta(minutes=15) == timedelta(0)


def full_day(d: Difference) -> bool:
    """Return whether the recorded time of day is midnight where we have null."""
    iso = schema_of(d).get("name") == "io.debezium.time.IsoTime"
    return iso and d.ours is None and d.theirs == "00:00:00Z"


def trailing_zeros(d: Difference) -> bool:
    """Return whether the recorded snapshot cut the zeros at the end of our fraction of a second."""
    if not _texts(d) or not _in_snapshot(d) or schema_of(d).get("name") != "io.debezium.time.ZonedTimestamp":
        return False
    whole, dot, fraction = d.ours.removesuffix("Z").partition(".")
    return bool(dot) and f"{whole}.{fraction}".rstrip("0").rstrip(".") + "Z" == d.theirs


# -- text -----------------------------------------------------------------------------------------------------------


def escaped_comma(d: Difference) -> bool:
    """Return whether the recorded text has a backslash before commas."""
    return _texts(d) and str(d.ours) == d.theirs.replace("\\,", ",")


def doubled_quotes(d: Difference) -> bool:
    """Return whether the recorded text has each quote doubled, as SQL writes it."""
    return _texts(d) and d.ours == d.theirs.replace("''", "'")


def hex_default(d: Difference) -> bool:
    """Return whether the recorded default is the text of our hexadecimal literal without 0x and its last digit."""
    if not _texts(d):
        return False
    if d.path[-1] == "defaultValueExpression":
        return bool(d.ours[:2].lower() == "0x" and d.ours[2:-1] == d.theirs)
    for decode in (base64.b64decode, base64.urlsafe_b64decode, bytes.fromhex):
        try:
            ours, theirs = decode(d.ours), decode(d.theirs)
        except ValueError:
            continue
        if ours and ours.hex().upper()[:-1].encode() == theirs.upper():
            return True
    return False


def recorded_null(d: Difference) -> bool:
    """Return whether the recorded value is null where ours is a text."""
    return d.theirs is None and isinstance(d.ours, str)


def undefined_byte(d: Difference) -> bool:
    """Return whether the texts differ only where ours has a control character of latin1 (0x80 to 0x9F)."""
    if not _texts(d):
        return False
    pattern = "".join("\ufffd?" if "\x80" <= c <= "\x9f" else re.escape(c) for c in d.ours)
    return any("\x80" <= c <= "\x9f" for c in d.ours) and re.fullmatch(pattern, d.theirs, re.DOTALL) is not None


def replaced_characters(d: Difference) -> bool:
    """Return whether the recorded text is full of replacement characters where ours has text."""
    return _texts(d) and "\ufffd" in d.theirs and "\ufffd" not in d.ours


# -- records --------------------------------------------------------------------------------------------------------


def truncation(d: Difference) -> bool:
    """Return whether the record is a truncate event."""
    return all(r is not None and isinstance(r.payload, dict) and r.payload.get("op") == "t" for r in d.pair)


def ours_only(d: Difference) -> bool:
    """Return whether the recorded capture lacks a record that we have."""
    return d.path == ("record",) and d.pair[1] is None


def undecided_xa(d: Difference) -> bool:
    """Return whether only the recorded capture has a streamed row, of an XA transaction (it names no thread)."""
    ours, theirs = d.pair
    if d.path != ("record",) or ours is not None or theirs is None or not isinstance(theirs.payload, dict):
        return False
    source = theirs.payload.get("source") or {}
    return (
        source.get("snapshot") == "false"
        and source.get("thread") is None
        and theirs.payload.get("op") in ("c", "u", "d")
    )


KINDS: dict[str, Kind] = {
    "any": lambda _: True,
    "json-text": json_text,
    "json-opaque": json_opaque,
    "json-negative-time": json_negative_time,
    "float-text": float_text,
    "float-six-digits": float_six_digits,
    "year-zero": year_zero,
    "date-in-year-zero": date_in_year_zero,
    "gregorian-gap": gregorian_gap,
    "zone-of-session": zone_of_session,
    "full-day": full_day,
    "zero-length": default_kinds.zero_length,
    "sql-literal": default_kinds.sql_literal,
    "rounded-half": default_kinds.rounded_half,
    "cut-bits": default_kinds.cut_bits,
    "unpadded": default_kinds.unpadded,
    "trailing-blanks": default_kinds.trailing_blanks,
    "unread-default": default_kinds.unread_default,
    "trailing-zeros": trailing_zeros,
    "escaped-comma": escaped_comma,
    "doubled-quotes": doubled_quotes,
    "hex-default": hex_default,
    "hex-text-default": default_kinds.hex_text_default,
    "escaped-bytes": default_kinds.escaped_bytes,
    "reversed-bits": reversed_bits,
    "real-as-float": real_as_float,
    "lost-float4": lost_float4,
    "json-garbled-datetime": json_garbled_datetime,
    "server-charset": charset_kinds.server_charset,
    "recorded-null": recorded_null,
    "undefined-byte": undefined_byte,
    "replaced-characters": replaced_characters,
    "schema-change": ddl_kinds.schema_change,
    "unselected-key": ddl_kinds.unselected_key,
    "stale-query": ddl_kinds.stale_query,
    "unclosed-comment": ddl_kinds.unclosed_comment,
    "cut-create": ddl_kinds.cut_create,
    "requoted": ddl_kinds.requoted,
    "backslashes": ddl_kinds.backslashes,
    "overlooked-charset": ddl_kinds.overlooked_charset,
    "truncation": truncation,
    "ours-only": ours_only,
    "undecided-xa": undecided_xa,
}
