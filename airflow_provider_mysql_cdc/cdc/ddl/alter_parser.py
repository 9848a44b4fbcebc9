"""Parse ALTER TABLE.

Source: MySQL 9.7 manual, "ALTER TABLE Statement" and "ALTER TABLE Partition Operations".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from airflow_provider_mysql_cdc.cdc.ddl.columns import parse_column, parse_default
from airflow_provider_mysql_cdc.cdc.ddl.keys import inline_keys, parse_key, parse_table_option, starts_key
from airflow_provider_mysql_cdc.cdc.ddl.lexer import Cursor, NameParts
from airflow_provider_mysql_cdc.cdc.ddl.statements import (
    AddColumn,
    AddKey,
    AlterAction,
    AlterTable,
    ChangeColumn,
    ColumnSpec,
    ConvertTo,
    DropColumn,
    DropKey,
    RenameColumn,
    RenameKey,
    RenameTo,
    SetDefault,
    SetOptions,
    SetVisible,
    TableOptions,
)

# fmt: off
_PARTITION_VERBS = frozenset((
    "DISCARD", "IMPORT", "TRUNCATE", "COALESCE", "REORGANIZE", "EXCHANGE", "ANALYZE", "CHECK",
    "OPTIMIZE", "REBUILD", "REPAIR", "REMOVE", "PARTITION", "SECONDARY_LOAD", "SECONDARY_UNLOAD",
    "UPGRADE",
))
# fmt: on


def parse_alter_table(cur: Cursor) -> AlterTable:
    """Parse what follows ALTER TABLE.

    Args:
        cur: Cursor after the word TABLE.

    Raises:
        DdlParseError: An action is malformed or unknown.
    """
    cur.accept("IF", "EXISTS")
    name = cur.table_name()
    if cur.accept_one_of("WAIT"):
        cur.number()
    else:
        cur.accept("NOWAIT")
    actions: list[AlterAction] = []
    exchanged_tables: list[NameParts] = []
    while not cur.at_end():
        if _skip_partition_clause(cur, exchanged_tables):
            break
        actions.extend(_parse_action(cur))
        if not cur.accept(",") and not cur.at_end() and not _needs_no_comma(cur):
            cur.fail("expected a comma or the end")
    return AlterTable(name, tuple(actions), exchanged_tables=tuple(exchanged_tables))


def _needs_no_comma(cur: Cursor) -> bool:
    """Return whether a clause that needs no comma before it is next: partitioning, and table options in a row."""
    return cur.token.upper in _PARTITION_VERBS or parse_table_option(cur.copy(), TableOptions())


def _skip_partition_clause(cur: Cursor, exchanged_tables: list[NameParts]) -> bool:
    """Step over a clause about partitions or tablespaces, which ends the statement; none changes a structure."""
    verb = cur.token.upper
    if verb in ("ADD", "DROP"):
        if cur.peek().upper != "PARTITION":
            return False
    elif verb not in _PARTITION_VERBS or (verb == "CHECK" and cur.peek().upper != "PARTITION"):
        return False
    while not cur.at_end():
        if cur.accept("WITH", "TABLE"):
            exchanged_tables.append(cur.table_name())
        elif cur.matches("("):
            cur.skip_parentheses()
        else:
            cur.next()
    return True


def _parse_action(cur: Cursor) -> Iterable[AlterAction]:
    handler = _ACTIONS.get(cur.token.upper)
    if handler is not None:
        cur.next()
        return handler(cur)
    options = TableOptions()
    if not parse_table_option(cur, options):
        cur.fail("an unknown action")
    return (SetOptions(options),)


def _add(cur: Cursor) -> Iterable[AlterAction]:
    if starts_key(cur):
        key = parse_key(cur)
        return () if key is None else (AddKey(key),)
    cur.accept("COLUMN")
    cur.accept("IF", "NOT", "EXISTS")
    if cur.accept("("):
        actions: list[AlterAction] = []
        while True:
            actions.extend(_parse_element(cur))
            if not cur.accept(","):
                break
        cur.expect(")")
        return actions
    spec = parse_column(cur, cur.column_name())
    return (AddColumn(spec, _column_position(cur)), *_inline_key_actions(spec))


def _parse_element(cur: Cursor) -> Iterable[AlterAction]:
    if starts_key(cur):
        key = parse_key(cur)
        return () if key is None else (AddKey(key),)
    spec = parse_column(cur, cur.column_name())
    return (AddColumn(spec), *_inline_key_actions(spec))


def _inline_key_actions(spec: ColumnSpec) -> list[AddKey]:
    return [AddKey(key) for key in inline_keys(spec)]


def _column_position(cur: Cursor) -> str | None:
    if cur.accept("FIRST"):
        return ""
    return cur.column_name() if cur.accept("AFTER") else None


def _change(cur: Cursor) -> Iterable[AlterAction]:
    cur.accept("COLUMN")
    cur.accept("IF", "EXISTS")
    old = cur.column_name()
    spec = parse_column(cur, cur.column_name())
    return (ChangeColumn(old, spec, _column_position(cur)), *_inline_key_actions(spec))


def _modify(cur: Cursor) -> Iterable[AlterAction]:
    cur.accept("COLUMN")
    cur.accept("IF", "EXISTS")
    name = cur.column_name()
    spec = parse_column(cur, name)
    return (ChangeColumn(name, spec, _column_position(cur)), *_inline_key_actions(spec))


def _drop(cur: Cursor) -> Iterable[AlterAction]:
    if cur.accept("PRIMARY", "KEY"):
        return (DropKey("PRIMARY"),)
    if cur.accept("FOREIGN", "KEY") or cur.accept("CHECK"):
        cur.accept("IF", "EXISTS")
        cur.name()
        return ()
    if cur.accept("CONSTRAINT"):
        return (DropKey(cur.name(), constraint=True),)
    if cur.accept_one_of("INDEX", "KEY"):
        cur.accept("IF", "EXISTS")
        return (DropKey(cur.name()),)
    cur.accept("COLUMN")
    cur.accept("IF", "EXISTS")
    name = cur.column_name()
    cur.accept_one_of("RESTRICT", "CASCADE")
    return (DropColumn(name),)


def _alter(cur: Cursor) -> Iterable[AlterAction]:
    if cur.accept_one_of("INDEX", "CHECK", "CONSTRAINT"):
        cur.name()
        cur.accept("NOT")
        cur.next()
        return ()
    cur.accept("COLUMN")
    name = cur.column_name()
    if cur.accept("SET", "DEFAULT"):
        return (SetDefault(name, parse_default(cur)),)
    if cur.accept("DROP", "DEFAULT"):
        return (SetDefault(name, None),)
    cur.expect("SET")
    if cur.accept("VISIBLE"):
        return (SetVisible(name, False),)
    cur.expect("INVISIBLE")
    return (SetVisible(name, True),)


def _rename(cur: Cursor) -> Iterable[AlterAction]:
    if cur.accept("COLUMN"):
        old = cur.column_name()
        cur.expect("TO")
        return (RenameColumn(old, cur.column_name()),)
    if cur.matches_one_of("INDEX", "KEY"):
        cur.next()
        old = cur.name()
        cur.expect("TO")
        return (RenameKey(old, cur.name()),)
    cur.accept_one_of("TO", "AS", "=")
    return (RenameTo(cur.table_name()),)


def _convert(cur: Cursor) -> Iterable[AlterAction]:
    cur.expect("TO")
    if not cur.accept("CHARSET"):
        if not cur.accept_one_of("CHARACTER", "CHAR"):
            cur.fail("expected CHARACTER SET")
        cur.expect("SET")
    cur.accept("=")
    charset = "" if cur.accept("DEFAULT") else cur.word_or_string()
    collation = None
    if cur.accept("COLLATE"):
        cur.accept("=")
        collation = cur.word_or_string()
    return (ConvertTo(charset, collation),)


def _order_by(cur: Cursor) -> Iterable[AlterAction]:
    cur.expect("BY")
    while True:
        cur.column_name()
        cur.accept_one_of("ASC", "DESC")
        if not (cur.matches(",") and _order_continues(cur)):
            return ()
        cur.next()


def _order_continues(cur: Cursor) -> bool:
    """Return whether a column of ORDER BY follows the comma, not another action."""
    upper = cur.peek().upper
    return upper not in _ACTIONS and cur.peek(2).upper in ("", ",", "ASC", "DESC", ".")


def _no_argument(cur: Cursor) -> Iterable[AlterAction]:
    return ()


def _skip_value(cur: Cursor) -> Iterable[AlterAction]:
    cur.accept("=")
    cur.next()
    return ()


def _expect_keys(cur: Cursor) -> Iterable[AlterAction]:
    cur.expect("KEYS")
    return ()


def _expect_validation(cur: Cursor) -> Iterable[AlterAction]:
    cur.expect("VALIDATION")
    return ()


_ACTIONS: dict[str, Callable[[Cursor], Iterable[AlterAction]]] = {
    "ADD": _add,
    "CHANGE": _change,
    "MODIFY": _modify,
    "DROP": _drop,
    "ALTER": _alter,
    "RENAME": _rename,
    "CONVERT": _convert,
    "ORDER": _order_by,
    "FORCE": _no_argument,
    "ALGORITHM": _skip_value,
    "LOCK": _skip_value,
    "DISABLE": _expect_keys,
    "ENABLE": _expect_keys,
    "WITH": _expect_validation,
    "WITHOUT": _expect_validation,
}
