"""Literals as values of their columns: from the session's character set to the column's."""

from __future__ import annotations

from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.model.table import Column, TableId

LATIN1, UTF8MB4, BINARY = 8, 255, 63


def column(definition: str, client: int | None, connection: int | None = None) -> Column:
    context = DdlContext("d", client_collation=client, connection_collation=connection)
    state = apply_ddl(SchemaState(), f"CREATE TABLE t (c {definition})", context).state
    return next(iter(state.tables.values())).columns[0]


@for_each(
    ("definition", "client", "connection", "members"),
    [
        ("ENUM('ä','語','😀')", UTF8MB4, None, ("ä", "語", "😀")),
        ("ENUM('ä','語b')", UTF8MB4, LATIN1, ("ä", "?b")),
        ("ENUM('ä','語b') CHARACTER SET latin1", UTF8MB4, None, ("ä", "?b")),
        ("ENUM('ä') CHARACTER SET latin1", BINARY, None, ("Ã¤",)),
        ("ENUM(X'E4') CHARACTER SET latin1", BINARY, None, ("ä",)),
        ("ENUM('ä') CHARACTER SET latin1", UTF8MB4, BINARY, ("Ã¤",)),
        ("ENUM('ä') CHARACTER SET utf8mb4", LATIN1, None, ("ä",)),
        ("ENUM(X'C3A4') CHARACTER SET utf8mb4", LATIN1, None, ("ä",)),
        ("ENUM('b','bcd') CHARACTER SET ucs2", BINARY, None, ("b", "b捤")),
        ("ENUM(X'62',X'6263') CHARACTER SET utf32", UTF8MB4, None, ("b", "扣")),
        ("SET('a ','b') CHARACTER SET binary", UTF8MB4, None, ("a ", "b")),
        ("SET('😀','x') CHARACTER SET utf16", UTF8MB4, None, ("😀", "x")),
        ("ENUM('😀') CHARACTER SET utf8mb3", UTF8MB4, None, ("?",)),
        ("ENUM('a ','b') CHARACTER SET latin1", UTF8MB4, None, ("a", "b")),
        ("ENUM('a ','ä',X'FF20') CHARACTER SET binary", UTF8MB4, None, ("a ", "Ã¤", "ÿ ")),
    ],
)
def test_members(definition: str, client: int, connection: int | None, members: tuple[str, ...]) -> None:
    assert column(definition, client, connection).enum_values == members


@for_each(
    ("definition", "client", "default"),
    [
        ("VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT _latin1'ä'", UTF8MB4, "Ã¤"),
        ("VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT _latin1 X'E4'", UTF8MB4, "ä"),
        ("VARCHAR(9) CHARACTER SET latin1 DEFAULT _utf8mb4'ä'", UTF8MB4, "ä"),
        ("VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT _utf8mb4'Ã¤'", LATIN1, "ä"),
        ("VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT N'Ã¤'", LATIN1, "ä"),
        ("VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT _cp1251 b'11100100'", LATIN1, "д"),
        ("BIT(12) DEFAULT '0'", LATIN1, "b'110000'"),
        ("ENUM('a ') DEFAULT 'a '", LATIN1, "a"),
        ("CHAR(2) DEFAULT 'a '", LATIN1, "a "),
        ("VARBINARY(9) DEFAULT 'ä'", LATIN1, "0xE4"),
        ("VARBINARY(9) DEFAULT 'ä'", UTF8MB4, "ä"),
        ("VARBINARY(9) DEFAULT _binary'ab'", LATIN1, "ab"),
        ("VARCHAR(9) DEFAULT 00", UTF8MB4, "0"),
        ("VARCHAR(9) DEFAULT '007'", UTF8MB4, "007"),
        ("CHAR(9) CHARACTER SET ucs2 DEFAULT 1e2", UTF8MB4, "100"),
        ("VARBINARY(9) DEFAULT 1e100", UTF8MB4, "1e100"),
        ("VARCHAR(9) DEFAULT TRUE", UTF8MB4, "1"),
        ("ENUM('a','1') DEFAULT 01", UTF8MB4, "1"),
        ("INT DEFAULT _utf16 0x0037", UTF8MB4, "7"),
        ("INT DEFAULT _binary b'110111'", UTF8MB4, "7"),
        # Bytes are filled up on the left to whole characters (5.7.22 to 9.7.4).
        ("VARCHAR(9) CHARACTER SET ucs2 DEFAULT _utf16 'abc'", LATIN1, "a\u6263"),
        ("VARCHAR(9) DEFAULT _utf32 '0'", UTF8MB4, "0"),
        ("CHAR(9) DEFAULT _ucs2 x'E9'", UTF8MB4, "é"),
        ("VARBINARY(9) DEFAULT _utf16 '1'", UTF8MB4, "0x0031"),
        ("ENUM('a','b') DEFAULT _utf16 'b'", UTF8MB4, "b"),
        ("DECIMAL(5,2) DEFAULT _utf16 '7'", UTF8MB4, "7"),
    ],
)
def test_defaults(definition: str, client: int, default: str) -> None:
    assert column(definition, client).default == default


@for_each(
    ("definition", "default"),
    [
        ("DATE DEFAULT '2010-11-12'", "2010-11-12"),
        ("YEAR DEFAULT '2010'", "2010"),
        ("TIME DEFAULT '10:11:12'", "10:11:12"),
        ("TEXT DEFAULT ''", None),
        ("BLOB NOT NULL DEFAULT ''", None),
        ("VARCHAR(9) DEFAULT ''", ""),
        ("DATE DEFAULT '70-01-02'", "70-01-02"),
        ("YEAR DEFAULT '70'", "70"),
    ],
)
def test_defaults_that_the_server_writes_otherwise(definition: str, default: str | None) -> None:
    assert column(definition, UTF8MB4).default == default


def test_lengths_and_fractions() -> None:
    lengths = {"DECIMAL(19.5)": 19, "VARCHAR(9.)": 9, "SQL_TSI_YEAR(4)": 4, "INT(07)": 7}
    assert {definition: column(definition, UTF8MB4).length for definition in lengths} == lengths
    assert column("SQL_TSI_YEAR", UTF8MB4).declared_type == "YEAR"
    for text, expected in (
        ("NOW(/**/)", ""),
        ("NOW( /* c */ 3 )", "(3)"),
        ("LOCALTIME( -- x\n2)", "(2)"),
        ("NOW(0)", ""),
    ):
        assert column(f"TIMESTAMP(3) DEFAULT {text}", UTF8MB4).default == f"CURRENT_TIMESTAMP{expected}"


def test_names_and_comments_are_in_the_basic_plane() -> None:
    context, body = DdlContext("d", client_collation=UTF8MB4), "(`a😀` INT COMMENT 'b😀') COMMENT 'c😀'"
    for sql in (f"CREATE TABLE `t😀` {body}", f"CREATE TABLE IF NOT EXISTS t😀 {body}"):
        (table,) = apply_ddl(SchemaState(), sql, context).state.tables.values()
        column = table.columns[0]
        assert (table.id.table, column.name, table.comment, column.comment) == ("t?", "a?", "c?", "b?")


def test_members_keep_their_bytes_under_convert() -> None:
    """The server does not convert them."""
    context = DdlContext("d", client_collation=UTF8MB4)
    state = apply_ddl(SchemaState(), "CREATE TABLE t (e ENUM('ä','b'), s SET('語')) CHARSET utf8mb4", context).state
    for charset, members in (("utf8mb3", "ä"), ("latin1", "Ã¤"), ("utf8mb4", "ä"), ("ucs2", "쎤")):
        state = apply_ddl(state, f"ALTER TABLE t CONVERT TO CHARACTER SET {charset}", context).state
        second = "" if charset == "ucs2" else "b"  # one byte is no character
        assert next(iter(state.tables.values())).columns[0].enum_values == (members, second)


def test_members_that_are_no_text_after_convert_are_what_the_server_shows() -> None:
    """An incomplete character at the end is left out (MySQL 9.7.4)."""
    context = DdlContext("d", client_collation=UTF8MB4)
    state = apply_ddl(SchemaState(), "CREATE TABLE t (e ENUM('é','béèb','éy','yü')) CHARSET latin1", context).state
    state = apply_ddl(state, "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", context).state
    assert next(iter(state.tables.values())).columns[0].enum_values == ("", "b?", "", "y")


def test_convert_to_binary_leaves_the_bytes_of_members_and_defaults() -> None:
    context = DdlContext("d", client_collation=UTF8MB4)
    columns = (
        "a ENUM('é','x') CHARSET latin1 DEFAULT 'é', b SET('語') DEFAULT '語', c ENUM('ab') CHARSET utf16, "
        "d CHAR(7) CHARSET utf16 DEFAULT 'a ', e VARCHAR(5) CHARSET latin1 DEFAULT 'é', f VARCHAR(5) DEFAULT 'é ', "
        "g VARCHAR(9) DEFAULT (UUID())"
    )
    state = apply_ddl(SchemaState(), f"CREATE TABLE t ({columns})", context).state
    (table,) = apply_ddl(state, "ALTER TABLE t CONVERT TO CHARACTER SET binary", context).state.tables.values()
    assert [c.enum_values for c in table.columns[:3]] == [("é", "x"), ("\xe8\xaa\x9e",), ("\0a\0b",)]
    defaults = ["é", "\xe8\xaa\x9e", None, "0x0061", "0xE9", "é ", "(UUID())"]
    assert [c.default for c in table.columns] == defaults


@for_each(
    ("target", "expected"),
    [
        ("utf16", ("", "扣", "砬")),
        ("ucs2", ("", "扣", "砬")),
        ("utf16le", ("", "换", "ⱸ")),
        ("latin1", ("a", "bc", "x,y")),
    ],
)
def test_members_of_ascii_keep_their_bytes_in_wider_character_sets(target: str, expected: tuple[str, ...]) -> None:
    """As MySQL 8.0.15 and 9.7.4 do."""
    context = DdlContext("db")
    state = apply_ddl(SchemaState(), "CREATE TABLE t (e ENUM('a','bc','x,y')) CHARACTER SET utf8mb4", context).state
    state = apply_ddl(state, f"ALTER TABLE t CONVERT TO CHARACTER SET {target}", context).state
    (converted,) = state.tables.values()
    assert converted.columns[0].enum_values == expected


@for_each(
    "definition",
    [
        "TIMESTAMP NULL DEFAULT '2020-02-29 10:11:12'",
        "DATETIME DEFAULT '2020-02-29 10:11:12+02:00'",
        "DATETIME DEFAULT 20200229120000.5e0",
        "TIME DEFAULT '1 10'",
        "ENUM('é','b') DEFAULT 'E'",
        "SET('é','b') DEFAULT 'b,E'",
        "VARCHAR(4) DEFAULT 3.14159e0",
        "INT DEFAULT (1 + 2)",
        "FLOAT DEFAULT '1.23457'",
        "FLOAT DEFAULT '-16777200'",
        "FLOAT DEFAULT '1.23457e-20'",
        # MySQL 5.7.22 and 8.0.15 count members, 9.7.4 names one:
        "ENUM('3','2','1') DEFAULT 1",
        "ENUM('0','1') DEFAULT TRUE",
        "SET('3','2','1') DEFAULT 1e0",
        "SET('1','0') DEFAULT FALSE",
        "TIME DEFAULT '2038-00-31 23:00:00'",
        "TIME DEFAULT '2020-02-29 10.11.12.13'",
        "TIME DEFAULT '0001-1-29T0:00:12.9999994'",
        "TIME DEFAULT '2020-02-29 23:60:00'",
        "DATETIME DEFAULT '2020-02-29 10:11.'",
        # What only a sql_mode without STRICT_TRANS_TABLES accepts, and changes:
        "TINYINT DEFAULT 300",
        "INT UNSIGNED DEFAULT -1",
        "INT DEFAULT '12abc'",
        "DECIMAL(3,1) DEFAULT 100",
        "FLOAT(3,1) DEFAULT 100",
        "FLOAT DEFAULT 1e39",
        "BIT(4) DEFAULT 16",
        "DECIMAL(65,1) DEFAULT X'010000000000000000'",
        "DOUBLE DEFAULT 0xFFFFFFFFFFFFFFFFFF",
        "INT DEFAULT '1e999999999'",
        "YEAR DEFAULT '1e999999999'",
        "TIME DEFAULT '+1 24:59:12'",
        "DECIMAL(5,2) DEFAULT _utf32 ' .81'",
        "YEAR DEFAULT 1900",
        "VARCHAR(3) DEFAULT 'abcd'",
        "VARBINARY(3) DEFAULT 'abcd'",
        "DATE DEFAULT '2020-02-31'",
        "DATETIME DEFAULT '2020-02-29 10:11:12 PM'",
        "TIME DEFAULT '839:00:00'",
        "TIME DEFAULT '10:61:00'",
    ],
)
def test_what_the_server_stores_for_a_default_is_not_guessed(definition: str) -> None:
    assert column(definition, UTF8MB4).stored_default is None


@for_each(
    ("definition", "target", "stored"),
    [
        ("CHAR(3) DEFAULT 'ä '", "latin1", "ä"),
        ("VARCHAR(3) DEFAULT '語'", "latin1", "?"),
        ("CHAR(4) DEFAULT 'ä'", "binary", None),
        ("ENUM('ä','b') DEFAULT 'b'", "binary", None),
        ("ENUM('ä','b') DEFAULT 'B'", "latin1", "b"),
    ],
)
def test_a_stored_default_after_a_conversion(definition: str, target: str, stored: str | None) -> None:
    create, convert = f"CREATE TABLE t (c {definition})", f"ALTER TABLE t CONVERT TO CHARACTER SET {target}"
    state = apply_ddl(SchemaState(), f"{create}; {convert}", DdlContext("d", client_collation=UTF8MB4)).state
    assert next(iter(state.tables.values())).columns[0].stored_default == stored


@for_each(
    ("definition", "client", "stored"),
    [
        ("DATETIME DEFAULT 0", UTF8MB4, "0000-00-00 00:00:00"),
        ("DATETIME(1) DEFAULT FALSE", UTF8MB4, "0000-00-00 00:00:00.0"),
        ("DATE DEFAULT '00'", UTF8MB4, "0000-00-00"),
        ("DATE DEFAULT '123.2.3'", UTF8MB4, None),
        ("DATE DEFAULT 41018", UTF8MB4, "2004-10-18"),
        ("DATE DEFAULT 0000421", UTF8MB4, "2000-04-21"),
        ("DATE DEFAULT '41018'", UTF8MB4, None),
        ("VARBINARY(9) DEFAULT 'a?'", UTF8MB4, "a?"),
        # SHOW CREATE TABLE of an old server
        ("VARBINARY(9) DEFAULT 'a?'", None, None),
        ("VARCHAR(9) DEFAULT 'a?'", None, None),
        ("ENUM('?','a') DEFAULT '?'", None, None),
        ("VARCHAR(9) DEFAULT 'a?'", UTF8MB4, "a?"),
        ("ENUM('1','2') DEFAULT 2", UTF8MB4, "2"),
        ("FLOAT UNSIGNED DEFAULT '-2e-53'", UTF8MB4, "0.0"),
        ("ENUM('0','1') DEFAULT FALSE", UTF8MB4, "0"),
        ("SET('1','2') DEFAULT 2", UTF8MB4, "2"),
        ("SET('?','a','?') CHARACTER SET latin1 DEFAULT '?'", UTF8MB4, "?"),
        ("CHAR(9) CHARACTER SET utf16 DEFAULT 1e2", UTF8MB4, None),
        ("ENUM('ı','i') COLLATE utf8mb4_turkish_ci DEFAULT 'I'", UTF8MB4, None),
        ("ENUM('a') COLLATE utf8mb4_turkish_ci DEFAULT 'a'", UTF8MB4, "a"),
    ],
)
def test_what_is_stored_for_defaults_of_some_servers(definition: str, client: int | None, stored: str | None) -> None:
    assert column(definition, client).stored_default == stored


@for_each(
    ("definition", "statement", "stored"),
    [
        ("FLOAT DEFAULT 7961.2447", "CREATE TABLE u (i INT)", "7961.24462890625"),
        ("FLOAT DEFAULT 7961.2447", "ALTER TABLE t ADD i INT", None),
        ("FLOAT DEFAULT 7961.2447", "CREATE TABLE u LIKE t", None),
        ("FLOAT DEFAULT 7961.24", "ALTER TABLE t ADD i INT", "7961.240234375"),
        ("FLOAT(9,4) DEFAULT 7961.2447", "ALTER TABLE t ADD i INT", "7961.24462890625"),
        ("DOUBLE DEFAULT 7961.2447", "ALTER TABLE t ADD i INT", "7961.2447"),
    ],
)
def test_an_alter_leaves_six_digits_of_a_float(definition: str, statement: str, stored: str | None) -> None:
    context = DdlContext("d", client_collation=UTF8MB4)
    state = apply_ddl(SchemaState(), f"CREATE TABLE t (c {definition})", context).state
    tables = apply_ddl(state, statement, context).state.tables
    made = tables[TableId("d", "u" if "LIKE" in statement else "t")]
    assert made.columns[0].stored_default == stored


@for_each(("layout", "stored"), [(True, None), (False, "1.5")])
def test_a_float_in_a_statement_of_the_server_may_have_more_digits(layout: bool, stored: str | None) -> None:
    """It leaves out zeros at the end of six digits: 1.5 for 1.5000001."""
    context = DdlContext("d", client_collation=UTF8MB4, server_layout=layout)
    state = apply_ddl(SchemaState(), "CREATE TABLE t (c FLOAT DEFAULT '1.5', z FLOAT DEFAULT '0')", context).state
    (table,) = state.tables.values()
    assert [c.stored_default for c in table.columns] == [stored, "0.0"]
