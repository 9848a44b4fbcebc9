"""The shop's business: a process that changes the shop until it gets a signal.

``python -m demolib.writer --host H --port P --user U --database D --report FILE``; the password comes from the
environment variable DEMO_MYSQL_PASSWORD. SIGTERM ends it after the transaction at hand, SIGUSR1 makes it run the ALTER
TABLE. The report file holds the counts as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from demolib import shop

PASSWORD_VARIABLE = "DEMO_MYSQL_PASSWORD"
ALTER = "ALTER TABLE orders ADD COLUMN channel VARCHAR(12) NOT NULL DEFAULT 'web' AFTER status"
ALTER_TABLE, ALTER_COLUMN = "orders", "channel"
CHANNELS = ("web", "app", "shop", "телефон")
_REPORT_SECONDS = 1.0
_LOCK_ERRORS = (1205, 1213)


@dataclass(slots=True)
class ShopWorkload:
    """Change the shop, one transaction after the other.

    Args:
        conn: Connection with all rights; its transactions are this object's.
        size: How large the shop was loaded.
        rng: Source of all decisions.
    """

    conn: Any
    size: shop.Size
    rng: random.Random
    done: Counter[str] = field(default_factory=Counter)
    altered: bool = False
    _orders: list[int] = field(default_factory=list)
    _renamed: dict[int, int] = field(default_factory=dict)
    _cursor: Any = None

    def __post_init__(self) -> None:
        self._orders = list(range(1, self.size.orders + 1))
        self._cursor = self.conn.cursor()

    def step(self) -> None:
        """Run one transaction of a kind chosen by weight."""
        name, action = self.rng.choices(_ACTIONS, _WEIGHTS)[0]
        if action is ShopWorkload.wholesale:
            self._run("SET SESSION binlog_transaction_compression = ON")
            try:
                self._transaction(action, keep=True)
            finally:
                self._run("SET SESSION binlog_transaction_compression = OFF")
        else:
            self._transaction(action, keep=action is not ShopWorkload.roll_back)
        self.done[name] += 1

    def _transaction(self, action: Action, *, keep: bool) -> None:
        self.conn.begin()
        try:
            action(self)
        except BaseException:
            self.conn.rollback()
            raise
        if keep:
            self.conn.commit()
        else:
            self.conn.rollback()

    def alter(self) -> None:
        """Add a column with a default to ``orders``; every order from here on fills it."""
        self._run(ALTER)
        self.altered = True
        self.done["alter table"] += 1

    def _run(self, sql: str, *arguments: Any) -> int:
        affected: int = self._cursor.execute(sql, arguments or None)
        return affected

    def _customer(self) -> int:
        return self.rng.randrange(self.size.customers) + 1

    def _sku(self) -> str:
        number = self.rng.randrange(self.size.products)
        return _sku(number, self._renamed.get(number, 0))

    def _order(self) -> int:
        return self.rng.choice(self._orders)

    def place_order(self) -> None:
        """Insert an order with its lines, take the goods from stock and the money from the customer."""
        rng, customer, total = self.rng, self._customer(), self.rng.randrange(10**9) / 10_000
        trace = rng.randrange(1 << 64)
        if self.altered:
            sql = (
                "INSERT INTO orders (customer_id, status, channel, placed, spent, total, trace) "
                "VALUES (%s, 'new', %s, NOW(6), %s, %s, %s)"
            )
            arguments: tuple[Any, ...] = (customer, rng.choice(CHANNELS))
        else:
            sql = (
                "INSERT INTO orders (customer_id, status, placed, spent, total, trace) "
                "VALUES (%s, 'new', NOW(6), %s, %s, %s)"
            )
            arguments = (customer,)
        self._run(sql, *arguments, timedelta(milliseconds=rng.randrange(10**8)), total, trace)
        order = int(self._cursor.lastrowid)
        lines = [
            (order, n, self._sku(), rng.randrange(1, 9), f"{rng.randrange(10_000) / 100:.2f}")
            for n in range(1, rng.randrange(2, 6))
        ]
        self._cursor.executemany(
            "INSERT INTO order_lines (order_id, line_no, sku, quantity, price) VALUES (%s, %s, %s, %s, %s)", lines
        )
        self._run("UPDATE stock SET quantity = quantity - 1 WHERE sku = %s", lines[0][2])
        self._run("UPDATE customers SET credit = credit - %s, seen = NOW(6) WHERE id = %s", 3.5, customer)
        self._orders.append(order)

    def advance_order(self) -> None:
        """Move an order to another status."""
        self._run(
            "UPDATE orders SET status = %s, due = CURRENT_DATE + INTERVAL %s DAY WHERE id = %s",
            self.rng.choice(shop.STATUSES),
            self.rng.randrange(20),
            self._order(),
        )

    def cancel_order(self) -> None:
        """Delete an order and all its lines."""
        index = self.rng.randrange(len(self._orders))
        order, self._orders[index] = self._orders[index], self._orders[-1]
        self._orders.pop()
        self._run("DELETE FROM order_lines WHERE order_id = %s", order)
        self._run("DELETE FROM orders WHERE id = %s", order)

    def move_customer(self) -> None:
        """Change text in three character sets and a JSON document."""
        self._run(
            "UPDATE customers SET city = %s, street = %s, vip = NOT vip, prefs = JSON_SET(COALESCE(prefs, '{}'), "
            "'$.moved', %s) WHERE id = %s",
            self.rng.choice(shop.CITIES),
            self.rng.choice(shop.STREETS),
            self.rng.randrange(1000) / 8,
            self._customer(),
        )

    def rename_product(self) -> None:
        """Give a product another key, and let its stock follow: key changes in two tables."""
        number = self.rng.randrange(self.size.products)
        old = self._renamed.get(number, 0)
        self._renamed[number] = old + 1
        names = (_sku(number, old + 1), _sku(number, old))
        self._run("UPDATE products SET sku = %s WHERE sku = %s", *names)
        self._run("UPDATE stock SET sku = %s WHERE sku = %s", *names)

    def renumber_lines(self) -> None:
        """Move all lines of an order to other numbers: several key changes in one event."""
        self._run(
            "UPDATE order_lines SET line_no = line_no + 100 WHERE order_id = %s AND line_no < 60000", self._order()
        )

    def reprice(self) -> None:
        """Change decimals, floats, bits and a blob."""
        rng = self.rng
        self._run(
            "UPDATE products SET price = price + 0.125, weight = %s, flags = %s, thumb = %s WHERE sku = %s",
            rng.random(),
            rng.randrange(1 << 12),
            rng.randbytes(rng.randrange(40)),
            self._sku(),
        )

    def count_stock(self) -> None:
        """Insert or update stock rows in one statement."""
        rows = [(self.rng.choice(shop.WAREHOUSES), self._sku(), self.rng.randrange(900)) for _ in range(3)]
        self._cursor.executemany(
            "INSERT INTO stock (warehouse, sku, quantity, counted, shelf) VALUES (%s, %s, %s, CURRENT_TIME, 9) "
            "ON DUPLICATE KEY UPDATE quantity = quantity + 1, counted = CURRENT_TIME",
            rows,
        )

    def rate(self) -> None:
        """Replace a rating, which deletes and inserts the same key when it exists."""
        rng = self.rng
        self._run(
            "REPLACE INTO ratings (product, customer, stars, words, given) VALUES (%s, %s, %s, %s, NOW())",
            rng.randrange(self.size.products),
            rng.randrange(3),
            rng.randrange(1, 6),
            "★" * rng.randrange(5),
        )

    def view_pages(self) -> None:
        """Insert, change and delete rows of the table without key, equal rows among them."""
        customer = self._customer()
        row = (customer, self.rng.choice(shop.PATHS), self.rng.randrange(1000) / 8)
        self._cursor.executemany(
            "INSERT INTO page_views (seen, customer_id, path, millis) VALUES (NOW(2), %s, %s, %s)", [row, row, row]
        )
        self._run("UPDATE page_views SET millis = millis + 1 WHERE customer_id = %s ORDER BY seen LIMIT 2", customer)
        if self.rng.random() < 0.4:
            self._run("DELETE FROM page_views WHERE customer_id = %s ORDER BY seen LIMIT 1", customer)

    def reinsert_product(self) -> None:
        """Delete a row and insert it again with the same key, in one transaction."""
        key = self._sku()
        columns = "sku, title, category, tags, price, weight, volume, attributes, released, thumb, flags"
        self._run("CREATE TEMPORARY TABLE IF NOT EXISTS saved_product LIKE products")
        self._run(f"INSERT INTO saved_product SELECT {columns} FROM products WHERE sku = %s", key)
        self._run("DELETE FROM products WHERE sku = %s", key)
        self._run(f"INSERT INTO products ({columns}) SELECT {columns} FROM saved_product")
        self._run("DELETE FROM saved_product")

    def wholesale(self) -> None:
        """Do many orders in one transaction; it is compressed in the binlog."""
        for _ in range(self.rng.randrange(5, 25)):
            self.place_order()
        self.advance_order()
        self.renumber_lines()

    def roll_back(self) -> None:
        """Change much and roll it back; nothing of it may be seen."""
        self.move_customer()
        self._run("DELETE FROM order_lines WHERE order_id = %s", self._order())


Action = Callable[[ShopWorkload], None]
_KINDS: tuple[tuple[str, int, Action], ...] = (
    ("order placed", 30, ShopWorkload.place_order),
    ("order advanced", 30, ShopWorkload.advance_order),
    ("order cancelled", 8, ShopWorkload.cancel_order),
    ("customer moved", 20, ShopWorkload.move_customer),
    ("product renamed", 3, ShopWorkload.rename_product),
    ("lines renumbered", 4, ShopWorkload.renumber_lines),
    ("product repriced", 10, ShopWorkload.reprice),
    ("stock counted", 8, ShopWorkload.count_stock),
    ("rated", 6, ShopWorkload.rate),
    ("pages viewed", 10, ShopWorkload.view_pages),
    ("product reinserted", 2, ShopWorkload.reinsert_product),
    ("wholesale, compressed", 1, ShopWorkload.wholesale),
    ("rolled back", 2, ShopWorkload.roll_back),
)
_ACTIONS = [(name, action) for name, _, action in _KINDS]
_WEIGHTS = [weight for _, weight, _ in _KINDS]


def _sku(number: int, renamed: int) -> str:
    return shop.sku(number) + (f"-v{renamed}" if renamed else "")


def run(business: ShopWorkload, rate: float, report: Path, signals: Signals) -> None:
    """Run transactions at most ``rate`` a second until stopped.

    Args:
        business: What to run.
        rate: Transactions a second.
        report: File that holds the counts, renewed every second.
        signals: What others ask for.
    """
    began = due = reported = time.monotonic()
    while not signals.stopped():
        if signals.alter and not business.altered:
            business.alter()
        try:
            business.step()
        except Exception as error:
            if getattr(error, "args", (0,))[0] not in _LOCK_ERRORS:
                raise
            business.done["lock wait, given up"] += 1
        now = time.monotonic()
        if now - reported >= _REPORT_SECONDS:
            reported = now
            _write(report, business, now - began)
        # A writer that is late by a second does not catch up.
        due = max(due + 1 / rate, now - 1)
        if due > now:
            time.sleep(due - now)
    _write(report, business, time.monotonic() - began)


def _write(report: Path, business: ShopWorkload, seconds: float) -> None:
    counts = {"seconds": round(seconds, 1), "altered": business.altered, "transactions": dict(business.done)}
    temporary = report.with_name(report.name + ".new")
    temporary.write_text(json.dumps(counts), encoding="utf-8")
    temporary.replace(report)


@dataclass(slots=True)
class Signals:
    """Hold what signals have requested."""

    stop: bool = False
    alter: bool = False
    parent: int = field(default_factory=os.getppid)

    def install(self) -> None:
        """Take SIGTERM, SIGINT and SIGUSR1."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "stop", True))
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "alter", True))

    def stopped(self) -> bool:
        """Return whether to end: somebody asked, or the process that started this one is gone."""
        return self.stop or os.getppid() != self.parent


def main(argv: Sequence[str] | None = None) -> int:
    """Run the writer; return the exit code."""
    parser = argparse.ArgumentParser(prog="demolib.writer")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--database", default=shop.DATABASE)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=200.0, help="transactions a second at most")
    parser.add_argument("--scale", type=float, default=1.0, help="as the shop was loaded")
    parser.add_argument("--seed", type=int, default=shop.SEED)
    given = parser.parse_args(argv)
    signals = Signals()
    signals.install()
    conn = shop.connect(given.host, given.port, given.user, os.environ.get(PASSWORD_VARIABLE, ""), given.database)
    business = ShopWorkload(conn, shop.Size(given.scale), random.Random(given.seed))
    run(business, given.rate, given.report, signals)
    return 0


if __name__ == "__main__":
    sys.exit(main())
