"""Parse a statement by its leading words, or not at all when it cannot change a table's structure; CREATE TABLE.

Parse CREATE TABLE.

Source: MySQL 9.7 manual, "CREATE TABLE Statement".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from airflow_provider_mysql_cdc.cdc.ddl.alter_parser import parse_alter_table
from airflow_provider_mysql_cdc.cdc.ddl.columns import parse_column
from airflow_provider_mysql_cdc.cdc.ddl.keys import (
    inline_keys,
    parse_key,
    parse_key_parts,
    parse_table_option,
    skip_key_options,
    starts_key,
)
from airflow_provider_mysql_cdc.cdc.ddl.lexer import Cursor, NameParts, Token, TokenKind, tokenize
from airflow_provider_mysql_cdc.cdc.ddl.statements import (
    AddKey,
    AlterTable,
    ColumnSpec,
    CreateTable,
    DatabaseStatement,
    DdlKeyKind,
    DropKey,
    DropTables,
    KeySpec,
    ParsedStatement,
    RenameTables,
    SetServerCharset,
    TableOptions,
    TruncateTable,
    UseDatabase,
)
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError, RowsAsTextError

_QUERY_KEYWORDS = ("AS", "SELECT", "REPLACE", "IGNORE", "WITH", "TABLE", "VALUES", "(")


def parse_create_table(cur: Cursor) -> CreateTable:
    """Parse what follows CREATE TABLE.

    Args:
        cur: Cursor after the word TABLE.

    Raises:
        RowsAsTextError: Its rows come from a SELECT: with row-based logging the server writes the finished column list
            instead. With IF NOT EXISTS the statement is returned: where the table exists, it did nothing.
        DdlParseError: The statement is malformed.
    """
    if_not_exists = cur.accept("IF", "NOT", "EXISTS")
    name = cur.table_name()
    like = _like(cur)
    if like is not None:
        return CreateTable(name, if_not_exists, like)
    columns: list[ColumnSpec] = []
    keys: list[KeySpec] = []
    if cur.matches("(") and cur.peek(1).upper not in _QUERY_KEYWORDS:
        _parse_elements(cur, columns, keys)
    options = TableOptions()
    while parse_table_option(cur, options):
        cur.accept(",")
    if cur.accept("PARTITION", "BY"):
        _skip_partitioning(cur)
    selects = cur.matches_one_of(*_QUERY_KEYWORDS)
    if selects and not if_not_exists:
        raise rows_as_text()
    while selects and not cur.at_end():
        cur.next()
    if not cur.at_end():
        cur.fail("an unknown table option")
    if not (columns or if_not_exists):
        cur.fail("a table without columns")
    return CreateTable(name, if_not_exists, None, tuple(columns), tuple(keys), options, selects)


def rows_as_text() -> RowsAsTextError:
    """Return the error of a table that was created with the rows of a SELECT."""
    return RowsAsTextError("the rows of a new table come from a SELECT", why="the statement was logged as text")


def _like(cur: Cursor) -> NameParts | None:
    if cur.accept("LIKE"):
        return cur.table_name()
    if cur.accept("(", "LIKE"):
        source = cur.table_name()
        cur.expect(")")
        return source
    return None


def _parse_elements(cur: Cursor, columns: list[ColumnSpec], keys: list[KeySpec]) -> None:
    cur.expect("(")
    while True:
        if starts_key(cur):
            key = parse_key(cur)
            if key is not None:
                keys.append(key)
        else:
            spec = parse_column(cur, cur.column_name())
            columns.append(spec)
            keys.extend(inline_keys(spec))
        if not cur.accept(","):
            break
    cur.expect(")")


def _skip_partitioning(cur: Cursor) -> None:
    """Step over a partition clause; a SELECT after it is left to the caller."""
    while not cur.at_end() and not cur.matches_one_of("AS", "SELECT", "REPLACE", "IGNORE", "WITH"):
        if cur.matches("("):
            cur.skip_parentheses()
        else:
            cur.next()


StatementText = tuple[str, Sequence[Token]]
"""Text of one statement without the comments around it, and its tokens, whose places refer to the whole text."""

LEADING_WORD_COUNT = 16
MAX_LENGTH = 16 * 2**20
"""Characters of a statement that is read whole; columns and partitions of a table take a few MB at most, and parsing
needs about fifty times as much memory."""
_COMMENT_END = re.compile(r"\s*\*/", re.ASCII)
_CASCADE = re.compile(r"\bREFERENCES\b.*\b(CASCADE|NULL)\b", re.IGNORECASE | re.DOTALL | re.ASCII)
_STORED_PROGRAMS = frozenset(("PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "LIBRARY"))


def split_statements(sql: str, sql_mode: int = 0) -> list[StatementText]:
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
    if _is_stored_program(tokens):
        return [(sql, tokens)]
    parts: list[StatementText] = []
    first = 0
    for i, token in enumerate(tokens):
        if token.kind is TokenKind.END or (token.text == ";" and token.kind is TokenKind.OP):
            statement_tokens = tokens[first:i]
            if statement_tokens:
                end = Token(TokenKind.END, "", "", statement_tokens[-1].end, statement_tokens[-1].end)
                parts.append((_statement_text(sql, statement_tokens), [*statement_tokens, end]))
            first = i + 1
    return parts


def _statement_text(sql: str, tokens: Sequence[Token]) -> str:
    """Return a statement's text; an executable comment that begins in it and ends it is closed."""
    text = sql[tokens[0].start : tokens[-1].end]
    close = _COMMENT_END.match(sql, tokens[-1].end) if "/*!" in text else None
    return text + close.group() if close else text


def is_ddl(sql: str, sql_mode: int = 0) -> bool:
    """Return whether the leading words show a statement that can change structures; only they are looked at.

    Raises:
        DdlParseError: A comment or string among the leading words is not closed.
    """
    if tokenize(sql, sql_mode, limit=1)[0].upper not in _PARSERS_BY_VERB:
        return False
    tokens = tokenize(sql, sql_mode, limit=LEADING_WORD_COUNT)
    return not _is_stored_program(tokens) and find_parser(Cursor(sql, tokens, sql_mode)) is not None


def _is_stored_program(tokens: Sequence[Token]) -> bool:
    """Return whether CREATE or ALTER of a stored program leads the text: its body has semicolons of its own."""
    if tokens[0].upper not in ("CREATE", "ALTER"):
        return tokens[0].upper == "BEGIN" and len(tokens) > 3 and tokens[1].text != ";"
    for token in tokens[1:LEADING_WORD_COUNT]:
        if token.upper in _STORED_PROGRAMS:
            return True
        if token.upper in ("TABLE", "DATABASE", "SCHEMA", "VIEW", "INDEX", "(", ";"):
            return False
    return False


def parse_statement(sql: str, tokens: Sequence[Token], sql_mode: int = 0) -> ParsedStatement | None:
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
    handler = find_parser(cur)
    if handler is None:
        return None
    statement = handler(cur)
    if statement is not None and not cur.at_end():
        cur.fail("an unexpected word")
    return statement


StatementParser = Callable[[Cursor], ParsedStatement | None]


def find_parser(cur: Cursor) -> StatementParser | None:
    """Return what parses the statement at the cursor, and step over its leading words; None when it is irrelevant."""
    verb = cur.token.upper
    parsers = _PARSERS_BY_VERB.get(verb)
    if parsers is None:
        return None
    start = cur.pos
    cur.next()
    while cur.token.upper in _MODIFIERS.get(verb, ()):
        cur.next()
    if cur.matches("OR", "REPLACE"):
        cur.next()
        cur.next()
    unique = cur.accept("UNIQUE")
    if not unique:
        cur.accept_one_of("FULLTEXT", "SPATIAL", "VECTOR", "EXTERNAL")
    handler = parsers.get(cur.token.upper) or parsers.get("")
    if handler is None:
        cur.pos = start
        return None
    if cur.token.upper and cur.token.upper in parsers:
        cur.next()
    if handler is _create_index and unique:
        return _create_unique
    return handler


def _table_names(cur: Cursor) -> tuple[NameParts, ...]:
    names = [cur.table_name()]
    while cur.accept(","):
        names.append(cur.table_name())
    return tuple(names)


def _drop_tables(cur: Cursor) -> ParsedStatement:
    if_exists = cur.accept("IF", "EXISTS")
    names = _table_names(cur)
    cur.accept_one_of("RESTRICT", "CASCADE")
    return DropTables(names, if_exists)


def _rename_tables(cur: Cursor) -> ParsedStatement:
    pairs, texts = [], []
    prefix = cur.sql[cur.tokens[0].start : cur.token.start]
    while True:
        start = cur.token.start
        old = cur.table_name()
        cur.expect("TO")
        pairs.append((old, cur.table_name()))
        texts.append(prefix + cur.sql[start : cur.tokens[cur.pos - 1].end])
        if not cur.accept(","):
            return RenameTables(tuple(pairs), tuple(texts))


def _truncate(cur: Cursor) -> ParsedStatement:
    return TruncateTable(cur.table_name())


def _create_unique(cur: Cursor) -> ParsedStatement:
    return _parse_index(cur, DdlKeyKind.UNIQUE)


def _create_index(cur: Cursor) -> ParsedStatement:
    return _parse_index(cur, DdlKeyKind.PLAIN)


def _parse_index(cur: Cursor, kind: DdlKeyKind) -> ParsedStatement:
    cur.accept("IF", "NOT", "EXISTS")
    name = cur.name()
    if cur.accept_one_of("USING", "TYPE"):
        cur.next()
    cur.expect("ON")
    table = cur.table_name()
    parts = parse_key_parts(cur)
    skip_key_options(cur)
    return AlterTable(table, (AddKey(KeySpec(kind, name, parts)),), index_only=True)


def _drop_index(cur: Cursor) -> ParsedStatement:
    cur.accept("IF", "EXISTS")
    name = cur.name()
    cur.expect("ON")
    table = cur.table_name()
    skip_key_options(cur)
    return AlterTable(table, (DropKey(name),), index_only=True)


def _database_parser(verb: str) -> StatementParser:
    def handler(cur: Cursor) -> ParsedStatement:
        if_not_exists = cur.accept("IF", "NOT", "EXISTS") or cur.accept("IF", "EXISTS")
        named = cur.token.kind in (TokenKind.WORD, TokenKind.NAME) and not _at_database_option(cur)
        name = cur.name() if named else None
        charset = collation = None
        charset_is_last = False
        while not cur.at_end():
            cur.accept("DEFAULT")
            if cur.accept("CHARSET") or cur.accept("CHARACTER", "SET") or cur.accept("CHAR", "SET"):
                cur.accept("=")
                charset, charset_is_last = "" if cur.accept("DEFAULT") else cur.word_or_string(), True
            elif cur.accept("COLLATE"):
                cur.accept("=")
                collation, charset_is_last = "" if cur.accept("DEFAULT") else cur.word_or_string(), False
            elif cur.accept("ENCRYPTION") or cur.accept("READ", "ONLY"):
                cur.accept("=")
                cur.next()
            elif not cur.accept("UPGRADE", "DATA", "DIRECTORY", "NAME"):
                cur.fail("an unknown database option")
        return DatabaseStatement(verb, name, if_not_exists, charset, collation, charset_is_last)

    return handler


def _at_database_option(cur: Cursor) -> bool:
    pairs = (("CHARACTER", "SET"), ("CHAR", "SET"), ("READ", "ONLY"), ("DEFAULT",), ("COLLATE",))
    one_word = cur.matches_one_of("CHARSET", "ENCRYPTION") and cur.peek().kind is not TokenKind.END
    return one_word or any(cur.matches(*words) for words in pairs)


def _use_database(cur: Cursor) -> ParsedStatement:
    return UseDatabase(cur.name())


def _set_variables(cur: Cursor) -> ParsedStatement | None:
    """Parse SET character_set_server and collation_server; all other variables are no matter of structure."""
    variables: dict[str, str] = {}
    while not cur.at_end():
        cur.accept_one_of("GLOBAL", "SESSION", "LOCAL", "PERSIST")
        variable = cur.next().text.lower().rpartition(".")[2].lstrip("@")
        if variable in _SERVER_VARIABLES and (cur.accept("=") or cur.accept(":=")):
            variables[variable] = cur.word_or_string()
        while not cur.at_end() and not cur.accept(","):
            cur.next()
    if not variables:
        return None
    return SetServerCharset(variables.get("character_set_server"), variables.get("collation_server"))


_SERVER_VARIABLES = frozenset(("character_set_server", "collation_server"))
_MODIFIERS = {"ALTER": ("IGNORE", "ONLINE", "OFFLINE"), "DROP": ("ONLINE", "OFFLINE"), "CREATE": ("ONLINE", "OFFLINE")}
_PARSERS_BY_VERB: dict[str, dict[str, StatementParser]] = {
    "CREATE": {
        "TABLE": parse_create_table,
        "INDEX": _create_index,
        "DATABASE": _database_parser("CREATE"),
        "SCHEMA": _database_parser("CREATE"),
    },
    "ALTER": {"TABLE": parse_alter_table, "DATABASE": _database_parser("ALTER"), "SCHEMA": _database_parser("ALTER")},
    "DROP": {
        "TABLE": _drop_tables,
        "TABLES": _drop_tables,
        "INDEX": _drop_index,
        "DATABASE": _database_parser("DROP"),
        "SCHEMA": _database_parser("DROP"),
    },
    "RENAME": {"TABLE": _rename_tables, "TABLES": _rename_tables},
    "TRUNCATE": {"TABLE": _truncate, "": _truncate},
    "USE": {"": _use_database},
    "SET": {"": _set_variables},
}


def has_cascades(sql: str, sql_mode: int) -> bool:
    """Return whether a statement defines a foreign key with CASCADE or SET NULL, which changes rows of its table.

    Args:
        sql: Statement text.
        sql_mode: Bits of sql_mode.
    """
    if _CASCADE.search(sql) is None or not is_ddl(sql, sql_mode):
        return False
    for _, tokens in split_statements(sql, sql_mode):
        words = [token.upper for token in tokens]
        for index in (i for i, word in enumerate(words) if word == "ON"):
            event, *action = words[index + 1 : index + 4]
            if event in ("DELETE", "UPDATE") and (action[:1] == ["CASCADE"] or action == ["SET", "NULL"]):
                return True
    return False
