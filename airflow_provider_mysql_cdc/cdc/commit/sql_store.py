"""The offset store in any database that SQLAlchemy supports, and its tables.

The offset store in any database that SQLAlchemy supports.

``save`` is one conditional statement (compare and swap on revision, epoch and stamp), so exactly one of two runs
succeeds, whatever isolation level the database uses.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.schema import CreateTable

from airflow_provider_mysql_cdc.cdc.commit.offset_store import PastOffset, StoredState, conflict_error, next_revision
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import (
    STORED_VERSION,
    Members,
    parse_json,
    record_location,
    stored_version_error,
)

OFFSETS_TABLE = "mysql_cdc_offsets"
HISTORY_TABLE = "mysql_cdc_offset_history"
VERSIONS_TABLE = "mysql_cdc_store_version"
POINTS_TABLE = "mysql_cdc_lag_points"
TABLES = (OFFSETS_TABLE, HISTORY_TABLE, VERSIONS_TABLE)
"""Tables without which there is no offset; that of the points is created by whoever writes the first one."""

# MySQL compares text without case by default, but the prefixes `shop` and `Shop` differ.
_NAME = sa.String(255).with_variant(mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
_LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
# SQLite generates row numbers only in a column declared INTEGER.
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_IF_NOT_EXISTS = ("sqlite", "mysql", "mariadb", "postgresql")

_metadata = sa.MetaData()
_offsets = sa.Table(
    OFFSETS_TABLE,
    _metadata,
    sa.Column("prefix", _NAME, primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("stamp", sa.String(32), nullable=False),
    sa.Column("binlog_offset", sa.String(255)),  # for people who read the table; only `state` is read by this package
    sa.Column("state", _LONG_TEXT, nullable=False),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
)
_history = sa.Table(
    HISTORY_TABLE,
    _metadata,
    sa.Column("id", _ROW_ID, primary_key=True, autoincrement=True),
    sa.Column("prefix", _NAME, nullable=False, index=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("binlog_offset", _LONG_TEXT, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
)
_points = sa.Table(
    POINTS_TABLE,
    _metadata,
    sa.Column("prefix", _NAME, primary_key=True),
    sa.Column("points", _LONG_TEXT, nullable=False),
)
versions = sa.Table(
    VERSIONS_TABLE,
    _metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
)


def require_tables(engine: Engine) -> None:
    """Create the tables that are missing, and check their version; safe when several processes do so at once.

    Args:
        engine: SQLAlchemy engine.

    Raises:
        StoredVersionError: They are of another version.
        sqlalchemy.exc.SQLAlchemyError: The database refuses.
    """
    if not sa.inspect(engine).has_table(OFFSETS_TABLE):
        # Before the others, so that no process sees them without a version.
        create_tables(engine, (versions,))
        _insert_version(engine)
    found = _read_version(engine) if sa.inspect(engine).has_table(VERSIONS_TABLE) else None
    if found != STORED_VERSION:
        raise stored_version_error(found, f"table {OFFSETS_TABLE}, version in table {VERSIONS_TABLE}")
    create_tables(engine, (_offsets, _history))


def create_tables(engine: Engine, tables: Sequence[sa.Table]) -> None:
    """Create the tables that are missing; safe when several processes do so at once.

    Args:
        engine: SQLAlchemy engine.
        tables: The tables.

    Raises:
        sqlalchemy.exc.SQLAlchemyError: A table is missing and cannot be created.
    """
    for table in tables:
        if sa.inspect(engine).has_table(table.name):
            continue
        try:
            with engine.begin() as conn:
                conn.execute(CreateTable(table, if_not_exists=engine.dialect.name in _IF_NOT_EXISTS))
                for index in table.indexes:
                    index.create(conn)
        except DBAPIError:
            # Another process was faster; otherwise the table is still missing.
            if not sa.inspect(engine).has_table(table.name):
                raise


def _read_version(engine: Engine) -> int | None:
    with engine.begin() as conn:
        version = conn.execute(sa.select(versions.c.version).where(versions.c.name == OFFSETS_TABLE)).scalar()
    return None if version is None else int(version)


def _insert_version(engine: Engine) -> None:
    with contextlib.suppress(IntegrityError), engine.begin() as conn:  # another process was faster
        conn.execute(versions.insert().values(name=OFFSETS_TABLE, version=STORED_VERSION))


T = TypeVar("T")


class SqlOffsetStore:
    """Keep the state of one topic.prefix in a database, with the history of its offsets.

    The tables are created when they are missing. Each call is one transaction.

    Args:
        engine: SQLAlchemy engine, 1.4 or 2.x.
        prefix: topic.prefix.
        keep: Rows of history kept for each prefix.
    """

    def __init__(self, engine: Engine, prefix: str, *, keep: int = 1000) -> None:
        self._engine, self._prefix, self._keep = engine, prefix, keep
        self._ready = False
        self._where = f"table {OFFSETS_TABLE}, prefix {prefix}"

    def load(self) -> StoredState | None:
        """Return the state, or None when nothing is stored; see ``OffsetStore.load``."""
        return self._transact(self._load)

    def save(self, new: StoredState, expected: StoredState | None) -> StoredState:
        """Replace the state, if it is still the expected one; see ``OffsetStore.save``."""
        stored = next_revision(new, expected)
        try:
            if self._transact(lambda conn: self._compare_and_swap(conn, stored, expected)):
                return stored
        except IntegrityError:  # another run stored the first state
            pass
        raise conflict_error(self._where, expected, self.load())

    def prefixes(self) -> list[str]:
        """Return the ``topic.prefix`` of each stored state, in order.

        Raises:
            StateError: The database does not answer.
        """
        query = sa.select(_offsets.c.prefix).order_by(_offsets.c.prefix)
        return self._transact(lambda conn: [str(prefix) for prefix in conn.execute(query).scalars()])

    def history(self, limit: int = 100) -> list[PastOffset]:
        """Return the last committed offsets, newest first.

        Args:
            limit: Most rows to return.

        Raises:
            StateError: The database does not answer.
        """
        query = (
            sa.select(_history.c.epoch, _history.c.binlog_offset, _history.c.at_ms)
            .where(_history.c.prefix == self._prefix)
            .order_by(_history.c.epoch.desc(), _history.c.id.desc())
            .limit(limit)
        )
        rows = self._transact(lambda conn: conn.execute(query).fetchall())
        with record_location(f"table {HISTORY_TABLE}, prefix {self._prefix}"):
            return [PastOffset(int(e), BinlogOffset.from_json(Members(parse_json(o))), int(at)) for e, o, at in rows]

    def remember(self, past: Iterable[PastOffset]) -> int:
        """Add offsets of another store's history that are missing here; return how many.

        Args:
            past: The offsets, in any order; two with the same epoch and offset are the same.

        Raises:
            StateError: The database does not answer.
        """
        return self._transact(lambda conn: self._insert_missing(conn, past))

    def load_points(self) -> list[Any]:
        """Return the points of the stream's lag, oldest first; see ``LagPointStore``.

        Raises:
            StateError: The database does not answer.
        """
        query = sa.select(_points.c.points).where(_points.c.prefix == self._prefix)

        def find_row(conn: Connection) -> Any:
            return conn.execute(query).scalar() if sa.inspect(conn).has_table(POINTS_TABLE) else None

        text = self._transact(find_row)
        value = None if text is None else parse_json(text)
        return value if isinstance(value, list) else []

    def save_points(self, points: list[Any]) -> None:
        """Replace the points of the stream's lag; see ``LagPointStore``.

        Raises:
            StateError: The database does not answer.
        """
        text = json.dumps(points)

        def replace_row(conn: Connection) -> None:
            own_row = _points.c.prefix == self._prefix
            if conn.execute(sa.select(_points.c.prefix).where(own_row)).scalar() is None:
                conn.execute(_points.insert().values(prefix=self._prefix, points=text))
            else:
                conn.execute(_points.update().where(own_row).values(points=text))

        # Only here: an account that may not create it drains as before, without a plot.
        self._call(lambda: create_tables(self._engine, (_points,)))
        self._transact(replace_row)

    def _insert_missing(self, conn: Connection, past: Iterable[PastOffset]) -> int:
        query = sa.select(_history.c.epoch, _history.c.binlog_offset).where(_history.c.prefix == self._prefix)
        recorded = {(int(epoch), text) for epoch, text in conn.execute(query)}
        added = 0
        for one in past:
            text = json.dumps(one.offset.to_json())
            if (one.epoch, text) not in recorded:
                recorded.add((one.epoch, text))
                row = {"prefix": self._prefix, "epoch": one.epoch, "binlog_offset": text, "at_ms": one.at_ms}
                conn.execute(_history.insert().values(**row))
                added += 1
        self._trim(conn)
        return added

    def _load(self, conn: Connection) -> StoredState | None:
        text = conn.execute(sa.select(_offsets.c.state).where(_offsets.c.prefix == self._prefix)).scalar()
        return None if text is None else StoredState.read(parse_json(text, self._where), self._where)

    def _compare_and_swap(self, conn: Connection, stored: StoredState, expected: StoredState | None) -> bool:
        current = self._load(conn)
        values: dict[str, Any] = {
            "revision": stored.revision,
            "epoch": stored.epoch,
            "stamp": stored.stamp,
            "binlog_offset": str(stored.committed)[:255] if stored.committed else None,
            "state": json.dumps(stored.to_json()),
            "updated_ms": time.time_ns() // 1_000_000,
        }
        if expected is None or not expected.revision:
            if current is not None:
                return False
            conn.execute(_offsets.insert().values(prefix=self._prefix, **values))
        else:
            expected_row = (
                (_offsets.c.prefix == self._prefix)
                & (_offsets.c.revision == expected.revision)
                & (_offsets.c.epoch == expected.epoch)
                & (_offsets.c.stamp == expected.stamp)
            )
            if conn.execute(_offsets.update().where(expected_row).values(**values)).rowcount != 1:
                return False
        if stored.committed is not None and (current is None or stored.committed != current.committed):
            self._insert_history(conn, stored, stored.committed, values["updated_ms"])
        return True

    def _insert_history(self, conn: Connection, stored: StoredState, offset: BinlogOffset, now_ms: int) -> None:
        past = stored.history[-1] if stored.history else None
        epoch, at_ms = (past.epoch, past.at_ms) if past and past.offset == offset else (stored.epoch, now_ms)
        conn.execute(
            _history.insert().values(
                prefix=self._prefix, epoch=epoch, binlog_offset=json.dumps(offset.to_json()), at_ms=at_ms or now_ms
            )
        )
        self._trim(conn)

    def _trim(self, conn: Connection) -> None:
        own_rows = _history.c.prefix == self._prefix
        newest = sa.select(_history.c.epoch, _history.c.id).where(own_rows)
        newest = newest.order_by(_history.c.epoch.desc(), _history.c.id.desc())
        oldest = conn.execute(newest.offset(self._keep - 1).limit(1)).first()
        if oldest is not None:
            epoch, number = oldest
            older = (_history.c.epoch < epoch) | ((_history.c.epoch == epoch) & (_history.c.id < number))
            conn.execute(_history.delete().where(own_rows & older))

    def _transact(self, work: Callable[[Connection], T]) -> T:
        def run() -> T:
            if not self._ready:
                require_tables(self._engine)
                self._ready = True
            with self._engine.begin() as conn:
                return work(conn)

        return self._call(run)

    def _call(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            # Only the driver's message: SQL and parameters hold the whole state.
            cause = (
                str(error.orig) if isinstance(error, DBAPIError) and error.orig is not None else type(error).__name__
            )
            raise StateError(
                "the offset store's database refuses or does not answer",
                where=self._where,
                why=cause,
                remedy="check the connection, and that its account may create and write its tables",
                retriable=True,
            ) from None
