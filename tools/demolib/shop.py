"""The sample shop: eight tables, some 200,000 rows, the same ones at every run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pymysql

SEED = 20
DATABASE = "shop"
_BATCH_ROWS = 2_000
_EPOCH = datetime(2021, 3, 28, 0, 30)

CITIES = ("München", "Åre", "São Paulo", "Córdoba", "Nîmes", "Málaga", "Düsseldorf", "Reykjavík", "Preis in €", "Oslo")
STREETS = ("улица Ленина", "Невский проспект", "Арбат", "Main Street", "Тверская")
STATUSES = ("new", "paid", "sent", "returned", "closed")
CATEGORIES = ("book", "garden", "kitchen", "toy, wooden", "música")
TAGS = ("eco", "sale", "new", "fragile")
WAREHOUSES = ("BER", "GOT", "LIS", "OSL", "WAW")
PATHS = ("/", "/cart", "/search?q=bücher", "/product", "/checkout")

Rows = Iterator[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class ShopTable:
    """Describe one table of the shop.

    Args:
        ddl: Column and key definitions.
        columns: Columns that the rows fill.
        rows: How many rows it gets at scale 1.
        generate_rows: Function of (random source, number of rows, shop size) that yields rows.
        placeholder: Text of one row's values in INSERT; empty takes ``%s`` for every column.
    """

    name: str
    ddl: str
    columns: tuple[str, ...]
    rows: int
    generate_rows: Callable[[random.Random, int, Size], Rows]
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class Size:
    """Say how large the shop is, as a fraction of its full size.

    Args:
        scale: 1.0 is the full shop.
    """

    scale: float = 1.0

    def of(self, rows: int) -> int:
        """Return how many rows a table of ``rows`` rows has at this scale, at least five."""
        return max(5, int(rows * self.scale))

    @property
    def customers(self) -> int:
        """Number of customers; their ids begin at 1."""
        return self.of(40_000)

    @property
    def products(self) -> int:
        """Number of products, see ``sku``."""
        return self.of(10_000)

    @property
    def orders(self) -> int:
        """Number of orders; their ids begin at 1."""
        return self.of(45_000)


def sku(number: int) -> str:
    """Return the key of a product, counted from 0."""
    return f"{'BGKTM'[number % 5]}-{number:06d}"


def _moment(rng: random.Random, micros: int) -> datetime:
    at = _EPOCH + timedelta(seconds=rng.randrange(150_000_000))
    return at.replace(microsecond=rng.randrange(1_000_000) // micros * micros)


def _customers(rng: random.Random, count: int, _: Size) -> Rows:
    for i in range(count):
        prefs: Any = {"lang": rng.choice(("de", "sv", "pt")), "news": i % 2 == 0, "sizes": [i % 40, i / 8, None]}
        yield (
            i + 1,
            f"{rng.choice(('Ana', 'Jörg', 'Zoë', '李', 'Íris'))} {i} {'🙂' if i % 17 == 0 else ''}".rstrip(),
            rng.choice(CITIES),
            rng.choice(STREETS),
            None if i % 13 == 0 else date(1930, 1, 1) + timedelta(days=rng.randrange(30_000)),
            f"{rng.randrange(-500_000, 90_000_000) / 100:.2f}",
            None if i % 11 == 0 else json.dumps(prefs, ensure_ascii=False),
            i % 3 == 0,
            _moment(rng, 1_000),
            _moment(rng, 1),
        )


def _products(rng: random.Random, count: int, _: Size) -> Rows:
    for i in range(count):
        tags = ",".join(t for t in TAGS if rng.random() < 0.3)
        attributes = {
            "w": rng.randrange(1000) / 4,
            "parts": [{"n": n, "ok": None} for n in range(i % 3)],
            "name": 'ß"\\',
        }
        yield (
            sku(i),
            f"Product {i} für {rng.choice(CITIES)}",
            rng.choice(CATEGORIES),
            tags,
            f"{rng.randrange(1, 9_999_999) / 1000:.3f}",
            rng.random() * 30,
            rng.random() * 1e6,
            json.dumps(attributes, ensure_ascii=False),
            1990 + i % 60,
            rng.randbytes(i % 48) if i % 5 else None,
            rng.randrange(1 << 12).to_bytes(2, "big"),
        )


def _orders(rng: random.Random, count: int, size: Size) -> Rows:
    for i in range(count):
        placed = _moment(rng, 1)
        yield (
            i + 1,
            rng.randrange(size.customers) + 1,
            rng.choice(STATUSES),
            placed,
            None if i % 7 == 0 else placed.date() + timedelta(days=3),
            None
            if i % 9 == 0
            else timedelta(seconds=rng.randrange(-40_000, 200_000), milliseconds=rng.randrange(1000)),
            f"{rng.randrange(10**12) / 10_000:.4f}",
            rng.randrange(1 << 64),
        )


def _order_lines(rng: random.Random, count: int, size: Size) -> Rows:
    for i in range(count):
        yield (
            i // 2 + 1,
            i % 2 + 1,
            sku(rng.randrange(size.products)),
            rng.randrange(1, 60_000),
            f"{rng.randrange(10**8) / 100:.2f}",
            None if i % 4 else rng.random(),
        )


def _stock(rng: random.Random, count: int, _: Size) -> Rows:
    for i in range(count):
        counted = timedelta(seconds=rng.randrange(86_400))
        yield WAREHOUSES[i % 5], sku(i // 5), rng.randrange(-20, 5_000), counted, rng.randrange(256)


def _page_views(rng: random.Random, count: int, size: Size) -> Rows:
    for i in range(count):
        # Every tenth row equals the one before it: without a key they can only be counted.
        if i % 10 == 0:
            row = (_moment(rng, 10_000), rng.randrange(size.customers) + 1, rng.choice(PATHS), rng.randrange(9_000) / 8)
        yield row


def _warehouses(rng: random.Random, count: int, _: Size) -> Rows:
    for code in WAREHOUSES[:count]:
        yield code, f"Lager {code} Ø", rng.random() * 60, rng.random() * 60


def _ratings(rng: random.Random, count: int, size: Size) -> Rows:
    for i in range(count):
        yield i % size.products, i // size.products, rng.randrange(1, 6), "gut ★" * (i % 3), _moment(rng, 1)


TABLES: tuple[ShopTable, ...] = (
    ShopTable(
        "customers",
        """id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(80) NOT NULL,
        city VARCHAR(40) CHARACTER SET latin1 NOT NULL, street VARCHAR(60) CHARACTER SET cp1251,
        born DATE, credit DECIMAL(12,2) NOT NULL DEFAULT 0.00, prefs JSON, vip BOOLEAN NOT NULL DEFAULT FALSE,
        since DATETIME(3) NOT NULL, seen TIMESTAMP(6) NULL DEFAULT NULL""",
        ("id", "name", "city", "street", "born", "credit", "prefs", "vip", "since", "seen"),
        40_000,
        _customers,
    ),
    ShopTable(
        "products",
        """sku VARCHAR(20) NOT NULL PRIMARY KEY, title VARCHAR(120) NOT NULL,
        category ENUM('book','garden','kitchen','toy, wooden','música') NOT NULL,
        tags SET('eco','sale','new','fragile') NOT NULL, price DECIMAL(10,3) NOT NULL, weight FLOAT, volume DOUBLE,
        attributes JSON NOT NULL, released YEAR, thumb BLOB, flags BIT(12) NOT NULL""",
        ("sku", "title", "category", "tags", "price", "weight", "volume", "attributes", "released", "thumb", "flags"),
        10_000,
        _products,
    ),
    ShopTable(
        "orders",
        """id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, customer_id BIGINT NOT NULL,
        status ENUM('new','paid','sent','returned','closed') NOT NULL DEFAULT 'new', placed DATETIME(6) NOT NULL,
        due DATE, spent TIME(3), total DECIMAL(16,4) NOT NULL, trace BIGINT UNSIGNED NOT NULL""",
        ("id", "customer_id", "status", "placed", "due", "spent", "total", "trace"),
        45_000,
        _orders,
    ),
    ShopTable(
        "order_lines",
        """order_id INT UNSIGNED NOT NULL, line_no SMALLINT UNSIGNED NOT NULL, sku VARCHAR(20) NOT NULL,
        quantity SMALLINT UNSIGNED NOT NULL, price DECIMAL(10,2) NOT NULL, discount DOUBLE,
        PRIMARY KEY (order_id, line_no)""",
        ("order_id", "line_no", "sku", "quantity", "price", "discount"),
        80_000,
        _order_lines,
    ),
    ShopTable(
        "stock",
        """warehouse CHAR(3) NOT NULL, sku VARCHAR(20) NOT NULL, quantity MEDIUMINT NOT NULL, counted TIME NOT NULL,
        shelf TINYINT UNSIGNED NOT NULL, PRIMARY KEY (sku, warehouse)""",
        ("warehouse", "sku", "quantity", "counted", "shelf"),
        8_000,
        _stock,
    ),
    ShopTable(
        "page_views",
        """seen DATETIME(2) NOT NULL, customer_id BIGINT NOT NULL, path VARCHAR(60) NOT NULL, millis FLOAT,
        INDEX (customer_id)""",
        ("seen", "customer_id", "path", "millis"),
        9_000,
        _page_views,
    ),
    ShopTable(
        "ratings",
        """product INT NOT NULL, customer INT NOT NULL, stars TINYINT NOT NULL, words TINYTEXT,
        given TIMESTAMP NOT NULL, PRIMARY KEY (product, customer)""",
        ("product", "customer", "stars", "words", "given"),
        8_000,
        _ratings,
    ),
    ShopTable(
        "warehouses",
        "code CHAR(3) NOT NULL PRIMARY KEY, name VARCHAR(40) CHARACTER SET latin1 NOT NULL, place POINT NOT NULL",
        ("code", "name", "place"),
        5,
        _warehouses,
        "(%s, %s, POINT(%s, %s))",
    ),
)


def connect(host: str, port: int, user: str, password: str, database: str | None = None) -> Any:
    """Return an open connection whose session runs in UTC with MySQL's strict mode.

    Args:
        host: Server's host.
        port: Server's port.
        user: Account with all rights on the shop.
        password: Its password.
        database: Database to use.
    """
    return pymysql.connect(
        host=host,
        port=port,
        user=user,
        password=password,
        database=database,
        charset="utf8mb4",
        autocommit=True,
        init_command="SET time_zone = '+00:00'",
    )


def load(conn: Any, database: str, size: Size, say: Callable[[str], None]) -> int:
    """Create the shop and fill it; an older one is dropped. Return the number of rows."""
    total = 0
    with conn.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS `{database}`")
        cursor.execute(f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4")
        cursor.execute(f"USE `{database}`")
        for table in TABLES:
            cursor.execute(f"CREATE TABLE `{table.name}` ({table.ddl})")
            total += _fill(conn, cursor, table, size)
            say(f"{table.name}: {total:,} rows so far")
    return total


def _fill(conn: Any, cursor: Any, table: ShopTable, size: Size) -> int:
    rng = random.Random(f"{SEED}/{table.name}")
    count = size.of(table.rows)
    place = table.placeholder or "(" + ", ".join(["%s"] * len(table.columns)) + ")"
    head = f"INSERT INTO `{table.name}` ({', '.join(table.columns)}) VALUES "
    batch: list[str] = []
    rows = 0
    conn.begin()
    for row in table.generate_rows(rng, count, size):
        batch.append(cursor.mogrify(place, row))
        rows += 1
        if len(batch) == _BATCH_ROWS:
            cursor.execute(head + ",".join(batch))
            batch.clear()
    if batch:
        cursor.execute(head + ",".join(batch))
    conn.commit()
    return rows
