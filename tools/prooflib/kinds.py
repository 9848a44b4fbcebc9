"""Kinds of explained differences: conditions on two values that a path alone cannot state.

A kind looks at both values, at the recorded field schema and at whether a snapshot wrote the record, so that an entry
of the list explains exactly the case its reason names, in workloads not seen before as well. Where these cannot
distinguish a fault of ours from the case, the kind uses the record's context (``context``), or the entry names the
column.
"""

from __future__ import annotations

import base64
import codecs
import re
import struct
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.decode.values.text_values import charset
from prooflib import adhoc_kinds, ddl_kinds, default_kinds, json_kinds, record_kinds, time_kinds
from prooflib.records import Number
from prooflib.values import in_snapshot, in_stream, name_of, numbers, of_type, schema_of, single, texts
from prooflib.volatile import schema_at

if TYPE_CHECKING:
    from prooflib.differ import Difference


Kind = Callable[["Difference"], bool]
_BEYOND_BASIC_PLANE = re.compile("[\U00010000-\U0010ffff]")
_CONTROL = re.compile("[\x80-\x9f]")
_FLOAT_MAX = 3.4028234663852886e38

# -- numbers --------------------------------------------------------------------------------------------------------


def float_text(d: Difference) -> bool:
    """Return whether both numbers are the same 4-byte float, or the same double where the type is one."""
    if not numbers(d):
        return False
    if of_type(d, "double"):
        return float(d.ours) == float(d.theirs)
    return of_type(d, "float") and single(d.ours) == single(d.theirs)


def float_six_digits(d: Difference) -> bool:
    """Return whether the recorded snapshot has the six digits that MySQL prints of our FLOAT."""
    if not _is_float(d) or not in_snapshot(d):
        return False
    # A FLOAT(m,d) is a double in Connect; no DOUBLE is meant, and few are 4-byte floats.
    if struct.unpack("<f", single(d.ours))[0] != float(d.ours) and not of_type(d, "float"):
        return False
    printed = f"{float(d.ours):.6g}"
    # A FLOAT without scale is a 4-byte number again when Java has read the six digits.
    return float(printed) == float(d.theirs) or (of_type(d, "float") and single(printed) == single(d.theirs))


def reversed_bits(d: Difference) -> bool:
    """Return whether the recorded snapshot has a bit string with its highest byte first."""
    if not texts(d) or not in_snapshot(d) or name_of(d) != "io.debezium.data.Bits":
        return False
    return base64.b64decode(d.ours)[::-1] == base64.b64decode(d.theirs)


def real_as_float(d: Difference) -> bool:
    """Return whether the recorded stream has our double as a 4-byte float, or a number beyond its range as infinity."""
    if d.pair[1] is None or in_snapshot(d):
        return False
    if d.path[-1] == "type":
        return (d.ours, d.theirs) == ("double", "float")
    if not of_type(d, "float") or not isinstance(d.ours, Number):
        return False
    infinite = d.theirs == ("-Infinity" if float(d.ours) < 0 else "Infinity") and abs(float(d.ours)) > _FLOAT_MAX
    return infinite or (numbers(d) and abs(float(d.ours)) <= _FLOAT_MAX and single(d.ours) == single(d.theirs))


def lost_float4(d: Difference) -> bool:
    """Return whether the recorded stream has a double, always null, where we have a 4-byte float."""
    ours, theirs = d.pair
    if ours is None or theirs is None or in_snapshot(d):
        return False
    if d.path[-1] == "type":
        values = [theirs.at("value", "payload", image, d.path[-2][1:-1]) for image in ("before", "after")]
        return (d.ours, d.theirs) == ("float", "double") and values == [None, None]
    return d.theirs is None and (schema_at(ours, d.path) or {}).get("type") == "float" and of_type(d, "double")


def _is_float(d: Difference) -> bool:
    return numbers(d) and of_type(d, "float", "double")


# -- text -----------------------------------------------------------------------------------------------------------


def escaped_comma(d: Difference) -> bool:
    """Return whether the recorded stream has a backslash before the commas of an ENUM's value."""
    if not texts(d) or not in_stream(d) or name_of(d) != "io.debezium.data.Enum":
        return False
    return bool(d.ours == d.theirs.replace("\\,", ","))


def shown_as_question_mark(d: Difference) -> bool:
    """Return whether the recorded text has ? for our characters beyond U+FFFF, as SHOW CREATE TABLE prints members."""
    return texts(d) and _BEYOND_BASIC_PLANE.search(d.ours) is not None and _asked(d.ours) == d.theirs


def _asked(text: str) -> str:
    return _BEYOND_BASIC_PLANE.sub("?", text)


def half_character(d: Difference) -> bool:
    """Return whether the recorded text ends with the first half of a character that ours leaves out."""
    return texts(d) and bool(re.fullmatch(re.escape(d.ours) + "[\ud800-\udbff]", d.theirs))


def doubled_quotes(d: Difference) -> bool:
    """Return whether the recorded text has each quote doubled, as SQL writes it."""
    return texts(d) and d.ours == d.theirs.replace("''", "'")


def hex_default(d: Difference) -> bool:
    """Return whether the recorded default is the text of our hexadecimal literal without 0x and its last digit."""
    if not texts(d):
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


def undefined_byte(d: Difference) -> bool:
    """Return whether the texts differ only where ours has a control character of latin1 (0x80 to 0x9F)."""
    if not texts(d) or _CONTROL.search(d.ours) is None:
        return False
    pattern = "\ufffd?".join(re.escape(part) for part in _CONTROL.split(d.ours))
    return re.fullmatch(pattern, d.theirs, re.DOTALL) is not None


def read_as_utf8(charset: str, d: Difference) -> bool:
    """Return whether the recorded stream reads the bytes of our text as UTF-8 and finds none.

    Args:
        charset: Python's name of the column's character set.
        d: The difference.
    """
    if not texts(d) or not in_stream(d) or schema_of(d).get("type") != "string" or name_of(d):
        return False
    try:
        return bool(d.ours.encode(charset).decode("utf-8", "replace") == d.theirs)
    except UnicodeEncodeError:
        return False


def server_charset(d: Difference) -> bool:
    """Return whether the recorded stream has what Java makes of the bytes of our text.

    MySQL has character sets that Java lacks, and others that Java reads differently; ours is the server's reading.
    """
    if not texts(d) or d.pair[1] is None or d.pair[1].snapshot or len(d.ours) != len(d.theirs):
        return False
    # sjis and cp932 have a fullwidth backslash, which MySQL converts to a plain one.
    if d.ours == d.theirs.replace("\uff3c", "\\"):
        return True
    return any(all((a, b) in pairs for a, b in zip(d.ours, d.theirs, strict=True)) for pairs in _charset_pairs())


# Character sets of MySQL and how Python names the Java charset that Connector/J takes for them.
_IN_JAVA = {
    **dict.fromkeys(("armscii8", "dec8", "geostd8", "hp8", "swe7"), "cp1252"),
    **{name: name for name in ("cp1250", "cp1251", "cp1256", "cp1257", "cp866")},
    **{"koi8u": "koi8_r", "keybcs2": "cp852", "greek": "iso8859_7", "hebrew": "iso8859_8", "tis620": "cp874"},
}


@cache
def _charset_pairs() -> tuple[frozenset[tuple[str, str]], ...]:
    """Return, by character set, the pairs of the server's character and Java's for the same byte."""
    found = []
    for name, java in _IN_JAVA.items():
        codes = [bytes((code,)) for code in range(256)]
        pairs = {(charset(name).decode(c), codecs.decode(c, java, "replace")) for c in codes}
        # Else a question mark of ours would pass for any letter of cp1252.
        found.append(frozenset(p for p in pairs if p[0] != "?" or p[1] in "?\ufffd" or java != "cp1252"))
    return tuple(found)


KINDS: dict[str, Kind] = {
    "any": lambda _: True,
    "json-text": json_kinds.json_text,
    "json-text-behind-transforms": json_kinds.json_text_behind_transforms,
    "blanks-in-json-value": json_kinds.blanks_in_json_value,
    "member-order-in-array": json_kinds.member_order_in_array,
    "json-opaque": json_kinds.json_opaque,
    "json-negative-time": json_kinds.json_negative_time,
    "float-text": float_text,
    "float-six-digits": float_six_digits,
    "year-zero": time_kinds.year_zero,
    "date-in-year-zero": time_kinds.date_in_year_zero,
    "new-year-of-zero": time_kinds.new_year_of_zero,
    "gregorian-gap": time_kinds.gregorian_gap,
    "zero-length": default_kinds.zero_length,
    "sql-literal": default_kinds.sql_literal,
    "rounded-half": default_kinds.rounded_half,
    "cut-bits": default_kinds.cut_bits,
    "unpadded": default_kinds.unpadded,
    "trailing-blanks": default_kinds.trailing_blanks,
    "trailing-zeros": time_kinds.trailing_zeros,
    "escaped-comma": escaped_comma,
    "shown-as-question-mark": shown_as_question_mark,
    "half-character": half_character,
    "doubled-quotes": doubled_quotes,
    "hex-default": hex_default,
    "hex-text-default": default_kinds.hex_text_default,
    "escaped-bytes": default_kinds.escaped_bytes,
    "reversed-bits": reversed_bits,
    "real-as-float": real_as_float,
    "lost-float4": lost_float4,
    "json-garbled-datetime": json_kinds.json_garbled_datetime,
    "server-charset": server_charset,
    "doubled-header": record_kinds.doubled_header,
    "defaulted-snapshot": record_kinds.defaulted_snapshot,
    "copied-comment": record_kinds.copied_comment,
    "kept-comment": record_kinds.kept_comment,
    "undefined-byte": undefined_byte,
    "gbk-as-utf8": partial(read_as_utf8, "gbk"),
    "latin1-as-utf8": partial(read_as_utf8, "cp1252"),
    "schema-change": ddl_kinds.schema_change,
    "unselected-key": ddl_kinds.unselected_key,
    "stale-query": ddl_kinds.stale_query,
    "unclosed-comment": ddl_kinds.unclosed_comment,
    "cut-create": ddl_kinds.cut_create,
    "requoted": ddl_kinds.requoted,
    "backslashes": ddl_kinds.backslashes,
    "added-on-update": ddl_kinds.added_on_update,
    "overlooked-charset": ddl_kinds.overlooked_charset,
    "truncation": record_kinds.truncation,
    "after-the-end": record_kinds.after_the_end,
    "partial-update": record_kinds.partial_update,
    "undecided-xa": record_kinds.undecided_xa,
    "watermark": adhoc_kinds.watermarks,
    "read-at": adhoc_kinds.read_at,
    "told-by-event": adhoc_kinds.told_by_event,
    "stopped-snapshot": adhoc_kinds.stopped_snapshot,
    "read-in-time": adhoc_kinds.read_in_time,
    "other-structure": adhoc_kinds.other_structure,
    "known-again": adhoc_kinds.known_again,
    "other-order": adhoc_kinds.other_order,
}

# Kinds that hold for a value of a property of the recorded connector.
CONFIGURED: dict[str, Callable[[Difference, Mapping[str, str]], bool]] = {
    "unread-default": default_kinds.unread_default,
    "zone-of-session": time_kinds.zone_of_session,
}


def holds(kind: str, d: Difference, settings: Mapping[str, str] | None = None) -> bool:
    """Return whether a kind holds for a difference.

    Args:
        kind: Its name, of ``KINDS`` or ``CONFIGURED``.
        d: The difference.
        settings: Properties of the recorded connector, as far as they are known.
    """
    configured = CONFIGURED.get(kind)
    return KINDS[kind](d) if configured is None else configured(d, settings or {})
