"""Parse ALTER TABLE.

Source: MySQL 9.7 manual, "ALTER TABLE Statement" and "ALTER TABLE Partition Operations".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from airflow_provider_mysql_cdc.cdc.ddl.columns import column_spec, default_value
from airflow_provider_mysql_cdc.cdc.ddl.cursor import Cursor, NameParts
from airflow_provider_mysql_cdc.cdc.ddl.keys import inline_keys, key_spec, starts_key, table_option
from airflow_provider_mysql_cdc.cdc.ddl.statements import (
    Action,
    AddColumn,
    AddKey,
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


def alter_table(cur: Cursor) -> AlterTable:
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
    actions: list[Action] = []
    others: list[NameParts] = []
    while not cur.at_end():
        if _partition_clause(cur, others):
            break
        actions.extend(_action(cur))
        if not cur.accept(",") and not cur.at_end() and not _may_follow(cur):
            cur.fail("expected a comma or the end")
    return AlterTable(name, tuple(actions), others=tuple(others))


def _may_follow(cur: Cursor) -> bool:
    """Return whether a clause that needs no comma before it is next: partitioning, and table options in a row."""
    return cur.token.upper in _PARTITION_VERBS or table_option(cur.copy(), TableOptions())


def _partition_clause(cur: Cursor, others: list[NameParts]) -> bool:
    """Step over a clause about partitions or tablespaces, which ends the statement; none changes a structure."""
    verb = cur.token.upper
    if verb in ("ADD", "DROP"):
        if cur.ahead().upper != "PARTITION":
            return False
    elif verb not in _PARTITION_VERBS or (verb == "CHECK" and cur.ahead().upper != "PARTITION"):
        return False
    while not cur.at_end():
        if cur.accept("WITH", "TABLE"):
            others.append(cur.table_name())
        elif cur.sees("("):
            cur.skip_parentheses()
        else:
            cur.next()
    return True


def _action(cur: Cursor) -> Iterable[Action]:
    handler = _ACTIONS.get(cur.token.upper)
    if handler is not None:
        cur.next()
        return handler(cur)
    options = TableOptions()
    if not table_option(cur, options):
        cur.fail("an unknown action")
    return (SetOptions(options),)


def _add(cur: Cursor) -> Iterable[Action]:
    if starts_key(cur):
        key = key_spec(cur)
        return () if key is None else (AddKey(key),)
    cur.accept("COLUMN")
    cur.accept("IF", "NOT", "EXISTS")
    if cur.accept("("):
        actions: list[Action] = []
        while True:
            actions.extend(_element(cur))
            if not cur.accept(","):
                break
        cur.expect(")")
        return actions
    spec = column_spec(cur, cur.column_name())
    return (AddColumn(spec, _place(cur)), *_inline(spec))


def _element(cur: Cursor) -> Iterable[Action]:
    if starts_key(cur):
        key = key_spec(cur)
        return () if key is None else (AddKey(key),)
    spec = column_spec(cur, cur.column_name())
    return (AddColumn(spec), *_inline(spec))


def _inline(spec: ColumnSpec) -> list[AddKey]:
    return [AddKey(key) for key in inline_keys(spec)]


def _place(cur: Cursor) -> str | None:
    if cur.accept("FIRST"):
        return ""
    return cur.column_name() if cur.accept("AFTER") else None


def _change(cur: Cursor) -> Iterable[Action]:
    cur.accept("COLUMN")
    cur.accept("IF", "EXISTS")
    old = cur.column_name()
    spec = column_spec(cur, cur.column_name())
    return (ChangeColumn(old, spec, _place(cur)), *_inline(spec))


def _modify(cur: Cursor) -> Iterable[Action]:
    cur.accept("COLUMN")
    cur.accept("IF", "EXISTS")
    name = cur.column_name()
    spec = column_spec(cur, name)
    return (ChangeColumn(name, spec, _place(cur)), *_inline(spec))


def _drop(cur: Cursor) -> Iterable[Action]:
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


def _alter(cur: Cursor) -> Iterable[Action]:
    if cur.accept_one_of("INDEX", "CHECK", "CONSTRAINT"):
        cur.name()
        cur.accept("NOT")
        cur.next()
        return ()
    cur.accept("COLUMN")
    name = cur.column_name()
    if cur.accept("SET", "DEFAULT"):
        return (SetDefault(name, default_value(cur)),)
    if cur.accept("DROP", "DEFAULT"):
        return (SetDefault(name, None),)
    cur.expect("SET")
    if cur.accept("VISIBLE"):
        return (SetVisible(name, False),)
    cur.expect("INVISIBLE")
    return (SetVisible(name, True),)


def _rename(cur: Cursor) -> Iterable[Action]:
    if cur.accept("COLUMN"):
        old = cur.column_name()
        cur.expect("TO")
        return (RenameColumn(old, cur.column_name()),)
    if cur.sees_one_of("INDEX", "KEY"):
        cur.next()
        old = cur.name()
        cur.expect("TO")
        return (RenameKey(old, cur.name()),)
    cur.accept_one_of("TO", "AS", "=")
    return (RenameTo(cur.table_name()),)


def _convert(cur: Cursor) -> Iterable[Action]:
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


def _order(cur: Cursor) -> Iterable[Action]:
    cur.expect("BY")
    while True:
        cur.column_name()
        cur.accept_one_of("ASC", "DESC")
        if not (cur.sees(",") and _orders_on(cur)):
            return ()
        cur.next()


def _orders_on(cur: Cursor) -> bool:
    """Return whether a column of ORDER BY follows the comma, not another action."""
    upper = cur.ahead().upper
    return upper not in _ACTIONS and cur.ahead(2).upper in ("", ",", "ASC", "DESC", ".")


def _nothing(cur: Cursor) -> Iterable[Action]:
    return ()


def _value(cur: Cursor) -> Iterable[Action]:
    cur.accept("=")
    cur.next()
    return ()


def _keys(cur: Cursor) -> Iterable[Action]:
    cur.expect("KEYS")
    return ()


def _validation(cur: Cursor) -> Iterable[Action]:
    cur.expect("VALIDATION")
    return ()


_ACTIONS: dict[str, Callable[[Cursor], Iterable[Action]]] = {
    "ADD": _add,
    "CHANGE": _change,
    "MODIFY": _modify,
    "DROP": _drop,
    "ALTER": _alter,
    "RENAME": _rename,
    "CONVERT": _convert,
    "ORDER": _order,
    "FORCE": _nothing,
    "ALGORITHM": _value,
    "LOCK": _value,
    "DISABLE": _keys,
    "ENABLE": _keys,
    "WITH": _validation,
    "WITHOUT": _validation,
}
