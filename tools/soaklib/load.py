"""A steady load of random transactions. The tables themselves, and what their triggers note, are the truth."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

import pymysql

from soaklib.tables import BIG, OTHER, ROWS

_WORDS = ("x", "ÿ語", "it''s", "", "Zz", "zZ")
# Lock wait, deadlock, metadata lock, duplicate key, unknown table, unknown column, XA state, lost connection, shutdown.
# A server that goes down interrupts statements (1317) before it says so (1053); one that is to be a replica is
# read-only (1290), and ends connections (3169 where that is noticed by a statement).
_CONNECTION_ERRORS = {1053, 1290, 1317, 2003, 2006, 2013, 3169, 0}
_EXPECTED = {
    1205,
    1213,
    1062,
    1146,
    1054,
    1397,
    1399,
    1402,
    1440,
    1614,
    1412,
    1364,
    1406,
    3024,
} | _CONNECTION_ERRORS


@dataclass
class Load:
    """Run transactions until stopped.

    Args:
        connect: Opens a root connection to the server.
        database: Where the tables are.
        seed: Of the random numbers.
        rate: Transactions a second of each thread, at most.
    """

    connect: Callable[[], Any]
    database: str
    seed: int
    rate: float
    threads: int = 2
    done: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    # The current name of r, and columns that DDL has added, by table.
    renamed: str = "r0"
    added: dict[str, list[str]] = field(default_factory=dict)
    prepared: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _gate: threading.Event = field(default_factory=threading.Event)
    _busy: list[threading.Lock] = field(default_factory=list)
    _pool: list[threading.Thread] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _xids: int = 0
    _granted: int = 0

    def start(self) -> None:
        """Start the threads."""
        self._gate.set()
        for n in range(self.threads):
            self._busy.append(threading.Lock())
            thread = threading.Thread(target=self._run, args=(n,), name=f"soak-load-{n}", daemon=True)
            self._pool.append(thread)
            thread.start()

    def stop(self) -> None:
        """Let every thread finish its transaction and end."""
        self._stop.set()
        self._gate.set()
        for thread in self._pool:
            thread.join(60)

    def grant(self, transactions: int) -> None:
        """Let so many transactions run from now on, those of earlier grants are forfeit.

        However slow the drivers are, what they have to read stays within bounds.
        """
        self._granted = transactions

    def cancel(self) -> None:
        """Begin no further transaction; do not wait."""
        self._stop.set()
        self._gate.set()

    def pause(self) -> None:
        """Return when no transaction is under way, and let none begin."""
        self._gate.clear()
        for busy in self._busy:
            with busy:
                pass

    def resume(self) -> None:
        """Let transactions begin again."""
        self._gate.set()

    # -- threads ----------------------------------------------------------------------------------------------------

    def _run(self, n: int) -> None:
        rng = random.Random(f"{self.seed}/load/{n}")
        conn: Any = None
        while not self._stop.is_set():
            self._gate.wait()
            began = time.monotonic()
            if self._granted <= 0:
                self._stop.wait(0.05)
                continue
            with self._busy[n]:
                if not self._gate.is_set():
                    continue
                self._granted -= 1
                try:
                    conn = conn or self._open()
                    self._step(conn, rng)
                except pymysql.MySQLError as error:
                    conn = self._failed(conn, error)
            # In bursts: several transactions at once, then a rest.
            time.sleep(max(0.0, rng.choice((0.0, 1.0, 2.0)) / self.rate - (time.monotonic() - began)))
        if conn is not None:
            conn.close()

    def _open(self) -> Any:
        conn = self.connect()
        with conn.cursor() as cursor:
            cursor.execute(f"USE {self.database}")
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 1, lock_wait_timeout = 3")
        return conn

    def _failed(self, conn: Any, error: Exception) -> Any:
        code = error.args[0] if error.args else 0
        self.done["given up"] += 1
        if code not in _EXPECTED:
            self.errors.append(repr(error)[:300])
        if code in _CONNECTION_ERRORS or conn is None:
            if conn is not None:
                conn.close()
            self._stop.wait(0.3)
            return None
        try:
            conn.rollback()
        except pymysql.MySQLError:
            conn.close()
            return None
        return conn

    def _step(self, conn: Any, rng: random.Random) -> None:
        kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
        getattr(self, "_" + kind)(conn, rng)
        self.done[kind.replace("_", " ")] += 1

    # -- kinds of transactions --------------------------------------------------------------------------------------

    def _single(self, conn: Any, rng: random.Random) -> None:
        _execute(conn, self._change(rng))

    def _several(self, conn: Any, rng: random.Random) -> None:
        _execute(conn, f"SET SESSION binlog_transaction_compression = {rng.choice(('ON', 'OFF', 'OFF'))}")
        conn.begin()
        for n in range(rng.randrange(1, 8)):
            if rng.random() < 0.2:
                _execute(conn, f"SAVEPOINT s{n}", self._change(rng), f"ROLLBACK TO SAVEPOINT s{n}")
            _execute(conn, self._change(rng))
        conn.rollback() if rng.random() < 0.15 else conn.commit()

    def _large(self, conn: Any, rng: random.Random) -> None:
        _execute(conn, f"SET SESSION binlog_transaction_compression = {rng.choice(('ON', 'OFF'))}")
        conn.begin()
        _execute(conn, f"UPDATE big SET v = CONCAT('big ', {rng.randrange(10**6)}), ver = ver + 1 WHERE id % 3 = 1")
        if rng.random() < 0.5:
            low = rng.randrange(BIG)
            _execute(conn, f"DELETE FROM big WHERE id BETWEEN {low} AND {low + 60}")
            rows = ", ".join(f"({i}, 'again')" for i in range(low, low + 60, 2))
            _execute(conn, f"INSERT INTO big (id, v) VALUES {rows}")
        conn.commit()

    def _empty(self, conn: Any, rng: random.Random) -> None:
        """Commit a transaction that has no row in the binlog, and one that is not logged at all."""
        conn.begin()
        _execute(conn, "UPDATE a SET ver = ver + 1 WHERE id < 0")
        conn.commit()
        source = f"aaaaaaaa-0000-0000-0000-{self.seed % 10**6:06d}{rng.randrange(10**6):06d}"
        try:
            _execute(conn, f"SET SESSION gtid_next = '{source}:{rng.randrange(1, 10**9)}'", "BEGIN", "COMMIT")
        finally:
            _execute(conn, "SET SESSION gtid_next = 'AUTOMATIC'")

    def _elsewhere(self, conn: Any, rng: random.Random) -> None:
        """Change a table that is not captured, with a few captured rows before it."""
        conn.begin()
        _execute(conn, self._change(rng))
        rows = ", ".join(f"('{'noise ' * 20}')" for _ in range(rng.choice((1, 400))))
        _execute(conn, f"INSERT INTO {OTHER}.noise (v) VALUES {rows}", self._change(rng))
        conn.commit()

    def _rotate(self, conn: Any, rng: random.Random) -> None:
        _execute(conn, "FLUSH BINARY LOGS")

    def _xa(self, conn: Any, rng: random.Random) -> None:
        self.prepare_xa(rng)

    def _decide(self, conn: Any, rng: random.Random) -> None:
        self.decide_xa(conn, rng)

    def prepare_xa(self, rng: random.Random) -> str | None:
        """Prepare an XA transaction on a connection of its own; return its id, None when it was over at once."""
        with self._guard:
            self._xids += 1
            xid = f"{self.database}-{self._xids}"
        with closing(self._open()) as other:
            _execute(other, f"SET @soak_mark = 'xa {xid}'", f"XA START '{xid}'")
            for _ in range(rng.randrange(1, 5)):
                _execute(other, self._change(rng, rng.choice("abce")))
            _execute(other, f"XA END '{xid}'")
            if rng.random() < 0.25:
                _execute(other, f"XA COMMIT '{xid}' ONE PHASE")
                return None
            with self._guard:
                self.prepared.append(xid)
            _execute(other, f"XA PREPARE '{xid}'")
        return xid

    def decide_xa(self, conn: Any, rng: random.Random, *, least: int = 0) -> int:
        """Commit or roll back a prepared XA transaction; return how many were decided.

        Args:
            conn: A connection.
            rng: Random numbers.
            least: Decide at least so many as long as there are some.
        """
        decided = 0
        while decided <= least:
            with self._guard:
                if not self.prepared:
                    break
                xid = self.prepared.pop(rng.randrange(len(self.prepared)))
            verb = rng.choice(("COMMIT", "COMMIT", "ROLLBACK"))
            with suppress(pymysql.err.OperationalError, pymysql.err.InternalError):
                _execute(conn, f"XA {verb} '{xid}'")
                self.done["xa " + ("committed" if verb == "COMMIT" else "rolled back")] += 1
            decided += 1
        return decided

    def decide_all(self, conn: Any) -> None:
        """Commit or roll back every prepared transaction, so that nothing is hidden or locked at the end."""
        with conn.cursor() as cursor:
            cursor.execute("XA RECOVER")
            for row in cursor.fetchall():
                cursor.execute(f"XA {random.Random(row[3]).choice(('COMMIT', 'ROLLBACK'))} '{row[3]}'")
        self.prepared.clear()

    # -- single changes ---------------------------------------------------------------------------------------------

    def _change(self, rng: random.Random, table: str | None = None) -> str:
        table = table or rng.choice("aaabbbsscceekkwwr")
        return str(getattr(self, f"_of_{table}")(rng))

    def _extra(self, rng: random.Random, table: str) -> str:
        """Return an assignment to a column that DDL has added, now and then."""
        names = self.added.get(table) or []
        return f", {rng.choice(names)} = DEFAULT" if names and rng.random() < 0.4 else ""

    def _of_a(self, rng: random.Random) -> str:
        i, j, word = rng.randrange(ROWS), rng.randrange(ROWS), rng.choice(_WORDS)
        return rng.choice(
            (
                f"REPLACE INTO a (id, v, n) VALUES ({i}, '{word}{j}', {rng.choice((0, 2**64 - 1, j))})",
                f"INSERT INTO a (id, v) VALUES ({i}, '{word}'), ({j + ROWS}, NULL) "
                f"ON DUPLICATE KEY UPDATE v = 'dup {j}', ver = ver + 1",
                f"UPDATE a SET v = CONCAT('u', {j}), ver = ver + 1{self._extra(rng, 'a')} WHERE id % 37 = {i % 37}",
                f"UPDATE IGNORE a SET id = {j}, ver = ver + 1 WHERE id = {i}",
                f"DELETE FROM a WHERE id = {i}",
            )
        )

    def _of_b(self, rng: random.Random) -> str:
        i, j, word = rng.randrange(90), rng.randrange(ROWS), rng.choice(_WORDS)
        return rng.choice(
            (
                f"REPLACE INTO b (k1, k2, d) VALUES ('{word}{i}', {j}, {rng.randrange(-99999, 99999) / 1000})",
                f"UPDATE IGNORE b SET k1 = CONCAT(k1, 'z'), d = -d, ver = ver + 1 WHERE k2 = {j} AND LENGTH(k1) < 12",
                f"UPDATE b SET d = d + 1, ver = ver + 1{self._extra(rng, 'b')} WHERE k2 % 50 = {j % 50}",
                f"DELETE FROM b WHERE k2 = {j} LIMIT 2",
            )
        )

    def _of_s(self, rng: random.Random) -> str:
        i, word = rng.randrange(ROWS), rng.choice(_WORDS)
        return rng.choice(
            (
                f"INSERT INTO s (k, t) VALUES ('{word} {i}', '{word}') ON DUPLICATE KEY UPDATE t = 'x', ver = ver + 1",
                # The collation takes both spellings for one key; as a Kafka key they are two.
                f"UPDATE s SET k = UPPER(k), ver = ver + 1 WHERE k = 'name {i}'",
                f"UPDATE IGNORE s SET k = CONCAT('Ñame ', {i}), ver = ver + 1 WHERE k = 'name {i}'",
                f"UPDATE s SET t = CONCAT('{word}', {i}), ver = ver + 1{self._extra(rng, 's')} WHERE k LIKE '%{i}'",
                f"DELETE FROM s WHERE k = 'name {i}'",
            )
        )

    def _of_c(self, rng: random.Random) -> str:
        i = rng.randrange(ROWS)
        return rng.choice(
            (
                f"INSERT INTO c (a) VALUES ({i}), ({i + 1})",
                f"UPDATE c SET a = a + 1, ver = ver + 1{self._extra(rng, 'c')} WHERE id % 61 = {i % 61}",
                f"DELETE FROM c WHERE id % 97 = {i % 97} LIMIT 3",
            )
        )

    def _of_e(self, rng: random.Random) -> str:
        i = rng.randrange(90)
        day = f"DATE '2024-01-01' + INTERVAL {i} DAY"
        return rng.choice(
            (
                f"REPLACE INTO e (d, m, x, f) VALUES ({day}, {i / 4}, 'y{i:02d}', {rng.random()})",
                f"UPDATE e SET f = f + 1, ver = ver + 1{self._extra(rng, 'e')} WHERE d = {day}",
                f"UPDATE IGNORE e SET m = m + 0.25, ver = ver + 1 WHERE d = {day}",
                f"DELETE FROM e WHERE d = {day} LIMIT 1",
            )
        )

    def _of_k(self, rng: random.Random) -> str:
        i = rng.randrange(7)
        return rng.choice(
            (
                f"INSERT INTO k (a, w) VALUES ({i}, 'n'), ({i}, 'n')",
                f"UPDATE k SET ver = ver + 1 WHERE a = {i} LIMIT 3",
                f"DELETE FROM k WHERE a = {i} LIMIT 2",
            )
        )

    def _of_w(self, rng: random.Random) -> str:
        i = rng.randrange(60)
        return rng.choice(
            (
                f"REPLACE INTO w (id, v) VALUES ({i}, 'again {rng.randrange(99)}')",
                f"UPDATE w SET v = 'changed', ver = ver + 1 WHERE id % 9 = {i % 9}",
                f"DELETE FROM w WHERE id = {i}",
            )
        )

    def _of_r(self, rng: random.Random) -> str:
        i, name = rng.randrange(80), self.renamed
        return rng.choice(
            (
                f"REPLACE INTO {name} (id, v) VALUES ({i}, 'r {rng.randrange(99)}')",
                f"UPDATE {name} SET ver = ver + 1 WHERE id % 9 = {i % 9}",
                f"DELETE FROM {name} WHERE id = {i}",
            )
        )


_KINDS = {
    "single": 40,
    "several": 30,
    "large": 1,
    "empty": 3,
    "elsewhere": 4,
    "rotate": 0.4,
    "xa": 4,
    "decide": 5,
}


def _execute(conn: Any, *statements: str) -> None:
    with conn.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
