"""A source of tables for the model of interrupted snapshots: rows that change, and statements that change tables.

Each row knows the change that gave it its value; a statement that changes rows without events gives them its own
number. A table keeps its id whatever its name is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from stream_source import COLUMN, FILE, Binlog, Connection, RowRecord, Server, Source

from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import SIGNED

T, U, X, OUTSIDE, SPARE = (TableId("d", name) for name in ("t", "u", "x", "z", "spare"))
CAPTURED = (T, U, X)
KEYS = 8
CHUNK_ROWS = 2


@dataclass(frozen=True, slots=True)
class Rows:
    """A table at a position.

    Args:
        id: The table, whatever its name is.
        rows: The number of the change that each row has its value from, by key.
        key: Name of its key column.
        version: Number of the statement that rebuilt it.
    """

    id: int
    rows: Mapping[int, int]
    key: str = "id"
    version: int = 0

    def with_values_of(self, n: int) -> Rows:
        """Return it with rows that a statement has changed."""
        return replace(self, rows=dict.fromkeys(self.rows, n))

    def rebuilt(self, n: int, rows: Mapping[int, int]) -> Rows:
        """Return it as a statement has built it again."""
        return replace(self, rows=rows, version=n)


Tables = Mapping[TableId, Rows]


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction.

    Args:
        n: Its number.
        gtid: Its GTID.
        ts_ms: When it was committed.
        records: What a stream produces for it.
        sql: The statement that changed tables; empty for rows.
        changed_tables: The tables that this statement names.
    """

    n: int
    gtid: str
    ts_ms: int
    records: tuple[RowRecord, ...] = ()
    sql: str = ""
    changed_tables: tuple[TableId, ...] = ()


@dataclass(eq=False)
class TableBinlog(Binlog):
    """A binlog, with the tables behind each of its transactions."""

    states: list[Tables] = field(default_factory=list)

    def tables(self, at: int) -> Tables:
        """Return the tables at a position."""
        return self.states[(at - self.first) // self.width]

    def steps(self, start: int, end: int) -> list[tuple[Tables, Step, Tables]]:
        """Return the transactions of a range, each with the tables before and after it."""
        first, last = ((at - self.first) // self.width for at in (start, end))
        return [(self.states[i], self.changes[i], self.states[i + 1]) for i in range(first, last)]  # type: ignore[misc]


class TableSource(Source):
    """One server with some tables, of which one is not captured."""

    binlog: TableBinlog

    def __init__(self, ask: Callable[[], None], rng: random.Random) -> None:
        self._locks: dict[Connection, dict[TableId, int]] = {}
        self._ids = 4
        rows = {T: range(KEYS), U: range(0, KEYS, 3), OUTSIDE: range(1, 4)}
        self._first = {
            table: Rows(i, {key: -1 for key in keys if rng.random() < 0.9})
            for i, (table, keys) in enumerate(rows.items())
        }
        super().__init__(ask)

    def new_binlog(self, server: Server) -> Binlog:
        """Return the binlog of a server."""
        self._made += 1
        made = TableBinlog(self._made, 157, 10, {}, states=[self._first])
        self.lives[self._made] = made
        return made

    @property
    def now(self) -> Tables:
        """Return the tables as they are."""
        binlog = self.address.binlog
        assert isinstance(binlog, TableBinlog)
        return binlog.states[-1]

    def tables_at(self, at: int) -> Tables:
        """Return the tables at a position."""
        binlog = self.address.binlog
        assert isinstance(binlog, TableBinlog)
        return binlog.tables(at)

    def steps(self, start: int, end: int) -> list[tuple[Tables, Step, Tables]]:
        """Return the transactions of a range."""
        binlog = self.address.binlog
        assert isinstance(binlog, TableBinlog)
        return binlog.steps(start, end)

    def _commit(self, tables: Tables, n: int, **members: object) -> None:
        binlog = self.address.binlog
        assert isinstance(binlog, TableBinlog)
        self.changes, self.now_ms = n + 1, self.now_ms + 2000
        step = Step(n, f"{self.address.uuid}:{n + 1}", self.now_ms, **members)  # type: ignore[arg-type]
        binlog.changes.append(step)  # type: ignore[arg-type]
        binlog.states.append(tables)
        self.address.executed = self.address.executed.add(step.gtid)

    # -- rows -----------------------------------------------------------------------------------------------------

    def change_row(self, table: TableId, key: int, to: int | None) -> None:
        """Insert, update or delete a row, or move it to another key.

        Args:
            table: Its table.
            key: Its key.
            to: Its key afterwards; None deletes it.
        """
        n, state = self.changes, self.now[table]
        rows = dict(state.rows)
        records: list[RowRecord] = []
        if key != to and rows.pop(key, None) is not None:
            records.append((table, key, "d", n))
        if to is not None:
            rows[to] = n
            records.append((table, to, "c", n))
        if records:
            self._commit({**self.now, table: replace(state, rows=rows)}, n, records=tuple(records))

    def any_row(self, rng: random.Random) -> None:
        """Change some row."""
        table = rng.choice(list(self.now))
        rows, key = self.now[table].rows, rng.randrange(KEYS)
        free = [other for other in range(KEYS) if other not in rows]
        if key not in rows:
            self.change_row(table, key, key)
        elif free and rng.random() < 0.4:
            self.change_row(table, key, rng.choice(free))
            if rng.random() < 0.4:  # the old key is used again
                self.change_row(table, key, key)
        else:
            self.change_row(table, key, rng.choice((key, key, None)))

    # -- statements -----------------------------------------------------------------------------------------------

    def any_statement(self, rng: random.Random) -> None:
        """Change some table as a whole."""
        rng.choice(
            (
                self._rename,
                self._rename,
                self._swap,
                self._drop,
                self._create,
                self._truncate,
                self._renumber,
                self._rename_key,
                self._add_column,
                self._exchange,
            )
        )(rng)

    def statement(self, sql: str, tables: Tables, *names: TableId) -> bool:
        """Let a statement change tables; return whether it could, as no view holds one of them.

        Args:
            sql: The statement.
            tables: All tables after it.
            names: Those that it names.
        """
        if any(name in held for held in self._locks.values() for name in names):
            return False
        self._commit(tables, self.changes, sql=sql, changed_tables=names)
        return True

    def rename(self, *pairs: tuple[TableId, TableId]) -> bool:
        """Rename tables, one after the other."""
        tables = dict(self.now)
        for old, new in pairs:
            tables[new] = tables.pop(old).with_values_of(self.changes)
        names = {name for pair in pairs for name in pair}
        return self.statement("RENAME TABLE " + ", ".join(f"{a} TO {b}" for a, b in pairs), tables, *names)

    def drop(self, table: TableId) -> bool:
        """Drop a table."""
        return self.statement(f"DROP TABLE {table}", {k: v for k, v in self.now.items() if k != table}, table)

    def create(self, table: TableId) -> bool:
        """Create a table."""
        self._ids += 1
        made = Rows(self._ids, {}, version=self.changes)
        return self.statement(f"CREATE TABLE {table} (id INT NOT NULL PRIMARY KEY)", {**self.now, table: made}, table)

    def rebuild(self, table: TableId, action: str, rows: Mapping[int, int], key: str = "") -> bool:
        """Let ALTER TABLE build a table again."""
        state = self.now[table]
        built = replace(state.rebuilt(self.changes, rows), key=key or state.key)
        return self.statement(f"ALTER TABLE {table} {action}", {**self.now, table: built}, table)

    def _rename(self, rng: random.Random) -> None:
        free = [name for name in (*CAPTURED, OUTSIDE) if name not in self.now]
        if free:
            self.rename((rng.choice(list(self.now)), rng.choice(free)))

    def _swap(self, rng: random.Random) -> None:
        if len(self.now) > 1:
            one, other = rng.sample(list(self.now), 2)
            self.rename((one, SPARE), (other, one), (SPARE, other))

    def _drop(self, rng: random.Random) -> None:
        if len(self.now) > 1:
            self.drop(rng.choice(list(self.now)))

    def _create(self, rng: random.Random) -> None:
        free = [name for name in (*CAPTURED, OUTSIDE) if name not in self.now]
        if free:
            self.create(rng.choice(free))

    def _truncate(self, rng: random.Random) -> None:
        table = rng.choice(list(self.now))
        emptied = self.now[table].rebuilt(self.changes, {})
        self.statement(f"TRUNCATE TABLE {table}", {**self.now, table: emptied}, table)

    def _renumber(self, rng: random.Random) -> None:
        table = rng.choice(list(self.now))
        count, key = len(self.now[table].rows), self.now[table].key
        first = rng.randrange(KEYS - count + 1)
        self.rebuild(
            table,
            f"DROP COLUMN {key}, ADD COLUMN {key} INT NOT NULL AUTO_INCREMENT PRIMARY KEY FIRST",
            {first + i: self.changes for i in range(count)},
        )

    def _rename_key(self, rng: random.Random) -> None:
        table = rng.choice(list(self.now))
        state = self.now[table]
        key = "code" if state.key == "id" else "id"
        changed = dict.fromkeys(state.rows, self.changes)
        self.rebuild(table, f"CHANGE COLUMN {state.key} {key} INT NOT NULL", changed, key)

    def _add_column(self, rng: random.Random) -> None:
        table = rng.choice(list(self.now))
        self.statement(f"ALTER TABLE {table} ADD COLUMN c{self.changes} INT", self.now, table)

    def _exchange(self, rng: random.Random) -> None:
        table = rng.choice(list(self.now))
        rows = {key: self.changes for key in range(KEYS) if rng.random() < 0.5}
        tables = {**self.now, table: self.now[table].rebuilt(self.changes, rows)}
        self.statement(f"ALTER TABLE d.parts EXCHANGE PARTITION p0 WITH TABLE {table}", tables, table)

    # -- what the stage asks for ----------------------------------------------------------------------------------

    def connect(self, *_: object, **__: object) -> Connection:
        """Return a connection; what it holds is free when it ends."""
        self._ask()
        return Connection(self.address, self.unlock)

    def schema(self, at: BinlogOffset | None = None) -> SchemaState:
        """Return the captured tables at a position, or now."""
        tables = self.now if at is None else self.tables_at(at.pos)
        return SchemaState(
            {
                name: Table(name, (replace(COLUMN, name=rows.key),), (rows.key,))
                for name, rows in tables.items()
                if name in CAPTURED
            }
        )

    def history(self) -> list[HistoryRecord]:
        """Return the statements so far."""
        server, place = self.address, self.address.binlog.place
        return [
            HistoryRecord("p", BinlogOffset(FILE, place(i + 1), None, server.uuid), 0, step.ts_ms, "d", step.sql)
            for i, step in enumerate(server.binlog.changes)
            if step.changed_tables
        ]

    def split(self, table: TableId) -> list[SnapshotChunk]:
        """Return the chunks of a table; a small one is not split."""
        state = self.now[table]
        keys = sorted(state.rows)
        if len(keys) <= CHUNK_ROWS:
            return [SnapshotChunk(table, 0)]
        bounds = [None, *((key,) for key in keys[CHUNK_ROWS - 1 : -1 : CHUNK_ROWS]), None]
        last = len(bounds) - 2
        return [
            SnapshotChunk(table, i, (state.key,), bounds[i], bounds[i + 1], last=i == last, kinds=(SIGNED,))
            for i in range(last + 1)
        ]

    def lock(self, conn: Connection, table: TableId) -> None:
        """Hold a table's name; a view cannot read a table that was made or built again after it."""
        state = self.now.get(table)
        if state is None or (conn.view and not self._readable(state, conn.view)):
            raise SchemaMismatchError("the table is gone, or its definition has changed", where=str(table))
        self._locks.setdefault(conn, {})[table] = state.id

    def unlock(self, conn: Connection) -> None:
        """Give up what a connection holds."""
        self._locks.pop(conn, None)

    def _readable(self, state: Rows, view: int) -> bool:
        return any((old.id, old.version) == (state.id, state.version) for old in self.tables_at(view).values())

    def rows_now(self, table: TableId, columns: tuple[str, ...]) -> dict[int, int] | None:
        """Return the rows of a table by these columns; None when there is no such table."""
        state = self.now.get(table)
        return None if state is None or columns not in ((), (state.key,)) else dict(state.rows)

    def rows_in_view(self, conn: Connection, table: TableId) -> dict[int, int]:
        """Return the rows of the table that a connection holds under this name, in its view."""
        held = self._locks[conn][table]
        return dict(next(state.rows for state in self.tables_at(conn.view).values() if state.id == held))

    def rows_at(self, offset: BinlogOffset, table: TableId) -> dict[int, int]:
        """Return the rows of a table in the view of a snapshot."""
        state, then = self.now.get(table), self.tables_at(offset.pos).get(table)
        if state is None or then is None or (state.id, state.version) != (then.id, then.version):
            raise SchemaMismatchError("the table is gone, or its definition has changed", where=str(table))
        return dict(then.rows)
