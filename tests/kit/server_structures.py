"""What information_schema and SHOW CREATE TABLE say of a server's tables, and whether our structures are the same."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.connect_schema import parse_datetime_us, parse_time_us
from airflow_provider_mysql_cdc.cdc.ddl.collations import COLLATIONS_BY_NAME
from airflow_provider_mysql_cdc.cdc.ddl.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, REAL_AS_FLOAT
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, DefaultCharset, SchemaState
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import basic_plane
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import create_statement, utf8mb4_collation
from kit.create_statement import parse_create

MODES = {"ANSI_QUOTES": ANSI_QUOTES, "NO_BACKSLASH_ESCAPES": NO_BACKSLASH_ESCAPES, "REAL_AS_FLOAT": REAL_AS_FLOAT}
INTEGERS = {"TINYINT": (4, 3), "SMALLINT": (6, 5), "MEDIUMINT": (9, 8), "INT": (11, 10), "BIGINT": (20, 20)}
NUMBERS = {*INTEGERS, "DECIMAL", "FLOAT", "DOUBLE", "YEAR"}
ONE = {"BIT", "CHAR", "BINARY"}


def fetch(cursor: Any, sql: str, *args: Any) -> list[tuple[Any, ...]]:
    cursor.execute(sql, args)
    return list(cursor.fetchall())


def context(cursor: Any, db: str) -> DdlContext:
    (mode, server, explicit) = fetch(
        cursor, "SELECT @@sql_mode, @@collation_server, @@explicit_defaults_for_timestamp"
    )[0]
    found = fetch(cursor, "SHOW VARIABLES LIKE 'default_collation_for_utf8mb4'")
    utf8mb4 = COLLATIONS_BY_NAME[found[0][1]].id if found else utf8mb4_collation(cursor.connection)
    bits = sum(MODES.get(m, 0) for m in mode.split(","))
    return DdlContext(
        db,
        bits,
        server_collation=COLLATIONS_BY_NAME[server].id,
        default_collation_for_utf8mb4=utf8mb4,
        explicit_defaults_for_timestamp=bool(explicit),
    )


def column_type(c: Column) -> str:
    """Return COLUMN_TYPE as information_schema of MySQL 9.7 prints it."""
    base = {"GEOMETRYCOLLECTION": "geomcollection"}.get(c.type_name, c.type_name.lower())
    sign = (" unsigned" if c.unsigned else "") + (" zerofill" if c.zerofill else "")
    if c.type_name in INTEGERS:
        width = c.length if c.length is not None else INTEGERS[c.type_name][1 if c.unsigned else 0]
        shown = c.zerofill or (c.type_name == "TINYINT" and c.length == 1 and not c.unsigned)
        return base + (f"({width})" if shown else "") + sign
    if c.type_name == "DECIMAL":
        return f"decimal({c.length or 10},{c.scale or 0}){sign}"
    if c.type_name in ("FLOAT", "DOUBLE"):
        return base + (f"({c.length},{c.scale})" if c.scale is not None else "") + sign
    if c.enum_values and c.charset == "binary":
        return f"{base}({','.join(map(shown_bytes, c.enum_values))})"
    if c.enum_values:
        return f"{base}({','.join(quoted(v) for v in c.enum_values)})"
    if c.type_name in ONE:
        return f"{base}({1 if c.length is None else c.length})"
    if c.type_name in ("VARCHAR", "VARBINARY", "VECTOR"):
        return f"{base}({2048 if c.length is None else c.length})"
    if c.type_name in ("TIME", "DATETIME", "TIMESTAMP") and c.length:
        return f"{base}({c.length})"
    return base


def shown_today(kind: str) -> str:
    """Return COLUMN_TYPE of a column as MySQL 8.0.19 and later show it, without the width of most integers."""
    width = re.fullmatch(r"((?:tiny|small|medium|big)?int|year)\(\d+\)((?: unsigned)?)", kind)
    return kind if width is None or kind == "tinyint(1)" else width[1] + width[2]


def charset_today(name: str | None) -> str | None:
    """Return a character set or collation with the name that it has since MySQL 8.0.30."""
    return name and re.sub(r"^utf8(?=_|$)", "utf8mb3", name)


def shown_bytes(member: str) -> str:
    raw = member.encode("latin-1")
    try:
        return quoted(raw.decode())
    except UnicodeDecodeError:
        return f"x'{raw.hex()}'"


def quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0") + "'"


def same_default(c: Column, theirs: str | None, extra: str) -> bool:
    if "DEFAULT_GENERATED" in extra and (theirs is not None or c.default_is_expression):  # 8.0.15 shows some as NULL
        now = c.default is not None and c.default.startswith("CURRENT_TIMESTAMP")
        return c.default_is_expression and (theirs is None or not now or c.default == theirs)
    if c.default_is_expression and theirs is not None:
        return theirs == c.default and theirs.startswith("CURRENT_TIMESTAMP")  # MySQL 5.7 does not mark them
    ours = c.default and basic_plane(c.default)
    if c.charset == "binary":
        return (ours is None) == (theirs is None)
    if ours is None or theirs is None or c.default_is_expression:
        return ours is None and theirs is None
    if c.type_name == "YEAR":
        return int(theirs) in possible_years(ours)
    if c.type_name == "BIT":
        number = int(ours[2:-1], 2) if ours.startswith("b'") else int(ours)
        return theirs == f"b'{number:b}'"
    if c.type_name in NUMBERS:
        return Decimal(leading_number(ours)) == Decimal(theirs)
    if c.type_name in ("BINARY", "VARBINARY"):
        value, shown = (bytes.fromhex(t[2:]) if t.startswith("0x") else t.encode() for t in (ours, theirs))
        # The server shows a value up to its first zero byte, and 5.7 up to its first byte that is no text.
        return value.split(b"\0")[0] == shown.rstrip(b"\0") or b"?" in value or (not shown and max(value) > 127)
    if c.type_name in ("DATE", "DATETIME", "TIMESTAMP"):
        return parse_datetime_us(ours) == parse_datetime_us(theirs)
    if c.type_name == "TIME":
        return parse_time_us(ours) == parse_time_us(theirs)
    ours = ours.rstrip(" ") if c.type_name == "CHAR" else ours
    return theirs in (ours, ours + ".000") or (ours == "0" and theirs.startswith("0000"))


def leading_number(written: str) -> str:
    """Return the number that a text begins with; MySQL stores it where sql_mode is not strict, and 0 for none."""
    number = re.match(r"[ \t]*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)", written)
    return number[1] if number else "0"


def possible_years(written: str) -> tuple[int, ...]:
    """Return the years that a default may mean: 0 is the year 0, and ``'0'`` is 2000."""
    year = int(written)
    if year > 99:
        return (year,)
    return (0, 2000) if year == 0 else (year + (2000 if year < 70 else 1900),)


def is_5_7(cursor: Any) -> bool:
    return str(fetch(cursor, "SELECT @@version")[0][0]).startswith("5.7.")


def check_columns(cursor: Any, table: Table, where: str) -> None:
    srs_id = "NULL" if is_5_7(cursor) else "SRS_ID"
    rows = fetch(
        cursor,
        "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME, COLLATION_NAME, COLUMN_DEFAULT, EXTRA, "
        f"COLUMN_COMMENT, {srs_id} FROM information_schema.COLUMNS WHERE TABLE_SCHEMA=%s AND TABLE_NAME=%s "
        "ORDER BY ORDINAL_POSITION",
        table.id.db,
        table.id.table,
    )
    assert [c.name for c in table.columns] == [r[0] for r in rows], (
        f"{where}: {[c.name for c in table.columns]} {[r[0] for r in rows]}"
    )
    assert [c.position for c in table.columns] == list(range(1, len(rows) + 1)), where
    for c, (name, kind, nullable, charset, collation, default, extra, comment, srid) in zip(
        table.columns, rows, strict=True
    ):
        place = f"{where} column {name}"
        # Shown as NULL by the server for a binary ENUM, and as utf8mb4 for JSON in some versions.
        sets = (c.charset, c.collation) if c.charset == "binary" or c.type_name == "JSON" else (charset, collation)
        # The server shows members in utf8mb3.
        ours = (basic_plane(column_type(c)), c.nullable, c.charset, c.collation, c.comment or "", c.srid)
        shown = re.sub(r"(?<=[(,])x'0(?!0)", "x'00", str(kind))  # the server leaves out a zero
        # MySQL 5.7 cuts members of bytes at the first one that is no text.
        is_cut = srs_id == "NULL" and c.charset == "binary" and bool(c.enum_values)
        kind_today = ours[0] if is_cut else shown_today(shown)
        theirs = (kind_today, nullable == "YES", *map(charset_today, sets), comment, srid)
        assert ours == theirs, f"{place}: {ours} {theirs}"
        assert c.auto_increment == ("auto_increment" in extra), place
        assert c.generated == (" GENERATED" in extra), place
        assert c.invisible == ("INVISIBLE" in extra), place
        assert c.on_update == ("on update" in extra), place
        assert same_default(c, default, extra), f"{place}: {c.default!r} {default!r} {extra}"


def check_keys(cursor: Any, state: SchemaState, table: Table, where: str) -> None:
    rows = fetch(
        cursor,
        "SELECT INDEX_NAME, NON_UNIQUE, COLUMN_NAME, SUB_PART, INDEX_TYPE FROM information_schema.STATISTICS "
        "WHERE TABLE_SCHEMA=%s AND TABLE_NAME=%s ORDER BY INDEX_NAME, SEQ_IN_INDEX",
        table.id.db,
        table.id.table,
    )
    unique: dict[str, list[str | None]] = {}
    plain: dict[str, list[str | None]] = {}
    parts: dict[str, list[int]] = {}
    prefixed = set()
    for name, not_unique, column, prefix, _ in rows:
        (plain if not_unique else unique).setdefault(name, []).append(column)
        parts.setdefault(name, []).append(prefix or 0)
        if prefix is not None or column is None:
            prefixed.add(name)
    primary = tuple(unique.pop("PRIMARY", ()))
    assert table.primary_key == primary, f"{where}: {table.primary_key} {primary}"
    assert {i.name: [c for c in i.columns] for i in table.unique_keys} == {
        n: [c for c in columns if c is not None] for n, columns in unique.items()
    }, where
    assert {i.name for i in table.unique_keys if i.prefixed} == {n for n in unique if n in prefixed}, where
    whole_or_prefix = {n: parts[n] for n, columns in unique.items() if None not in columns and any(parts[n])}
    assert {i.name: [*i.prefixes] for i in table.unique_keys if i.prefixes} == whole_or_prefix, where
    non_unique = {k.name: list(k.columns) for k in state.non_unique_indexes.get(table.id, ())}
    assert non_unique == plain, f"{where}: {non_unique} {plain}"


def check_table(cursor: Any, state: SchemaState, table: Table, where: str) -> None:
    check_columns(cursor, table, where)
    check_keys(cursor, state, table, where)
    collation, comment = fetch(
        cursor,
        "SELECT TABLE_COLLATION, TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA=%s AND TABLE_NAME=%s",
        table.id.db,
        table.id.table,
    )[0]
    assert (table.collation, table.charset) == (
        charset_today(collation),
        COLLATIONS_BY_NAME[str(charset_today(collation))].charset,
    ), where
    assert (table.comment or "") == comment, f"{where}: {table.comment!r} {comment!r}"
    text = create_statement(cursor.connection, table.id, print)
    session = context(cursor, table.id.db)
    # The server escapes with backslashes here even under NO_BACKSLASH_ESCAPES, and implies no timestamp defaults.
    session = replace(session, sql_mode=session.sql_mode & ~NO_BACKSLASH_ESCAPES, explicit_defaults_for_timestamp=True)
    shown = parse_create(text, session, DefaultCharset("latin7", "latin7_bin"))
    check_columns(cursor, shown, f"{where} from SHOW CREATE TABLE")
    # MySQL 5.7 and 8.0 cannot be asked for members beyond U+FFFF.
    visible = basic_plane if str(fetch(cursor, "SELECT @@version")[0][0])[:3] in ("5.7", "8.0") else str
    ours, theirs = ([[*map(visible, c.enum_values)] for c in t.columns] for t in (table, shown))
    assert ours == theirs, where
    assert shown.primary_key == table.primary_key, where
    assert {replace(i) for i in shown.unique_keys} == set(table.unique_keys), where
    assert (shown.charset, shown.collation, shown.comment) == (table.charset, table.collation, table.comment), where


def check_all(cursor: Any, state: SchemaState, db: str, where: str) -> None:
    names = fetch(cursor, "SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA=%s", db)
    # A view may have the name of a table whose CREATE TABLE IF NOT EXISTS did nothing (``ddl.classify``).
    views = {name for name, kind in names if kind == "VIEW"}
    known_tables, tables = {i.table for i in state.tables_of(db)}, {name for name, _ in names} - views
    assert known_tables - views == tables, f"{where}: {known_tables} {tables}"
    for table_id in (i for i in state.tables_of(db) if i.table not in views):
        check_table(cursor, state, state.tables[table_id], f"{table_id} after {where}")


def known(cursor: Any, db: str) -> SchemaState:
    charset, collation = fetch(
        cursor,
        "SELECT DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA "
        "WHERE SCHEMA_NAME=%s",
        db,
    )[0]
    return SchemaState().with_database(db, DefaultCharset(charset, collation))
