"""DDL while everything else goes on, with a journal of what was run, for the verifier."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pymysql

from soaklib.load import Load
from soaklib.tables import triggers

_COLUMNS = (
    ("INT NOT NULL DEFAULT 7", "BIGINT NOT NULL DEFAULT 7"),
    ("VARCHAR(9) CHARACTER SET latin1 DEFAULT 'é'", "VARCHAR(19) CHARACTER SET latin1 DEFAULT 'é'"),
    ("DATETIME(3) DEFAULT '2024-02-29 01:02:03.5'", "DATETIME(6) DEFAULT '2024-02-29 01:02:03.5'"),
    ("DECIMAL(8,2) DEFAULT 1.5", "DECIMAL(18,2) DEFAULT 1.5"),
)
_ALTERED = ("a", "b", "s", "c", "e")
# Lock wait, deadlock, duplicate row, lost connection, shutdown, a server that becomes a replica, and what follows from
# statements whose end none saw.
_EXPECTED = (1205, 1213, 1062, 0, 1053, 1290, 1317, 2003, 2006, 2013, 3169, 1050, 1051, 1054, 1060, 1091, 1146)
_LEAST_EXTRA, _MOST_EXTRA = 2, 6


@dataclass(frozen=True, slots=True)
class DdlStatement:
    """One statement of the journal.

    Args:
        mark: Text by which its schema change is found; no other statement has it.
        sure: Whether the server said that it ran.
        late: Whether it ran after the initial snapshot was complete, so that it has to come once.
    """

    kind: str
    mark: str
    sure: bool
    late: bool


@dataclass
class Journal:
    """What the verifier needs to know of the tables' life.

    Args:
        columns: New name of a renamed column, by table and old name.
        names: Names that the renamed table had, oldest first.
        unaudited: Tables that may have lost their triggers.
    """

    done: list[DdlStatement] = field(default_factory=list)
    columns: dict[tuple[str, str], str] = field(default_factory=dict)
    names: list[str] = field(default_factory=lambda: ["r0"])
    unaudited: set[str] = field(default_factory=set)


@dataclass
class DdlLoad:
    """Run random DDL.

    Args:
        connect: Opens a root connection.
        database: Where the tables are.
        load: Runs at the same time; knows columns and names.
        late: Returns whether the initial snapshot is complete.
    """

    connect: Callable[[], Any]
    database: str
    load: Load
    rng: random.Random
    late: Callable[[], bool]
    fired: Counter[str]
    journal: Journal = field(default_factory=Journal)
    extra: list[str] = field(default_factory=list)
    _widened: dict[str, str] = field(default_factory=dict)
    _serial: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _gate: threading.Event = field(default_factory=threading.Event)
    _busy: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None
    errors: list[str] = field(default_factory=list)

    def start(self, every_s: float) -> None:
        """Run one every so many seconds, in a thread."""
        self._gate.set()
        self._thread = threading.Thread(target=self._run, args=(every_s,), name="soak-ddl", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the statement at hand and end."""
        self._stop.set()
        self._gate.set()
        if self._thread is not None:
            self._thread.join(60)

    def cancel(self) -> None:
        """Begin no further statement; do not wait."""
        self._stop.set()
        self._gate.set()

    def pause(self) -> None:
        """Return when no statement runs, and let none begin."""
        self._gate.clear()
        with self._busy:
            pass

    def resume(self) -> None:
        """Let statements run again."""
        self._gate.set()

    def _run(self, every_s: float) -> None:
        while not self._stop.wait(self.rng.uniform(0.3, 1.7) * every_s):
            self._gate.wait()
            with self._busy:
                if self._stop.is_set() or not self._gate.is_set():
                    continue
                kind = self.rng.choice(KINDS)
                try:
                    with closing(self.connect()) as conn, conn.cursor() as cursor:
                        cursor.execute(f"USE {self.database}")
                        cursor.execute("SET SESSION lock_wait_timeout = 2, innodb_lock_wait_timeout = 2")
                        getattr(self, "_" + kind)(cursor)
                except pymysql.MySQLError as error:
                    # A lock of a prepared XA transaction, or the server is down: another time.
                    if error.args and error.args[0] not in _EXPECTED:
                        self.errors.append(f"{kind}: {error!r}"[:300])

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def _ddl(self, cursor: Any, kind: str, mark: str, sql: str) -> None:
        late, sure = self.late(), False
        try:
            cursor.execute(sql)
            sure = True
        finally:
            self.journal.done.append(DdlStatement(kind, mark, sure, late))
        self.fired[f"ddl: {kind}"] += 1

    # -- kinds ------------------------------------------------------------------------------------------------------

    def _add_column(self, cursor: Any) -> None:
        table, name = self.rng.choice(_ALTERED), f"x{self._next()}"
        kind, wider = self.rng.choice(_COLUMNS)
        where = self.rng.choice(("", " FIRST", " AFTER ver"))
        self._ddl(cursor, "add column", f"ADD COLUMN {name} ", f"ALTER TABLE {table} ADD COLUMN {name} {kind}{where}")
        self._widened[name] = wider
        self.load.added.setdefault(table, []).append(name)

    def _some_column(self) -> tuple[str, str] | None:
        added_columns = [(t, c) for t, cs in self.load.added.items() for c in cs]
        return self.rng.choice(added_columns) if added_columns else None

    def _drop_column(self, cursor: Any) -> None:
        if (found := self._some_column()) is not None:
            table, name = found
            self.load.added[table].remove(name)
            self._ddl(cursor, "drop column", f"DROP COLUMN {name} ", f"ALTER TABLE {table} DROP COLUMN {name} ")

    def _modify_column(self, cursor: Any) -> None:
        if (found := self._some_column()) is not None:
            table, name = found
            n, kind = self._next(), self._widened[name]
            self._ddl(cursor, "modify column", f"/*m{n}*/", f"ALTER TABLE {table} /*m{n}*/ MODIFY COLUMN {name} {kind}")

    def _rename_column(self, cursor: Any) -> None:
        if (found := self._some_column()) is not None:
            table, name = found
            new = f"x{self._next()}"
            self.journal.columns[table, name] = new
            self.load.added[table].remove(name)
            self._widened[new] = self._widened[name]
            sql = f"ALTER TABLE {table} RENAME COLUMN {name} TO {new} "
            self._ddl(cursor, "rename column", f" TO {new} ", sql)
            self.load.added[table].append(new)

    def _create(self, cursor: Any) -> None:
        name = f"n{self._next()}"
        self._ddl(cursor, "create table", f"CREATE TABLE {name} ", f"CREATE TABLE {name} LIKE a")
        self.extra.append(name)
        cursor.execute(f"INSERT INTO {name} (id, v) VALUES (1, 'first'), (2, 'second')")
        cursor.execute(f"UPDATE {name} SET v = 'third', ver = 1 WHERE id = 2")

    def _ctas(self, cursor: Any) -> None:
        name = f"q{self._next()}"
        source = self.rng.choice(("SELECT id, v, n FROM a", "SELECT id, v FROM big WHERE id % 2 = 0"))
        sql = f"CREATE TABLE {name} (PRIMARY KEY (id)) AS {source}"
        self._ddl(cursor, "create table select", f"`{name}`", sql)
        self.extra.append(name)
        cursor.execute(f"UPDATE {name} SET v = 'after' WHERE id % 5 = 0")
        cursor.execute(f"DELETE FROM {name} WHERE id % 7 = 0")

    def _drop(self, cursor: Any) -> None:
        if len(self.extra) > _MOST_EXTRA or (len(self.extra) > _LEAST_EXTRA and self.rng.random() < 0.4):
            name = self.extra.pop(self.rng.randrange(len(self.extra)))
            self._ddl(cursor, "drop table", f"`{name}`", f"DROP TABLE {name}")

    def _rename(self, cursor: Any) -> None:
        cursor.execute("SHOW TABLES")
        there = {row[0] for row in cursor.fetchall()}
        old = self.load.renamed = next(name for name in reversed(self.journal.names) if name in there)
        new = f"r{self._next()}"
        self.journal.names.append(new)
        self._ddl(cursor, "rename table", f"TO {new} ", f"RENAME TABLE {old} TO {new} ")
        self.load.renamed = new

    def _truncate(self, cursor: Any) -> None:
        self._ddl(cursor, "truncate table", "", "TRUNCATE TABLE w")

    def _swap(self, cursor: Any) -> None:
        """Change a table as online schema change tools do: a copy, filled, takes its name."""
        n, table = self._next(), self.rng.choice(("c", "s"))
        copy, old = f"copy{n}", f"old{n}"
        self.load.pause()
        try:
            self._ddl(cursor, "create table", f"CREATE TABLE {copy} ", f"CREATE TABLE {copy} LIKE {table}")
            cursor.execute(f"INSERT INTO {copy} SELECT * FROM {table}")
            self.extra.append(copy)
            self.journal.unaudited.add(table)
            self._ddl(cursor, "swap tables", "", f"RENAME TABLE {table} TO {old}, {copy} TO {table}")
            self.extra.remove(copy)
            for statement in triggers(table, table, copy):
                cursor.execute(statement)
            self.journal.unaudited.discard(table)
            self._ddl(cursor, "drop table", f"`{old}`", f"DROP TABLE {old}")
        finally:
            self.load.resume()


KINDS = (
    *("add_column",) * 4,
    *("drop_column", "modify_column", "rename_column") * 2,
    *("create", "ctas", "ctas", "drop", "rename", "truncate", "swap"),
)
DDL = (
    *("add column", "drop column", "modify column", "rename column", "create table", "create table select"),
    *("drop table", "rename table", "truncate table", "swap tables"),
)
"""What its kinds are called in the journal and the report."""
