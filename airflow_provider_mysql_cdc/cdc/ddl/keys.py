"""Parse key definitions and table options, and tell which columns an index covers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.ddl.columns import skip_references
from airflow_provider_mysql_cdc.cdc.ddl.lexer import Cursor
from airflow_provider_mysql_cdc.cdc.ddl.statements import ColumnSpec, DdlKeyKind, KeyPart, KeySpec, TableOptions
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import basic_plane
from airflow_provider_mysql_cdc.cdc.model.mysql_types import BLOB_BY_SIZE, TEXT_BY_SIZE, Metadata
from airflow_provider_mysql_cdc.cdc.model.table import Column, UniqueIndex, folded_name

KEY_FIRST_WORDS = frozenset(
    ("CONSTRAINT", "PRIMARY", "UNIQUE", "FOREIGN", "CHECK", "INDEX", "KEY", "FULLTEXT", "SPATIAL", "VECTOR")
)
"""First words of a table element that is not a column."""
_INDEX_OPTIONS = frozenset(
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
    return cur.token.upper in KEY_FIRST_WORDS and not (
        cur.matches("VECTOR") and cur.peek().upper not in ("INDEX", "KEY")
    )


def parse_key(cur: Cursor) -> KeySpec | None:
    """Parse a key definition or a check constraint.

    Args:
        cur: Cursor at one of ``KEY_FIRST_WORDS``.

    Returns:
        The key, or None for a check constraint.

    Raises:
        DdlParseError: It is none of these.
    """
    symbol = None
    if cur.accept("CONSTRAINT") and not cur.matches_one_of("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        symbol = cur.name()
    if cur.accept("CHECK"):
        cur.skip_parentheses()
        cur.accept("NOT")
        cur.accept("ENFORCED")
        return None
    if cur.accept("PRIMARY", "KEY"):
        return _parse_index(cur, DdlKeyKind.PRIMARY, "PRIMARY")
    if cur.accept("UNIQUE"):
        cur.accept_one_of("INDEX", "KEY")
        return _parse_index(cur, DdlKeyKind.UNIQUE, symbol)
    if cur.accept("FOREIGN", "KEY"):
        return _parse_foreign_key(cur, symbol)
    cur.accept_one_of("FULLTEXT", "SPATIAL", "VECTOR")
    cur.accept_one_of("INDEX", "KEY")
    return _parse_index(cur, DdlKeyKind.PLAIN, None)


def _parse_index(cur: Cursor, kind: DdlKeyKind, symbol: str | None) -> KeySpec:
    name = symbol
    if not cur.matches("(") and not cur.matches("USING"):
        written = cur.name()
        name = name if kind is DdlKeyKind.PRIMARY else written
    if cur.accept_one_of("USING", "TYPE"):
        cur.next()
    parts = parse_key_parts(cur)
    skip_key_options(cur)
    return KeySpec(kind, name, parts)


def _parse_foreign_key(cur: Cursor, symbol: str | None) -> KeySpec:
    name = symbol
    if not cur.matches("("):
        written = cur.name()
        name = name or written
    parts = parse_key_parts(cur)
    cur.expect("REFERENCES")
    skip_references(cur)
    return KeySpec(DdlKeyKind.FOREIGN, name, parts)


def inline_keys(spec: ColumnSpec) -> list[KeySpec]:
    """Return the keys that a column definition itself asks for: PRIMARY KEY, UNIQUE and (since 9.0) REFERENCES."""
    part = (KeyPart(spec.name),)
    keys = [KeySpec(DdlKeyKind.PRIMARY, "PRIMARY", part)] if spec.primary else []
    if spec.unique:
        keys.append(KeySpec(DdlKeyKind.UNIQUE, None, part))
    if spec.references:
        keys.append(KeySpec(DdlKeyKind.FOREIGN, None, part))
    return keys


def parse_key_parts(cur: Cursor) -> tuple[KeyPart, ...]:
    """Parse the parts of a key in their parentheses.

    Raises:
        DdlParseError: The list is malformed.
    """
    cur.expect("(")
    parts = []
    while True:
        if cur.matches("("):
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


def skip_key_options(cur: Cursor) -> None:
    """Step over the options that follow a key's parts."""
    while True:
        if cur.accept_one_of("VISIBLE", "INVISIBLE"):
            continue
        if cur.accept("WITH", "PARSER"):
            cur.next()
        elif cur.token.upper in _INDEX_OPTIONS:
            cur.next()
            cur.accept("=")
            cur.next()
        else:
            return


def _charset(cur: Cursor, options: TableOptions) -> None:
    cur.accept("=")
    options.charset = "" if cur.accept("DEFAULT") else cur.word_or_string()
    options.charset_is_last = True


def _character(cur: Cursor, options: TableOptions) -> None:
    cur.expect("SET")
    _charset(cur, options)


def _collate(cur: Cursor, options: TableOptions) -> None:
    cur.accept("=")
    options.collation = "" if cur.accept("DEFAULT") else cur.word_or_string()
    options.charset_is_last = False


def _comment(cur: Cursor, options: TableOptions) -> None:
    cur.accept("=")
    options.comment = basic_plane(cur.string())


def _engine(cur: Cursor, options: TableOptions) -> None:
    cur.accept("=")
    options.engine = cur.word_or_string()


def _skip_value(cur: Cursor, options: TableOptions) -> None:
    cur.accept("=")
    if cur.matches("("):
        cur.skip_parentheses()
    else:
        cur.next()


def _skip_directory(cur: Cursor, options: TableOptions) -> None:
    cur.expect("DIRECTORY")
    _skip_value(cur, options)


def _skip_tablespace(cur: Cursor, options: TableOptions) -> None:
    _skip_value(cur, options)
    if cur.accept("STORAGE"):
        cur.next()


def _expect_transaction(cur: Cursor, options: TableOptions) -> None:
    cur.expect("TRANSACTION")


_OptionParser = Callable[[Cursor, TableOptions], None]
# fmt: off
_PLAIN_OPTIONS = (
    "AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "TABLE_CHECKSUM", "COMPRESSION",
    "CONNECTION", "DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE",
    "SECONDARY_ENGINE", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS",
    "PASSWORD", "ROW_FORMAT", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "UNION",
    "STORAGE", "NODEGROUP",
)
# fmt: on
_OPTION_PARSERS: dict[str, _OptionParser] = {
    **dict.fromkeys(_PLAIN_OPTIONS, _skip_value),
    "CHARSET": _charset,
    "CHARACTER": _character,
    "CHAR": _character,
    "COLLATE": _collate,
    "COMMENT": _comment,
    "ENGINE": _engine,
    "TYPE": _engine,
    "DATA": _skip_directory,
    "INDEX": _skip_directory,
    "TABLESPACE": _skip_tablespace,
    "START": _expect_transaction,
}


def parse_table_option(cur: Cursor, options: TableOptions) -> bool:
    """Parse one table option into ``options``; return False, without a step, when none is next.

    Raises:
        DdlParseError: The option's value is malformed.
    """
    if cur.matches("DEFAULT") and cur.peek().upper in ("CHARSET", "CHARACTER", "CHAR", "COLLATE"):
        cur.next()
    handler = _OPTION_PARSERS.get(cur.token.upper)
    if handler is None or (cur.token.upper in ("DATA", "INDEX") and cur.peek().upper != "DIRECTORY"):
        return False
    cur.next()
    handler(cur, options)
    return True


_TYPES_WITHOUT_WHOLE_INDEX = frozenset((*TEXT_BY_SIZE, *BLOB_BY_SIZE))


def unique_index(name: str, parts: Sequence[KeyPart], columns: Sequence[str | None]) -> UniqueIndex:
    """Return a unique index.

    Args:
        name: Its name.
        parts: Its parts as the statement has them.
        columns: Their columns; None for an expression.
    """
    names = tuple(column for column in columns if column is not None)
    if len(names) < len(parts):
        return UniqueIndex(name, names, prefixed=True)
    return _with_prefixes(UniqueIndex(name, names), [part.prefix or 0 for part in parts])


def renamed_index(index: UniqueIndex, names: Sequence[str | None]) -> UniqueIndex:
    """Return a unique index with other names of its columns.

    Args:
        index: The index.
        names: A name for each of its columns; None for those that are dropped.
    """
    renamed = replace(index, columns=tuple(name for name in names if name is not None))
    if not index.prefixes:
        return renamed
    return _with_prefixes(renamed, [p for p, name in zip(index.prefixes, names, strict=True) if name is not None])


def with_whole_columns(index: UniqueIndex, column: Callable[[str], Column]) -> UniqueIndex:
    """Return a unique index that covers a column whole where its prefix reaches to the end of its present type.

    Such a column stays whole when it grows later (MySQL 9.7.4).

    Args:
        index: The index.
        column: Returns a column by name.
    """
    if not index.prefixes:
        return index
    pairs = zip(index.columns, index.prefixes, strict=True)
    return _with_prefixes(index, [0 if _is_whole(column(name), prefix) else prefix for name, prefix in pairs])


def _with_prefixes(index: UniqueIndex, prefixes: Sequence[int]) -> UniqueIndex:
    return replace(index, prefixed=any(prefixes), prefixes=tuple(prefixes) if any(prefixes) else ())


def _is_whole(column: Column, prefix: int) -> bool:
    """Return whether an index that covers so many characters or bytes of a column covers it whole (0 says so)."""
    if not prefix or column.type_name in _TYPES_WITHOUT_WHOLE_INDEX:
        return not prefix
    length = column.mysql_type.default_length if column.length is None else column.length
    has_length = any(form.metadata is Metadata.LENGTH for form in column.mysql_type.formats)
    return not has_length or prefix >= (length or 0)


def covers(columns: Sequence[str | None], required: Sequence[str | None]) -> bool:
    """Return whether an index begins with some columns.

    Args:
        columns: Its columns; None for an expression or a prefix.
        required: The columns.
    """
    first = columns[: len(required)]
    return [n and folded_name(n) for n in first] == [n and folded_name(n) for n in required]


def unprefixed_columns(key: KeySpec) -> tuple[str | None, ...]:
    """Return the columns of a key; None for an expression or a prefix.

    Args:
        key: The key.
    """
    return tuple(p.column if p.prefix is None else None for p in key.parts)
