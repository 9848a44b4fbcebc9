"""The tables of the bench: their columns, the rows that a seed of them has, and how their keys run."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from benchlib.source import ORDER_COLUMNS, ORDERS, order

_WIDE = (
    "id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL, tiny TINYINT, small SMALLINT UNSIGNED, big BIGINT, "
    "ubig BIGINT UNSIGNED, flag TINYINT(1) NOT NULL DEFAULT 0, f DOUBLE, price DECIMAL(12,4), qty DECIMAL(20,0), "
    "c CHAR(120) NOT NULL, pad VARCHAR(60) NOT NULL, email VARCHAR(100), title VARCHAR(255), "
    "state ENUM('a','b','c','d'), doc JSON, body TEXT, day DATE, made DATETIME(6), touched TIMESTAMP NULL, KEY (k)"
)
_WIDE_COLUMNS = (
    "k, tiny, small, big, ubig, flag, f, price, qty, c, pad, email, title, state, doc, body, day, made, touched"
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 "


def wide_row(draw: random.Random) -> tuple[Any, ...]:
    """Return the values of a row of twenty columns without its key."""

    def text(size: int) -> str:
        return "".join(draw.choices(_LETTERS, k=size))

    doc = (
        f'{{"a": {draw.getrandbits(40)}, "name": "{text(12)}", "tags": ["{text(4)}", "{text(6)}"], '
        f'"nest": {{"x": {draw.random() * 1000:.3f}, "ok": {draw.choice(("true", "false", "null"))}}}}}'
    )
    day = f"2026-{draw.randint(1, 12):02d}-{draw.randint(1, 28):02d}"
    clock = f"{draw.randint(4, 23):02d}:{draw.randint(0, 59):02d}:{draw.randint(0, 59):02d}"
    return (
        draw.randint(1, 200_000), draw.randint(-128, 127), draw.randint(0, 65535), draw.getrandbits(63),
        draw.getrandbits(64), draw.randint(0, 1), draw.random() * 1e6, draw.randint(0, 10**12 - 1) / 10**4,
        draw.randint(0, 10**19), text(119) + "x", text(59) + "x", f"{draw.getrandbits(40):x}@example.com",
        text(draw.randint(10, 80)), draw.choice("abcd"), doc, text(draw.randint(50, 400)), day,
        f"{day} {clock}.{draw.randint(0, 999_999):06d}", f"{day} {clock}",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Key:
    """Say how a table's key runs where the server does not count it up itself.

    Args:
        ddl: Its columns and the key, in place of ``id``.
        values: SQL of their values; ``{n}`` is the row's number, from 1 on.
    """

    ddl: str
    columns: str
    values: str


@dataclass(frozen=True, slots=True)
class Shape:
    """Describe a table.

    Args:
        ddl: Its columns; the seed's ``id`` is counted up by the server.
        columns: Columns that a row fills.
        key: Its key; None for an integer that the server counts up.
    """

    name: str
    ddl: str
    columns: str
    row: Callable[[random.Random], tuple[Any, ...]]
    key: Key | None = None

    @property
    def table_ddl(self) -> str:
        """Return the columns of the table that is measured; those of its seed are ``ddl``."""
        return self.ddl if self.key is None else f"{self.key.ddl}, {self.ddl.partition(', ')[2]}"


NARROW = Shape("orders", ORDERS, ORDER_COLUMNS, order)
WIDE = Shape("wide", _WIDE, _WIDE_COLUMNS, wide_row)
# Without the gaps that the server leaves where it counts.
DENSE_KEY = replace(NARROW, key=Key("id BIGINT PRIMARY KEY", "id", "{n}"))
# As applications make keys: a UUID as text, in the order of nothing.
STRING_KEY = replace(
    NARROW, key=Key("id CHAR(36) CHARACTER SET ascii PRIMARY KEY", "id", "INSERT(LEFT(SHA2({n}, 256), 32), 9, 0, '-')")
)
# A customer and a number among its orders, 1,000 each.
COMPOSITE_KEY = replace(
    NARROW,
    key=Key(
        "shop INT NOT NULL, number VARCHAR(20) NOT NULL, PRIMARY KEY (shop, number)",
        "shop, number",
        "({n} DIV 1000), LPAD({n} % 1000, 8, '0')",
    ),
)
# Nine of ten rows lie close together, each tenth far away: equal ranges hold anything but equal numbers of rows.
SKEWED_KEY = replace(
    NARROW,
    key=Key("id BIGINT PRIMARY KEY", "id", "IF({n} % 10 = 0, {n} * 9000000000, {n})"),
)
