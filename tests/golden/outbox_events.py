"""The change events of the recorded outbox tables: what a connector reads before ``EventRouter``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kit.chain_rig import compact

TEXT, REQUIRED = {"type": "string"}, {"type": "string", "optional": False}
DECIMAL = {"name": "org.apache.kafka.connect.data.Decimal", "version": 1}
SCALE = {"parameters": {"scale": "2", "connect.decimal.precision": "8"}}
NOW = 1_795_883_790_000
TABLES: dict[str, dict[str, dict[str, Any]]] = {
    "outbox": {
        **{name: REQUIRED for name in ("id", "aggregatetype", "aggregateid")},
        "type": TEXT,
        "payload": {"type": "string", "name": "io.debezium.data.Json", "version": 1},
        "ts": {"type": "int64", "name": "io.debezium.time.Timestamp", "version": 1},
        "ver": {"type": "int32"},
        "tenant": TEXT,
        "part": {"type": "int32"},
        "amount": {"type": "bytes", **DECIMAL, **SCALE},
        "flags": {"type": "string", "name": "io.debezium.data.EnumSet", "version": 1, "parameters": {"allowed": "p,q"}},
        "ok": {"type": "int16"},
        "bin": {"type": "bytes"},
    },
    "txt": {
        "id": {"type": "int64", "optional": False},
        "aggregatetype": REQUIRED,
        "aggregateid": {"type": "int32", "optional": False},
        "type": TEXT,
        "payload": TEXT,
        "us": {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1},
    },
    "msgs": {
        "uid": {"type": "int32", "optional": False},
        "kind": REQUIRED,
        **{name: TEXT for name in ("k", "t", "body")},
        "at": {"type": "int64", "name": "io.debezium.time.Timestamp", "version": 1},
        "ver": {"type": "int16"},
        "note": TEXT,
    },
}
LINES = '{"id": 1, "lines": [{"n": 2, "sku": "a"}, {"n": null, "sku": "b"}], "total": 9.9}'
BIG = (
    '{"big": 12345678901234567890, "dbl": 1e400, "neg": -5, "l": 3000000000, "empty": {}, "ea": [], "na": [null], '
    '"u": "\\u00e9"}'
)
OUTBOX: list[tuple[str, tuple[Any, ...]]] = [
    ("r", (1, "Order", "o-1", "OrderCreated", LINES, 1704164645678, 1, "t1", 0, "AJY=", "p", 1, "AQ==")),
    ("c", (2, "Order", "o-1", "OrderPaid", '{"id":1}', 1704164646000, 2, "t2", 1, None, "p,q", 0, None)),
    ("c", (3, "customer", "c 9", None, "[]", None, None, None, 2, "AMg=", "", None, "/wA=")),
    ("c", (4, "Order", "o-2", "OrderGone", None, -1, 1, "t1", 0, "AA==", None, 1, "")),
    ("c", (5, "Ünicode.type", "ключ", "T", '"just text"', None, 1, "t1", 1, "AA==", None, 1, None)),
    ("c", (6, "Order", "o-3", "N", "12345678901234567168", None, 1, "t", 2, "AA==", None, 1, None)),
    ("d", (2, "Order", "o-1", "OrderPaid", '{"id":1}', None, 2, "t2", 1, None, "p,q", 0, None)),
    ("c", (7, "Order", "o-4", "InTx", '{"k":{"deep":{"er":[[1],[2,3]]}}}', None, 9, None, 0, "AA==", None, 1, None)),
    ("d", (7, "Order", "o-4", "InTx", "{}", None, 9, None, 0, "AA==", None, 1, None)),
    ("c", (8, "Order", "o-8", "AfterAlter", '{"z":0}', *[None] * 8)),
    ("u", (8, "Order", "o-8", "changed", '{"z":0}', *[None] * 8)),
    ("c", (9, "Order", "o-9", "AfterUpdate", '{"z":1}', *[None] * 8)),
]
TXT: list[tuple[str, tuple[Any, ...]]] = [
    ("r", (1, "Order", 7, "Created", '{"a": 1, "b": "x", "c": null, "d": [1, 2], "e": {"f": 1.5}, "g": true}',
           1704164645678901)),
    ("c", (2, "Order", 7, "A", '{"a": "now text", "h": [{"i": 1}, {"j": "s"}]}', None)),
    ("c", (3, "Order", 8, "B", "not json", 1717200000000000)),
    ("c", (4, "Order", 9, "C", "", None)),
    ("c", (5, "Order", 10, "D", None, None)),
    ("c", (6, "Order", 11, "E", '[1, "two", null]', None)),
    ("c", (7, "Order", 12, "F", BIG, None)),
    ("c", (8, "Order", 13, "G", "null", None)),
    ("c", (9, "Order", 14, "H", '{"a": 1', None)),
    ("c", (10, "Order", 15, "I", '[{"p": 1}, {"p": 2, "q": 3}]', None)),
    ("c", (11, "Order", 16, "J", '"quoted"', None)),
    ("c", (12, "Order", 17, "K", '{"a-b": 1, "1c": 2, "": 3}', None)),
    ("c", (13, "Order", 18, "L", '  {"ws": 1}  ', None)),
    ("u", (1, "Order", 7, "Created", '{"upd": 1}', None)),
    ("c", (14, "Order", 99, "Z", '{"last": true}', None)),
]  # fmt: skip
MSGS: list[tuple[str, tuple[Any, ...]]] = [
    ("r", (1, "shop-order", "k1", "T", '{"x": 1}', 1683356889000, 3, "n")),
    ("c", (2, "shop-order", "k2", None, '{"x": [1, 2], "y": null}', 1683356890000, 4, None)),
    ("c", (3, "shop-refund", None, "R", None, None, None, "z")),
    ("c", (4, "nodash", "k4", "T", "text", 1683356891000, 3, "n")),
    ("d", (1, "shop-order", "k1", "T", '{"x": 1}', 1683356889000, 3, "n")),
    ("d", (2, "shop-order", "k2", None, "", None, 4, None)),
    ("k", (20, "shop-order", "k2", None, '{"x": [1, 2], "y": null}', 1683356890000, 4, None)),
    ("c", (9, "shop-order", "k9", "T", '{"x": 9}', 1683356892000, 3, "n")),
]
ROWS = {"outbox": OUTBOX, "txt": TXT, "msgs": MSGS}
CONTEXT = {"connectorLogicalName": "cap", "taskId": "0", "connectorName": "mysql", "runId": "r"}


def outbox_events(table: str) -> Iterator[tuple[str, bytes | None, bytes | None, list[tuple[str, bytes]]]]:
    """Yield topic, key, value and headers of a table's change events, each delete with its tombstone.

    The op ``k`` is the create event of a key change, which has a header of its own.
    """
    topic, columns = f"cap.ob.{table}", TABLES[table]
    row_schema = [{"optional": True, **schema, "field": name} for name, schema in columns.items()]
    key_name = next(iter(columns))
    for op, values in ROWS[table]:
        row = dict(zip(columns, values, strict=True))
        if table == "outbox":
            row["id"] = f"00000000-0000-0000-0000-{values[0]:012}"
        before, after = (row if op in images else None for images in ("du", "rcuk"))
        headers = [(f"__debezium.context.{name}", text.encode()) for name, text in CONTEXT.items()]
        if op == "k":
            headers.insert(0, ("__debezium.oldkey", b'{"uid":2}'))
        key_schema = {"type": "struct", "fields": [row_schema[0]], "optional": False, "name": f"{topic}.Key"}
        key = compact({"schema": key_schema, "payload": {key_name: row[key_name]}})
        yield topic, key, _event(topic, row_schema, before, after, "c" if op == "k" else op), headers
        if op == "d":
            yield topic, key, None, headers


def _event(
    topic: str,
    row_schema: list[dict[str, Any]],
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    op: str,
) -> bytes | None:
    images = [
        {"type": "struct", "fields": row_schema, "optional": True, "name": f"{topic}.Value", "field": part}
        for part in ("before", "after")
    ]
    members = [
        *images,
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    schema = {"type": "struct", "fields": members, "optional": False, "name": f"{topic}.Envelope", "version": 2}
    return compact({"schema": schema, "payload": {"before": before, "after": after, "op": op, "ts_ms": NOW}})
