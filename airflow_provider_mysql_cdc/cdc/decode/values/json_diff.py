"""Partial updates of JSON documents: the changes that PARTIAL_UPDATE_ROWS holds in place of the new document.

A change vector is a sequence of (operation, path, value); operation 0 replaces the value at a path, 1 inserts one
before an array cell or as a new member, 2 removes one. Operation is a byte; path (text, UTF-8) and value (binary JSON)
each follow their length-encoded length; a removal has no value. Paths are exact: no wildcards, and a scalar is never
taken for an array of one cell.

The document is changed as a tree whose scalars are the JSON text they will have in the event, so numbers, decimals and
temporal values come out as those of a document that was logged whole.

Source: MySQL source, ``json_diff.h`` and ``json_diff.cc`` (layout, meaning), ``json_path.cc`` (text of paths),
``json_dom.cc`` (order of members: by length, then by bytes).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import orjson

from airflow_provider_mysql_cdc.cdc.binlog.rows_header import lenenc
from airflow_provider_mysql_cdc.cdc.decode.values.binary_json import (
    LAST_CONTAINER,
    LAST_OBJECT,
    ByteBudget,
    children,
    scalar_text,
)

REPLACE, INSERT, REMOVE = 0, 1, 2
_MAX_DEPTH = 100

# A scalar is its JSON text (byte text), an object maps the UTF-8 bytes of member names.
Node: TypeAlias = "str | list[Node] | dict[bytes, Node]"


class ArrayCell(NamedTuple):
    """Point to a cell of an array.

    Args:
        number: Number of the cell, from 0.
        from_end: Whether ``number`` counts back from the last cell.
    """

    number: int
    from_end: bool

    def position(self, size: int) -> int:
        """Return the cell's number in an array of ``size`` cells; below 0 or from ``size`` on there is no such cell."""
        return size - 1 - self.number if self.from_end else self.number


PathLeg = bytes | ArrayCell


class JsonDiff(NamedTuple):
    """Describe one change.

    Args:
        operation: ``REPLACE``, ``INSERT`` or ``REMOVE``.
        path: Member names and cells from the root to the changed value.
        value: The new value as binary JSON; empty for a removal.
    """

    operation: int
    path: tuple[PathLeg, ...]
    value: bytes


_PATH_LEG = re.compile(
    rb'\s*(?:\.\s*(?:("(?:[^"\\]|\\.)*")|([^\s."\[\]*]+))|\[\s*(?:(last)(?:\s*-\s*([0-9]+))?|([0-9]+))\s*\])', re.DOTALL
)


def parse_path(text: bytes) -> tuple[PathLeg, ...]:
    """Return the legs of a JSON path.

    Args:
        text: The path, UTF-8, beginning with ``$``.

    Raises:
        ValueError: When it is not an exact path.
    """
    if text[:1] != b"$":
        raise ValueError("a JSON path does not begin with $")
    legs: list[PathLeg] = []
    pos = 1
    while pos < len(text.rstrip()):
        match = _PATH_LEG.match(text, pos)
        if match is None:
            raise ValueError("a JSON path cannot be read")
        quoted, plain, last, back, index = match.groups()
        if last is not None or index is not None:
            legs.append(ArrayCell(int(back or 0), True) if last is not None else ArrayCell(int(index), False))
        else:
            name: str = orjson.loads(quoted if quoted is not None else b'"' + plain + b'"')
            legs.append(name.encode())
        pos = match.end()
    return tuple(legs)


def read_diffs(data: bytes) -> list[JsonDiff]:
    """Return the changes of a vector.

    Args:
        data: The vector without the length before it.

    Raises:
        ValueError: When the structure does not hold.
        IndexError: When it ends early.
    """
    diffs: list[JsonDiff] = []
    pos = 0
    while pos < len(data):
        operation = data[pos]
        if operation > REMOVE:
            raise ValueError(f"a JSON change has the unknown operation {operation}")
        path, pos = _length_prefixed(data, pos + 1)
        value = b""
        if operation != REMOVE:
            value, pos = _length_prefixed(data, pos)
        diffs.append(JsonDiff(operation, parse_path(path), value))
    return diffs


def _length_prefixed(data: bytes, pos: int) -> tuple[bytes, int]:
    size, pos = lenenc(data, pos)
    if pos + size > len(data):
        raise ValueError("a JSON change extends past the end of its vector")
    return data[pos : pos + size], pos + size


def read_tree(data: bytes) -> Node:
    """Return a binary JSON document as a tree; zero bytes are the JSON value null.

    Raises:
        ValueError: When the document is not well formed.
    """
    return _node(data, data.decode("latin-1"), data[0], 1, 0, ByteBudget(data)) if data else "null"


def _node(data: bytes, text: str, kind: int, pos: int, depth: int, budget: ByteBudget) -> Node:
    if kind > LAST_CONTAINER:
        return scalar_text(data, text, kind, pos, budget)
    if depth > _MAX_DEPTH:
        raise ValueError("a JSON document is nested deeper than MySQL allows")
    entries = children(data, kind, pos, budget)
    if kind <= LAST_OBJECT:
        return {name or b"": _node(data, text, child, at, depth + 1, budget) for name, child, at in entries}
    return [_node(data, text, child, at, depth + 1, budget) for _, child, at in entries]


def tree_text(node: Node) -> str:
    """Return a tree as JSON text, in byte text, in the format of ``binary_json.json_byte_text``."""
    if isinstance(node, str):
        return node
    if isinstance(node, list):
        return f"[{','.join(map(tree_text, node))}]"
    return f"{{{','.join(f'{_name(name)}:{tree_text(value)}' for name, value in node.items())}}}"


def _name(name: bytes) -> str:
    return orjson.dumps(name.decode()).decode("latin-1")


def patched_text(before: bytes | None, diffs: bytes) -> str:
    """Return the document after an update as JSON text, in byte text.

    Args:
        before: The document before it, binary JSON; None when the row image holds SQL NULL or not the column.
        diffs: The change vector without its length.

    Raises:
        ValueError: A change does not fit the document, so one of the two is not what the server wrote.
    """
    if before is None:
        raise ValueError("the update changes a JSON document that the before image does not contain")
    root = read_tree(before)
    for diff in read_diffs(diffs):
        if not diff.path:
            raise ValueError("a JSON change points to the whole document")
        parent = root
        for leg in diff.path[:-1]:
            parent = _child(parent, leg)
        _OPERATIONS[diff.operation](parent, diff.path[-1], diff.value)
    return tree_text(root)


def _missing_path() -> ValueError:
    return ValueError("a JSON change points to a place that the document before the update does not have")


def _child(node: Node, leg: PathLeg) -> Node:
    if isinstance(node, dict) and isinstance(leg, bytes) and leg in node:
        return node[leg]
    if isinstance(node, list) and isinstance(leg, ArrayCell) and 0 <= (at := leg.position(len(node))) < len(node):
        return node[at]
    raise _missing_path()


def _replace(parent: Node, leg: PathLeg, value: bytes) -> None:
    _child(parent, leg)
    if isinstance(parent, dict) and isinstance(leg, bytes):
        parent[leg] = read_tree(value)
    elif isinstance(parent, list) and isinstance(leg, ArrayCell):
        parent[leg.position(len(parent))] = read_tree(value)


def _insert(parent: Node, leg: PathLeg, value: bytes) -> None:
    if isinstance(parent, dict) and isinstance(leg, bytes) and leg not in parent:
        parent[leg] = read_tree(value)
        members = sorted(parent.items(), key=lambda member: (len(member[0]), member[0]))
        parent.clear()
        parent.update(members)
    elif isinstance(parent, list) and isinstance(leg, ArrayCell):
        # Past the end means at the end, before the first cell means there.
        parent.insert(max(0, leg.position(len(parent))), read_tree(value))
    else:
        raise _missing_path()


def _remove(parent: Node, leg: PathLeg, value: bytes) -> None:
    _child(parent, leg)
    if isinstance(parent, dict) and isinstance(leg, bytes):
        del parent[leg]
    elif isinstance(parent, list) and isinstance(leg, ArrayCell):
        del parent[leg.position(len(parent))]


_OPERATIONS: dict[int, Callable[[Node, PathLeg, bytes], None]] = {REPLACE: _replace, INSERT: _insert, REMOVE: _remove}
