"""Parse a statement: by its leading words, or not at all when it cannot change a table's structure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from airflow_provider_mysql_cdc.cdc.ddl.alter_parser import alter_table
from airflow_provider_mysql_cdc.cdc.ddl.create import create_table
from airflow_provider_mysql_cdc.cdc.ddl.cursor import Cursor, NameParts
from airflow_provider_mysql_cdc.cdc.ddl.keys import key_options, key_parts
from airflow_provider_mysql_cdc.cdc.ddl.lexer import Kind, Token, tokenize
from airflow_provider_mysql_cdc.cdc.ddl.statements import (
    AddKey,
    AlterTable,
    DatabaseStatement,
    DropKey,
    DropTables,
    KeyKind,
    KeySpec,
    RenameTables,
    SetServer,
    Statement,
    TruncateTable,
    UseDatabase,
)
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError

Part = tuple[str, Sequence[Token]]
"""Text of one statement without the comments around it, and its tokens, whose places refer to the whole text."""

LEADING_WORDS = 16
MAX_LENGTH = 16 * 2**20
"""Characters of a statement that is read whole; columns and partitions of a table take a few MB at most, and parsing
needs about fifty times as much memory."""
_CLOSE = re.compile(r"\s*\*/")
_PROGRAMS = frozenset(("PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "LIBRARY"))


def split(sql: str, sql_mode: int = 0) -> list[Part]:
    """Split a text at its semicolons; a text that creates a stored program stays whole.

    Args:
        sql: One or more statements.
        sql_mode: Bits of sql_mode.

    Raises:
        DdlParseError: A string, name or comment is not closed, or the text is too long.
    """
    if len(sql) > MAX_LENGTH:
        raise DdlParseError("a statement is too long", where=sql[:80], why=f"it has {len(sql)} characters")
    tokens = tokenize(sql, sql_mode)
    if _is_program(tokens):
        return [(sql, tokens)]
    parts: list[Part] = []
    begin = 0
    for i, token in enumerate(tokens):
        if token.kind is Kind.END or (token.text == ";" and token.kind is Kind.OP):
            chunk = tokens[begin:i]
            if chunk:
                end = Token(Kind.END, "", "", chunk[-1].end, chunk[-1].end)
                parts.append((_text(sql, chunk), [*chunk, end]))
            begin = i + 1
    return parts


def _text(sql: str, chunk: Sequence[Token]) -> str:
    """Return a statement's text; an executable comment that begins in it and ends it is closed."""
    text = sql[chunk[0].start : chunk[-1].end]
    close = _CLOSE.match(sql, chunk[-1].end) if "/*!" in text else None
    return text + close.group() if close else text


def leads_to_ddl(sql: str, sql_mode: int = 0) -> bool:
    """Return whether the leading words show a statement that can change structures; only they are looked at.

    Raises:
        DdlParseError: A comment or string among the leading words is not closed.
    """
    if tokenize(sql, sql_mode, limit=1)[0].upper not in _BY_VERB:
        return False
    tokens = tokenize(sql, sql_mode, limit=LEADING_WORDS)
    return not _is_program(tokens) and handler_of(Cursor(sql, tokens, sql_mode)) is not None


def _is_program(tokens: Sequence[Token]) -> bool:
    """Return whether CREATE or ALTER of a stored program leads the text: its body has semicolons of its own."""
    if tokens[0].upper not in ("CREATE", "ALTER"):
        return tokens[0].upper == "BEGIN" and len(tokens) > 3 and tokens[1].text != ";"
    for token in tokens[1:LEADING_WORDS]:
        if token.upper in _PROGRAMS:
            return True
        if token.upper in ("TABLE", "DATABASE", "SCHEMA", "VIEW", "INDEX", "(", ";"):
            return False
    return False


def parse(sql: str, tokens: Sequence[Token], sql_mode: int = 0) -> Statement | None:
    """Parse one statement.

    Args:
        sql: The text the tokens' places refer to.
        tokens: Its tokens, closed by END.
        sql_mode: Bits of sql_mode.

    Returns:
        The statement; None when its leading words show that it cannot change a table's structure.

    Raises:
        DdlParseError: It can change one and was not understood.
    """
    cur = Cursor(sql, tokens, sql_mode)
    handler = handler_of(cur)
    if handler is None:
        return None
    statement = handler(cur)
    if statement is not None and not cur.at_end():
        cur.fail("an unexpected word")
    return statement


Handler = Callable[[Cursor], Statement | None]


def handler_of(cur: Cursor) -> Handler | None:
    """Return what parses the statement at the cursor, and step over its leading words; None when it is irrelevant."""
    verb = cur.token.upper
    table = _BY_VERB.get(verb)
    if table is None:
        return None
    start = cur.pos
    cur.next()
    while cur.token.upper in _MODIFIERS.get(verb, ()):
        cur.next()
    if cur.sees("OR", "REPLACE"):
        cur.next()
        cur.next()
    unique = cur.accept("UNIQUE")
    if not unique:
        cur.accept_one_of("FULLTEXT", "SPATIAL", "VECTOR", "EXTERNAL")
    handler = table.get(cur.token.upper) or table.get("")
    if handler is None:
        cur.pos = start
        return None
    if cur.token.upper and cur.token.upper in table:
        cur.next()
    if handler is _create_index and unique:
        return _create_unique
    return handler


def _names(cur: Cursor) -> tuple[NameParts, ...]:
    names = [cur.table_name()]
    while cur.accept(","):
        names.append(cur.table_name())
    return tuple(names)


def _drop_tables(cur: Cursor) -> Statement:
    if_exists = cur.accept("IF", "EXISTS")
    names = _names(cur)
    cur.accept_one_of("RESTRICT", "CASCADE")
    return DropTables(names, if_exists)


def _rename_tables(cur: Cursor) -> Statement:
    pairs, texts = [], []
    head = cur.sql[cur.tokens[0].start : cur.token.start]
    while True:
        start = cur.token.start
        old = cur.table_name()
        cur.expect("TO")
        pairs.append((old, cur.table_name()))
        texts.append(head + cur.sql[start : cur.tokens[cur.pos - 1].end])
        if not cur.accept(","):
            return RenameTables(tuple(pairs), tuple(texts))


def _truncate(cur: Cursor) -> Statement:
    return TruncateTable(cur.table_name())


def _create_unique(cur: Cursor) -> Statement:
    return _index(cur, KeyKind.UNIQUE)


def _create_index(cur: Cursor) -> Statement:
    return _index(cur, KeyKind.PLAIN)


def _index(cur: Cursor, kind: KeyKind) -> Statement:
    cur.accept("IF", "NOT", "EXISTS")
    name = cur.name()
    if cur.accept_one_of("USING", "TYPE"):
        cur.next()
    cur.expect("ON")
    table = cur.table_name()
    parts = key_parts(cur)
    key_options(cur)
    return AlterTable(table, (AddKey(KeySpec(kind, name, parts)),), index_only=True)


def _drop_index(cur: Cursor) -> Statement:
    cur.accept("IF", "EXISTS")
    name = cur.name()
    cur.expect("ON")
    table = cur.table_name()
    key_options(cur)
    return AlterTable(table, (DropKey(name),), index_only=True)


def _database(verb: str) -> Handler:
    def handler(cur: Cursor) -> Statement:
        if_not_exists = cur.accept("IF", "NOT", "EXISTS") or cur.accept("IF", "EXISTS")
        named = cur.token.kind in (Kind.WORD, Kind.NAME) and not _at_database_option(cur)
        name = cur.name() if named else None
        charset = collation = None
        while not cur.at_end():
            cur.accept("DEFAULT")
            if cur.accept("CHARSET") or cur.accept("CHARACTER", "SET") or cur.accept("CHAR", "SET"):
                cur.accept("=")
                charset = "" if cur.accept("DEFAULT") else cur.word_or_string()
            elif cur.accept("COLLATE"):
                cur.accept("=")
                collation = "" if cur.accept("DEFAULT") else cur.word_or_string()
            elif cur.accept("ENCRYPTION") or cur.accept("READ", "ONLY"):
                cur.accept("=")
                cur.next()
            elif not cur.accept("UPGRADE", "DATA", "DIRECTORY", "NAME"):
                cur.fail("an unknown database option")
        return DatabaseStatement(verb, name, if_not_exists, charset, collation)

    return handler


def _at_database_option(cur: Cursor) -> bool:
    pairs = (("CHARACTER", "SET"), ("CHAR", "SET"), ("READ", "ONLY"), ("DEFAULT",), ("COLLATE",))
    one_word = cur.sees_one_of("CHARSET", "ENCRYPTION") and cur.ahead().kind is not Kind.END
    return one_word or any(cur.sees(*words) for words in pairs)


def _use(cur: Cursor) -> Statement:
    return UseDatabase(cur.name())


def _set(cur: Cursor) -> Statement | None:
    """Parse SET character_set_server and collation_server; all other variables are no matter of structure."""
    found: dict[str, str] = {}
    while not cur.at_end():
        cur.accept_one_of("GLOBAL", "SESSION", "LOCAL", "PERSIST")
        variable = cur.next().text.lower().rpartition(".")[2].lstrip("@")
        if variable in _SERVER_VARIABLES and (cur.accept("=") or cur.accept(":=")):
            found[variable] = cur.word_or_string()
        while not cur.at_end() and not cur.accept(","):
            cur.next()
    if not found:
        return None
    return SetServer(found.get("character_set_server"), found.get("collation_server"))


_SERVER_VARIABLES = frozenset(("character_set_server", "collation_server"))
_MODIFIERS = {"ALTER": ("IGNORE", "ONLINE", "OFFLINE"), "DROP": ("ONLINE", "OFFLINE"), "CREATE": ("ONLINE", "OFFLINE")}
_BY_VERB: dict[str, dict[str, Handler]] = {
    "CREATE": {
        "TABLE": create_table,
        "INDEX": _create_index,
        "DATABASE": _database("CREATE"),
        "SCHEMA": _database("CREATE"),
    },
    "ALTER": {"TABLE": alter_table, "DATABASE": _database("ALTER"), "SCHEMA": _database("ALTER")},
    "DROP": {
        "TABLE": _drop_tables,
        "TABLES": _drop_tables,
        "INDEX": _drop_index,
        "DATABASE": _database("DROP"),
        "SCHEMA": _database("DROP"),
    },
    "RENAME": {"TABLE": _rename_tables, "TABLES": _rename_tables},
    "TRUNCATE": {"TABLE": _truncate, "": _truncate},
    "USE": {"": _use},
    "SET": {"": _set},
}
