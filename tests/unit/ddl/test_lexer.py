"""The lexer: tokens of every kind, and totality."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.classify import classify_ddl
from airflow_provider_mysql_cdc.cdc.ddl.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, TokenKind, tokenize
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError


def kinds(sql: str, mode: int = 0) -> list[tuple[str, str]]:
    return [(t.kind.name, t.text) for t in tokenize(sql, mode)[:-1]]


def test_no_keyword_has_a_letter_beyond_ascii() -> None:
    assert [t.upper for t in tokenize("index ındex ſet coﬂumn Straße")[:-1]] == [
        "INDEX", "ındex", "ſet", "coﬂumn", "Straße",
    ]  # fmt: skip


@for_each(
    ("sql", "expected"),
    [
        ("`a``b` c", [("NAME", "a`b"), ("WORD", "c")]),
        ("'it''s' 'a\\'b\\n\\\\'", [("STRING", "it's"), ("STRING", "a'b\n\\")]),
        ('"dq""x"', [("STRING", 'dq"x')]),
        ("'50\\%'", [("STRING", "50\\%")]),
        ("N'x' _utf8mb4'y'", [("WORD", "_utf8mb3"), ("STRING", "x"), ("WORD", "_utf8mb4"), ("STRING", "y")]),
        (
            "x'0F' X'' 0x1f b'101' 0b11 B'0'",
            [("HEX", "0F"), ("HEX", ""), ("HEX", "1f"), ("BITS", "101"), ("BITS", "11"), ("BITS", "0")],
        ),
        ("1 1.5 .5 1e10 1.5E-3 2.", [("NUMBER", n) for n in ("1", "1.5", ".5", "1e10", "1.5E-3", "2.")]),
        ("1st 5a6 0xzz $x _u ünï 中", [("WORD", w) for w in ("1st", "5a6", "0xzz", "$x", "_u", "ünï", "中")]),
        ("\u00a0a b\u3000c \u2028 \u0660", [("WORD", w) for w in ("\u00a0a", "b\u3000c", "\u2028", "\u0660")]),
        ("t.1e5 `t`.5", [("WORD", "t"), ("OP", "."), ("WORD", "1e5"), ("NAME", "t"), ("OP", "."), ("WORD", "5")]),
        (
            "a -- c\nb # c\nc /* d */ e--f",
            [("WORD", "a"), ("WORD", "b"), ("WORD", "c"), ("WORD", "e"), ("OP", "-"), ("OP", "-"), ("WORD", "f")],
        ),
        ("a --", [("WORD", "a")]),
        ("/*+ hint */ a /**/ b", [("WORD", "a"), ("WORD", "b")]),
        ("a /*!80000 b */ c /*! d*/ /*!50100e*/", [("WORD", w) for w in "abcde"]),
        ("/*!80000 a /* inner */ b */ c", [("WORD", w) for w in "abc"]),
        ("a /* 99999 x /* in */ y /* and * / */ */ b", [("WORD", w) for w in "ab"]),
        ("a /* 099999 /* in */ */ b /* 99999 /* x */ c /* y */", [("WORD", w) for w in "abc"]),
        (
            "a * / b */ c",
            [("WORD", "a"), ("OP", "*"), ("OP", "/"), ("WORD", "b"), ("OP", "*"), ("OP", "/"), ("WORD", "c")],
        ),
        (
            "@x @@global.y a:=1 b<=>c j->>'$.a'",
            [
                ("PARAM", "@x"),
                ("PARAM", "@@global.y"),
                ("WORD", "a"),
                ("OP", ":="),
                ("NUMBER", "1"),
                ("WORD", "b"),
                ("OP", "<=>"),
                ("WORD", "c"),
                ("WORD", "j"),
                ("OP", "->>"),
                ("STRING", "$.a"),
            ],
        ),
        ("u@'h'", [("WORD", "u"), ("PARAM", "@"), ("STRING", "h")]),
    ],
)
def test_tokens(sql: str, expected: list[tuple[str, str]]) -> None:
    assert kinds(sql) == expected


def test_sql_mode_decides_what_quotes_and_backslashes_mean() -> None:
    assert kinds('"a""b"', ANSI_QUOTES) == [("NAME", 'a"b')]
    assert kinds("'a\\' 'b'", NO_BACKSLASH_ESCAPES) == [("STRING", "a\\"), ("STRING", "b")]
    assert kinds('"a\\" "b"', ANSI_QUOTES) == [("NAME", "a\\"), ("NAME", "b")]


@for_each("sql", ["'a", '"a', "`a", "'a\\'", "/* a", "/*!50000 a", "a /*! 'x*/"])
def test_what_is_not_closed_is_an_error(sql: str) -> None:
    with pytest.raises(DdlParseError):
        tokenize(sql)


def test_places_cover_the_statement() -> None:
    sql = "ALTER  TABLE `t` ADD x VARCHAR(3) DEFAULT 'a''b' -- c"
    assert [sql[t.start : t.end] for t in tokenize(sql)] == [
        "ALTER",
        "TABLE",
        "`t`",
        "ADD",
        "x",
        "VARCHAR",
        "(",
        "3",
        ")",
        "DEFAULT",
        "'a''b'",
        "",
    ]


def test_a_long_literal_takes_linear_time() -> None:
    body = "\\'" * 2_000_000
    assert len(tokenize(f"INSERT '{body}'")[1].text) == 2_000_000
    with pytest.raises(DdlParseError):
        tokenize(f"INSERT '{body}")


WORDS = """
    CREATE ALTER TABLE DROP RENAME TRUNCATE INDEX UNIQUE DATABASE IF NOT EXISTS LIKE ADD COLUMN MODIFY CHANGE
    FIRST AFTER PRIMARY KEY FOREIGN REFERENCES CONSTRAINT CHECK DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP
    COMMENT CHARACTER
    SET COLLATE PARTITION BY CONVERT TO ORDER INT VARCHAR ENUM TEXT DECIMAL TIMESTAMP SERIAL GENERATED ALWAYS AS USE
    ; ( ) , . = - 'x' "y" `z`
    t a b 5 1.5 x'41' b'1' /*!80000 */ /* -- # @v utf8mb4 latin1_bin ' " ` \\"""
SNIPPETS = st.sampled_from(WORDS.split())


@settings(max_examples=400, deadline=2000)
@given(
    st.one_of(st.text(max_size=200), st.lists(SNIPPETS, max_size=30).map(" ".join)),
    st.sampled_from([0, ANSI_QUOTES, NO_BACKSLASH_ESCAPES]),
)
def test_any_text_ends_in_tokens_or_a_parse_error(sql: str, mode: int) -> None:
    """Neither lexer nor parser ever hangs or raises anything but DdlParseError."""
    try:
        tokens = tokenize(sql, mode)
    except DdlParseError:
        pass
    else:
        assert tokens[-1].kind is TokenKind.END
        assert all(a.end <= b.start for a, b in pairwise(tokens))
    context = DdlContext("d", mode)
    classify_ddl(sql, context, lambda table: True)
    state = apply_ddl(SchemaState(), "CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(5), UNIQUE (b))", context).state
    with suppress(DdlParseError):
        apply_ddl(state, sql, context)


@settings(max_examples=600, deadline=2000)
@given(
    st.lists(SNIPPETS, max_size=25),
    st.sampled_from(["ALTER TABLE t ", "CREATE TABLE u (a INT", "CREATE TABLE u ", "ALTER TABLE t ADD x "]),
)
def test_any_tail_of_a_statement_is_understood_or_refused(words: list[str], head: str) -> None:
    context = DdlContext("d")
    state = apply_ddl(SchemaState(), "CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(5), UNIQUE (b))", context).state
    with suppress(DdlParseError):
        apply_ddl(state, head + " ".join(words), context)
