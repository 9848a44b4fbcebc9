"""The tables of the SQL offset store, their version, and the migrations from older versions.

A migration is a step from one version to the next. It may run in several processes at the same time, and again after
it was interrupted (MySQL commits at each DDL statement), so each migration checks what exists; the version is updated
after it by compare and swap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.schema import CreateTable

from airflow_provider_mysql_cdc.cdc.errors import StateError

OFFSETS_TABLE = "mysql_cdc_offsets"
HISTORY_TABLE = "mysql_cdc_offset_history"
VERSIONS_TABLE = "mysql_cdc_store_version"
POINTS_TABLE = "mysql_cdc_lag_points"
TABLES = (OFFSETS_TABLE, HISTORY_TABLE, VERSIONS_TABLE)
"""Tables without which there is no offset; that of the points is created by whoever writes the first one."""

VERSION = 1
"""Version of the tables that this package writes."""
MIGRATIONS: dict[int, Callable[[Engine], None]] = {}
"""By version, the migration from the version before it."""

# MySQL compares text without case by default, but the prefixes `shop` and `Shop` differ.
_NAME = sa.String(255).with_variant(mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
_LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
# SQLite generates row numbers only in a column declared INTEGER.
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_IF_NOT_EXISTS = ("sqlite", "mysql", "mariadb", "postgresql")

_metadata = sa.MetaData()
offsets = sa.Table(
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
history = sa.Table(
    HISTORY_TABLE,
    _metadata,
    sa.Column("id", _ROW_ID, primary_key=True, autoincrement=True),
    sa.Column("prefix", _NAME, nullable=False, index=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("binlog_offset", _LONG_TEXT, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
)
points = sa.Table(
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


def create_or_migrate(engine: Engine) -> None:
    """Create the tables that are missing and migrate older ones; safe when several processes do so at once.

    Args:
        engine: SQLAlchemy engine.

    Raises:
        StateError: A newer version of this package has migrated the tables.
        sqlalchemy.exc.SQLAlchemyError: The database refuses.
    """
    inspector = sa.inspect(engine)
    existed = inspector.has_table(OFFSETS_TABLE)
    if not all(inspector.has_table(name) for name in TABLES):
        create_tables(engine)
    # Tables without a version are those of the first one.
    current = _read_version(engine) or _insert_version(engine, 1 if existed else VERSION)
    if current > VERSION:
        raise StateError(
            "the offset database was migrated by a newer version of this package",
            where=f"table {VERSIONS_TABLE}",
            why=f"its tables are version {current}; this package supports up to version {VERSION}",
            remedy="install the newer version everywhere, or configure another database (docs/install.md)",
        )
    for version in range(current + 1, VERSION + 1):
        MIGRATIONS[version](engine)
        _update_version(engine, version)


def create_tables(engine: Engine, tables: Sequence[sa.Table] = (offsets, history, versions)) -> None:
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


def _insert_version(engine: Engine, version: int) -> int:
    try:
        with engine.begin() as conn:
            conn.execute(versions.insert().values(name=OFFSETS_TABLE, version=version))
    except IntegrityError:  # another process was faster
        return _read_version(engine) or version
    return version


def _update_version(engine: Engine, version: int) -> None:
    previous_version = (versions.c.name == OFFSETS_TABLE) & (versions.c.version == version - 1)
    with engine.begin() as conn:
        conn.execute(versions.update().where(previous_version).values(version=version))
