"""Kinds of explained differences inside JSON documents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

from prooflib.values import in_stream, name_of, texts

if TYPE_CHECKING:
    from prooflib.differ import Difference

Same = Callable[[str, str], bool]
_TEMPORAL = re.compile(r"(-?\d{2,3}:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d{1,6})?")
_OPAQUE = re.compile(r"base64:type\d+:")
_GARBLED_TIME = re.compile(r"-?\d+:\d?-\d+:(\d?-)?\d+(\.\d*-?\d*)?")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[-+.\w]+|[{}\[\]:,]')
_DOUBLE = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")


def _same_documents(d: Difference, text: Same) -> bool:
    """Return whether two JSON texts have the same tokens, but for blanks and for what may differ of a token.

    Args:
        d: The difference.
        text: Returns whether two strings of the documents may correspond.
    """
    if not texts(d) or not name_of(d).endswith("data.Json"):
        return False
    return _have_same_tokens(d, text)


def _have_same_tokens(d: Difference, text: Same) -> bool:
    try:
        json.loads(d.ours), json.loads(d.theirs)
    except ValueError:
        return False
    ours, theirs = _TOKEN.findall(d.ours), _TOKEN.findall(d.theirs)
    same = lambda a, b: _same_token(a, b, text, in_stream(d))  # noqa: E731
    return len(ours) == len(theirs) and all(map(same, ours, theirs))


def _same_token(ours: str, theirs: str, text: Same, stream: bool) -> bool:
    if ours == theirs:
        return True
    if ours[0] == theirs[0] == '"':
        return text(json.loads(ours), json.loads(theirs))
    return stream and _same_double(ours, theirs)


def _same_double(ours: str, theirs: str) -> bool:
    """Return whether theirs is the exact decimal of the double of which ours is the shortest text.

    MySQL writes a double with a point or an exponent; a number without is an integer, which has one form only.
    """
    both = _DOUBLE.fullmatch(ours) and _DOUBLE.fullmatch(theirs)
    if not both or not set(ours) & set(".eE"):
        return False
    value = float(ours)
    return Decimal(repr(value)) == Decimal(ours) and Decimal(value) == Decimal(theirs)


def json_text(d: Difference) -> bool:
    """Return whether both texts are the same document: blanks differ, or in the stream the notation of doubles."""
    return _same_documents(d, lambda a, b: False)


def json_text_behind_transforms(d: Difference) -> bool:
    """Return whether both texts are the same document, in a record that transforms have made.

    The payload of an outbox record may still have its type. A text without one has to be an object or an array.
    """
    if not texts(d) or _is_envelope(d):
        return False
    typed = name_of(d).endswith("data.Json")
    return (typed or (not name_of(d) and d.ours[:1] in ("{", "["))) and _have_same_tokens(d, lambda a, b: False)


def blanks_in_json_value(d: Difference) -> bool:
    """Return whether a value behind transforms is one document, ours without blanks.

    A capture shows a document that StringConverter has written as the document itself.
    """
    if d.path != ("value", "(text)") or _is_envelope(d):
        return False
    if not all(r is not None and "value" in r.bare and isinstance(r.payload, dict | list) for r in d.pair):
        return False
    ours, theirs = (r.value_text for r in d.pair if r is not None)
    return _TOKEN.findall(ours) == _TOKEN.findall(theirs) and "".join(_TOKEN.findall(ours)) == ours


def member_order_in_array(d: Difference) -> bool:
    """Return whether the members of a struct in an array have another order, in a record that transforms have made."""
    inner = any(step.startswith("[") for step in d.path)
    return inner and d.path[-1] == "(order)" and sorted(d.ours) == sorted(d.theirs) and not _is_envelope(d)


def _is_envelope(d: Difference) -> bool:
    payloads = [r.payload for r in d.pair if r is not None and isinstance(r.payload, dict)]
    return any("op" in payload and isinstance(payload.get("source"), dict) for payload in payloads)


def json_opaque(d: Difference) -> bool:
    """Return whether the documents are equal but for the text of dates, times and opaque values inside them."""
    return _same_documents(d, _same_opaque)


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
    return _same_documents(
        d, lambda a, b: _same_opaque(a, b) or (a[:1] == "-" and _GARBLED_TIME.fullmatch(b) is not None)
    )


def json_garbled_datetime(d: Difference) -> bool:
    """Return whether the documents are equal but for a DATETIME whose time of day the recorded text garbles."""
    return _same_documents(d, _garbled_datetime)


def _garbled_datetime(ours: str, theirs: str) -> bool:
    day, blank, clock = theirs.partition(" ")
    whole = bool(blank) and ours[:11] == day + " " and _TEMPORAL.fullmatch(ours) is not None
    return (whole and _GARBLED_TIME.fullmatch(clock) is not None) or _same_opaque(ours, theirs)
