"""Topics that three writers share show what one writer shows, whatever the key is made of."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from kit.records import duplicates
from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from test_key_kinds import KINDS, LAX, shown_alone

from airflow_provider_mysql_cdc.cdc.drain import batch_planner as batch

NOW = re.compile(rb'"ts_ms":\d+,"ts_us":\d+,"ts_ns":\d+}+$')
MANY = range(30)
KEY = "k {} NOT NULL"
# What is keyed, the key, and values of its columns.
OTHERS: dict[str, tuple[str, str, list[str]]] = {
    "unsigned_number": (KEY.format("BIGINT UNSIGNED"), "k", [str(2**64 - 1 - n) for n in MANY]),
    "bits": (KEY.format("BIT(64)"), "k", [str(2**64 - 1 - 7 * n) for n in MANY]),
    "members": (
        KEY.format("ENUM('a', 'ü', 'x z')") + ", s SET('p', 'q') NOT NULL",
        "s, k",
        ["1, 1", "2, 3", "3, 0"],
    ),
    "floats": (f"{KEY.format('FLOAT')}, d DOUBLE NOT NULL", "d, k", [f"{n}/7, {n}e{9 * n - 130}" for n in MANY]),
    "of_json": (
        "j JSON, k VARCHAR(30) AS (JSON_UNQUOTE(JSON_EXTRACT(j, '$.a'))) STORED NOT NULL",
        "k",
        [f"JSON_OBJECT('a', 'x{n}')" for n in MANY],
    ),
    "parts_of_blobs": (
        f"{KEY.format('BLOB')}, t TEXT NOT NULL",
        "k(9), t(5)",
        [f"x'00ff{n:04x}', 't{n}'" for n in MANY],
    ),
    **{
        f"text_{charset}": (
            KEY.format(f"VARCHAR(20) CHARACTER SET {charset}"),
            "k",
            [f"'{text}{n}\\\\\"'" for n in MANY],
        )
        for charset, text in {
            "latin1": "é",
            "gbk": "中",
            "sjis": "ソ",
            "utf16": "😀",
            "ucs2": "語",
            "utf32": "😀",
        }.items()
    },
}
NULLS = "CREATE TABLE nulls (id INT PRIMARY KEY, k VARCHAR(9), n DECIMAL(9,3), v INT)"


def make(root: Any, database: str) -> dict[str, list[str]]:
    """Create the tables; return the values of their keys by table."""
    execute(root, f"USE `{database}`", LAX, NULLS)
    values = {
        name: [v for v in found if v[5:6] != "-" or shown_alone(f"{v[:11]}'")] for name, (_, found) in KINDS.items()
    }
    for name, (kind, _) in KINDS.items():
        execute(root, f"CREATE TABLE `{name}` (k {kind} NOT NULL, v INT, PRIMARY KEY (k))")
    for name, (columns, key, found) in OTHERS.items():
        execute(root, f"CREATE TABLE `{name}` ({columns}, v INT, PRIMARY KEY ({key}))")
        values[name] = found
    return values


def change(root: Any, values: dict[str, list[str]]) -> None:
    """Insert rows, many of them at once; change values and keys; delete."""
    pick = random.Random("shared")
    for n, (name, found) in enumerate(values.items()):
        columns = {"of_json": ("j", "v")}.get(name)
        into = f"`{name}`" if columns is None else f"`{name}` ({', '.join(columns)})"
        half = found[: len(found) // 2 + 1]
        execute(root, f"SET SESSION binlog_transaction_compression = {int(n % 5 == 0)}")
        execute(root, f"INSERT IGNORE INTO {into} VALUES {','.join(f'({v}, {pick.randrange(99)})' for v in half)}")
        execute(root, f"UPDATE `{name}` SET v = v + 100 WHERE v % 3")
        if name in KINDS or name.startswith(("text_", "bits", "unsigned_", "of_json")):
            column = "j" if name == "of_json" else "k"
            for value in found[-3:]:
                execute(root, f"UPDATE IGNORE `{name}` SET {column} = {value}, v = 7 WHERE v % 5 LIMIT 1")
        execute(root, f"DELETE FROM `{name}` WHERE v % 7 = 1")
    execute(root, "INSERT INTO nulls VALUES (1, NULL, 1, 1), (2, 'a\"', NULL, 2), (3, NULL, NULL, 3), (4, 'b', 0, 4)")
    execute(
        root, "UPDATE nulls SET k = 'c' WHERE k IS NULL", "UPDATE nulls SET v = 9", "DELETE FROM nulls WHERE id = 2"
    )


def shown(stream: Pipeline, tables: list[str]) -> dict[str, list[Any]]:
    """Return what a stream's topics show of changes, by table, partition by partition."""
    prefix, found = stream.properties["topic.prefix"].encode(), dict[str, list[Any]]()
    for table in tables:
        records = stream.records(table)
        assert duplicates(records) == []
        found[table] = sorted(
            ((r.partition, r.key, told(r.value, prefix), dict(r.headers)["cdc-id"]) for r in records), key=by_place
        )
    return found


def by_place(record: tuple[Any, ...]) -> int:
    place: int = record[0]
    return place


def told(value: bytes | None, prefix: bytes) -> bytes | None:
    return None if value is None else NOW.sub(b"", value).replace(b'"' + prefix + b'"', b'"name"')


@pytest.mark.req("STRM-01", "EVT-28", "EVT-33")
def test_three_writers_show_what_one_shows(
    properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shared(partitions: dict[str, int], weights: Any, writers: int, first: Any = ()) -> dict[str, tuple[int, ...]]:
        return {topic: tuple(p % writers for p in range(count)) for topic, count in partitions.items()}

    monkeypatch.setattr(batch, "assign_partitions", shared)
    properties |= {
        "cdc.id.header": "true",
        "drain.small.batch.bytes": "0",
        "topic.creation.default.partitions": "4",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "message.key.columns": f"{database}.nulls:k,n",
    }
    one, three = (
        Pipeline(properties | {"topic.prefix": f"{n}_{properties['topic.prefix']}", "drain.writers": str(n)})
        for n in (1, 3)
    )
    values = make(root, database)
    for stream in (one, three):
        stream.snapshot()
    change(root, values)
    monkeypatch.setenv("MYSQL_CDC_NATIVE", "off")
    one.drain()
    monkeypatch.delenv("MYSQL_CDC_NATIVE")
    three.drain()
    tables = [*values, "nulls"]
    found = shown(three, tables)
    assert found == shown(one, tables)
    assert sum(len({record[0] for record in records}) > 1 for records in found.values()) > len(tables) // 2
