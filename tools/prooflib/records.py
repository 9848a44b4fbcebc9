"""Recorded lines as values: numbers keep their text, members keep their order."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any

from prooflib.workload import ProofError

Path = tuple[str, ...]


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()
"""What a record has that lacks a member."""


class Number(str):
    """Hold a JSON number as it was written; ``1.0`` and ``1.00`` are not equal."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ProofError(f"an object has a member twice: {[name for name, _ in pairs]}")
    return found


_DECODER = json.JSONDecoder(
    parse_float=Number, parse_int=Number, parse_constant=Number, object_pairs_hook=_members, strict=True
)
_BEGIN, _PAYLOAD = '{"schema":', ',"payload":'
_MEMBERS = ("topic", "partition", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class Record:
    """Hold one recorded record.

    Args:
        number: Its place within the partition, from 0.
        key: Key: an object of its schema and its payload; the schema is None if it was written without.
        value: Value, in the same form.
        bare: Which of ``key`` and ``value`` were written without a schema.
    """

    topic: str
    partition: str
    number: int
    key: Any
    value: Any
    headers: tuple[tuple[str, Any], ...]
    key_text: str
    value_text: str
    bare: frozenset[str] = frozenset()

    def has(self, part: str) -> bool:
        """Return whether the key or the value is there (a tombstone has no value)."""
        return (self.key if part == "key" else self.value) is not None

    def payload_text(self, part: str) -> str:
        """Return a key's or value's payload as written."""
        text = self.key_text if part == "key" else self.value_text
        head = "" if part in self.bare else schema_text(text)
        return text[len(head) : -1] if head else text

    def at(self, *path: str) -> Any:
        """Return the value at a path of members below key and value, None when there is nothing."""
        node: Any = {"key": self.key, "value": self.value}
        for step in path:
            node = node.get(step) if isinstance(node, dict) else None
        return node

    @property
    def key_payload(self) -> Any:
        """Return the key without its schema."""
        return unwrapped(self.key)

    @property
    def payload(self) -> Any:
        """Return the value without its schema."""
        return unwrapped(self.value)

    @property
    def snapshot(self) -> bool:
        """Return whether a snapshot wrote the record."""
        payload = self.payload
        source = payload.get("source") if isinstance(payload, dict) else None
        return isinstance(source, dict) and source.get("snapshot") not in (None, "false")


def schema_text(text: str) -> str:
    """Return how a key or value begins: its schema and the name of what follows; empty when it has none."""
    begin, member, _ = text.partition(_PAYLOAD)
    head = begin + member
    return head if member and begin.startswith(_BEGIN) and _schema(head) is not None else ""


@functools.lru_cache(maxsize=4096)
def _schema(head: str) -> dict[str, Any] | None:
    """Return what a text from ``{"schema":`` to the name of the payload says; None when that ends within the schema."""
    try:
        found: dict[str, Any] = _DECODER.decode(head + "null}")
    except ValueError:
        return None
    return found if list(found) == ["schema", "payload"] else None


def _decoded(line: str, begin: int) -> tuple[Any, int]:
    """Return the value that begins at a character, and where it ends; a schema that is known is not read again."""
    schema_end = line.find(_PAYLOAD, begin) + len(_PAYLOAD)
    if line.startswith(_BEGIN, begin) and schema_end > len(_PAYLOAD):
        schema = _schema(line[begin:schema_end])
        if schema is not None:
            payload, at = _DECODER.raw_decode(line, schema_end)
            if line.startswith("}", at):
                return schema | {"payload": payload}, at + 1
    return _DECODER.raw_decode(line, begin)


def unwrapped(node: Any) -> Any:
    """Return a key or value without its schema."""
    return None if node is None else node["payload"]


def _has_schema(node: Any) -> bool:
    """Return whether a converter wrote a schema; columns may have the names of its members, but no such value."""
    return (
        isinstance(node, dict) and list(node)[:2] == ["schema", "payload"] and isinstance(node["schema"], dict | None)
    )


def lack_schemas(records: Iterable[Record], part: str) -> bool:
    """Return whether a converter without schemas wrote a capture: not one of its keys or values has a schema."""
    present = [part in record.bare for record in records if record.has(part)]
    return bool(present) and all(present)


def parse_records(lines: Iterable[str], name: str) -> list[Record]:
    """Return the records of a capture.

    Raises:
        ProofError: A line is not a record.
    """
    counts: dict[tuple[str, str], int] = {}
    found = []
    for number, line in enumerate(lines, 1):
        try:
            members, texts = _split(line)
            place = members["topic"], str(members["partition"])
            headers = tuple((n, v) for header in members["headers"] for n, v in header.items())
        except (ValueError, ProofError, AttributeError) as error:
            raise ProofError(f"{name}, line {number}: {error}") from None
        at = counts[place] = counts.get(place, -1) + 1
        bare = frozenset(p for p in ("key", "value") if members[p] is not None and not _has_schema(members[p]))
        key, value = ({"schema": None, "payload": members[p]} if p in bare else members[p] for p in ("key", "value"))
        found.append(Record(*place, at, key, value, headers, texts["key"], texts["value"], bare))
    return found


def _split(line: str) -> tuple[dict[str, Any], dict[str, str]]:
    at, values, texts = 0, {}, {}
    for name in _MEMBERS:
        opening = ("{" if at == 0 else ",") + f'"{name}":'
        if not line.startswith(opening, at):
            raise ValueError(f"{opening} is expected at character {at}: {line[at : at + 40]!r}")
        begin = at + len(opening)
        values[name], at = _decoded(line, begin)
        texts[name] = line[begin:at]
    return values, texts


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[-+.\w]+|[{}\[\]:,]|\s+')


def text_difference(ours: str, theirs: str) -> tuple[str, str] | None:
    """Return the first place where the same values are written differently (escapes, blanks), or None."""
    if ours == theirs:
        return None
    mine, other = _TOKEN.findall(ours), _TOKEN.findall(theirs)
    for a, b in zip(mine, other, strict=False):
        if a == b:
            continue
        if a[0] == b[0] == '"':
            if json.loads(a, strict=False) == json.loads(b, strict=False):
                return a, b
        elif a.isspace() or b.isspace():
            return repr(a), repr(b)
    return None


def names_of(elements: Sequence[Any]) -> list[str] | None:
    """Return the names by which the objects of a list are known (``field``, ``name``), None when they have none."""
    for member in ("field", "name"):
        if elements and all(isinstance(e, dict) and isinstance(e.get(member), str) for e in elements):
            names = [e[member] for e in elements]
            if len(set(names)) == len(names):
                return names
    return None


def show(node: Any, width: int = 400) -> str:
    """Return a value as short JSON text."""
    text = _text(node)
    return text if len(text) <= width else text[: width - 1] + "…"


def _text(node: Any) -> str:
    # A capture is shown a million values: what most of them are comes first, and strings are written by json's own C.
    kind = type(node)
    if kind is Number:
        return str(node)
    if kind is str:
        return encode_basestring(node)
    if kind is dict:
        return "{" + ",".join([f"{encode_basestring(k)}:{_text(v)}" for k, v in node.items()]) + "}"
    if kind is list:
        return "[" + ",".join([_text(v) for v in node]) + "]"
    return json.dumps(node, ensure_ascii=False)
