"""Parse key definitions and table options, shared by CREATE TABLE, ALTER TABLE and CREATE INDEX."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.ddl.columns import references
from airflow_provider_mysql_cdc.cdc.ddl.cursor import Cursor
from airflow_provider_mysql_cdc.cdc.ddl.statements import ColumnSpec, KeyKind, KeyPart, KeySpec, TableOptions

KEY_WORDS = frozenset(
    ("CONSTRAINT", "PRIMARY", "UNIQUE", "FOREIGN", "CHECK", "INDEX", "KEY", "FULLTEXT", "SPATIAL", "VECTOR")
)
"""First words of a table element that is not a column."""
_OPTION_WORDS = frozenset(
    (
        "USING",
        "TYPE",
        "KEY_BLOCK_SIZE",
        "COMMENT",
        "ENGINE_ATTRIBUTE",
        "SECONDARY_ENGINE_ATTRIBUTE",
        "ALGORITHM",
        "LOCK",
    )
)


def starts_key(cur: Cursor) -> bool:
    """Return whether a key or a check constraint is next, not a column."""
    return cur.token.upper in KEY_WORDS and not (cur.sees("VECTOR") and cur.ahead().upper not in ("INDEX", "KEY"))


def key_spec(cur: Cursor) -> KeySpec | None:
    """Parse a key definition or a check constraint.

    Args:
        cur: Cursor at one of ``KEY_WORDS``.

    Returns:
        The key, or None for a check constraint.

    Raises:
        DdlParseError: It is none of these.
    """
    symbol = None
    if cur.accept("CONSTRAINT") and not cur.sees_one_of("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        symbol = cur.name()
    if cur.accept("CHECK"):
        cur.skip_parentheses()
        cur.accept("NOT")
        cur.accept("ENFORCED")
        return None
    if cur.accept("PRIMARY", "KEY"):
        return _rest(cur, KeyKind.PRIMARY, "PRIMARY")
    if cur.accept("UNIQUE"):
        cur.accept_one_of("INDEX", "KEY")
        return _rest(cur, KeyKind.UNIQUE, symbol)
    if cur.accept("FOREIGN", "KEY"):
        return _foreign(cur, symbol)
    cur.accept_one_of("FULLTEXT", "SPATIAL", "VECTOR")
    cur.accept_one_of("INDEX", "KEY")
    return _rest(cur, KeyKind.PLAIN, None)


def _rest(cur: Cursor, kind: KeyKind, symbol: str | None) -> KeySpec:
    name = symbol
    if not cur.sees("(") and not cur.sees("USING"):
        written = cur.name()
        name = name if kind is KeyKind.PRIMARY else written
    if cur.accept_one_of("USING", "TYPE"):
        cur.next()
    parts = key_parts(cur)
    key_options(cur)
    return KeySpec(kind, name, parts)


def _foreign(cur: Cursor, symbol: str | None) -> KeySpec:
    name = symbol
    if not cur.sees("("):
        written = cur.name()
        name = name or written
    parts = key_parts(cur)
    cur.expect("REFERENCES")
    references(cur)
    return KeySpec(KeyKind.FOREIGN, name, parts)


def inline_keys(spec: ColumnSpec) -> list[KeySpec]:
    """Return the keys that a column definition itself asks for: PRIMARY KEY, UNIQUE and (since 9.0) REFERENCES."""
    part = (KeyPart(spec.name),)
    keys = [KeySpec(KeyKind.PRIMARY, "PRIMARY", part)] if spec.primary else []
    if spec.unique:
        keys.append(KeySpec(KeyKind.UNIQUE, None, part))
    if spec.references:
        keys.append(KeySpec(KeyKind.FOREIGN, None, part))
    return keys


def key_parts(cur: Cursor) -> tuple[KeyPart, ...]:
    """Parse the parts of a key in their parentheses.

    Raises:
        DdlParseError: The list is malformed.
    """
    cur.expect("(")
    parts = []
    while True:
        if cur.sees("("):
            cur.skip_parentheses()
            parts.append(KeyPart(None))
        else:
            name, prefix = cur.column_name(), None
            if cur.accept("("):
                prefix = cur.number()
                cur.expect(")")
            parts.append(KeyPart(name, prefix))
        cur.accept_one_of("ASC", "DESC")
        if not cur.accept(","):
            break
    cur.expect(")")
    return tuple(parts)


def key_options(cur: Cursor) -> None:
    """Step over the options that follow a key's parts."""
    while True:
        if cur.accept_one_of("VISIBLE", "INVISIBLE"):
            continue
        if cur.accept("WITH", "PARSER"):
            cur.next()
        elif cur.token.upper in _OPTION_WORDS:
            cur.next()
            cur.accept("=")
            cur.next()
        else:
            return


def _charset(cur: Cursor, options: TableOptions) -> None:
    cur.accept("=")
    options.charset = "" if cur.accept("DEFAULT") else cur.word_or_string()


def _character(cur: Cursor, options: TableOptions) -> None:
    cur.expect("SET")
    _charset(cur, options)


def _collate(cur: Cursor, options: TableOptions) -> None:
    cur.accept("=")
    options.collation = "" if cur.accept("DEFAULT") else cur.word_or_string()


def _comment(cur: Cursor, options: TableOptions) -> None:
    cur.accept("=")
    options.comment = cur.string()


def _engine(cur: Cursor, options: TableOptions) -> None:
    cur.accept("=")
    options.engine = cur.word_or_string()


def _value(cur: Cursor, options: TableOptions) -> None:
    cur.accept("=")
    if cur.sees("("):
        cur.skip_parentheses()
    else:
        cur.next()


def _directory(cur: Cursor, options: TableOptions) -> None:
    cur.expect("DIRECTORY")
    _value(cur, options)


def _tablespace(cur: Cursor, options: TableOptions) -> None:
    _value(cur, options)
    if cur.accept("STORAGE"):
        cur.next()


def _start(cur: Cursor, options: TableOptions) -> None:
    cur.expect("TRANSACTION")


_Option = Callable[[Cursor, TableOptions], None]
# fmt: off
_PLAIN_OPTIONS = (
    "AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "TABLE_CHECKSUM", "COMPRESSION",
    "CONNECTION", "DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE",
    "SECONDARY_ENGINE", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS",
    "PASSWORD", "ROW_FORMAT", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "UNION",
    "STORAGE", "NODEGROUP",
)
# fmt: on
_OPTIONS: dict[str, _Option] = {
    **dict.fromkeys(_PLAIN_OPTIONS, _value),
    "CHARSET": _charset,
    "CHARACTER": _character,
    "CHAR": _character,
    "COLLATE": _collate,
    "COMMENT": _comment,
    "ENGINE": _engine,
    "TYPE": _engine,
    "DATA": _directory,
    "INDEX": _directory,
    "TABLESPACE": _tablespace,
    "START": _start,
}


def table_option(cur: Cursor, options: TableOptions) -> bool:
    """Parse one table option into ``options``; return False, without a step, when none is next.

    Raises:
        DdlParseError: The option's value is malformed.
    """
    if cur.sees("DEFAULT") and cur.ahead().upper in ("CHARSET", "CHARACTER", "CHAR", "COLLATE"):
        cur.next()
    handler = _OPTIONS.get(cur.token.upper)
    if handler is None or (cur.token.upper in ("DATA", "INDEX") and cur.ahead().upper != "DIRECTORY"):
        return False
    cur.next()
    handler(cur, options)
    return True
