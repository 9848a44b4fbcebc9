"""The tables of the SQL offset store, and their version: tables of another version are neither read nor written."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.schema import CreateTable

from airflow_provider_mysql_cdc.cdc.model.stored_record import STORED_VERSION, stored_version_error

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
    create_tables(engine, (offsets, history))


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
