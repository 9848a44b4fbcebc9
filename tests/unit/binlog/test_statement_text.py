"""Bytes of statements: in the session's character set, or as the server wrote them."""

from __future__ import annotations

from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog.statement_text import (
    decode_statement,
    has_server_layout,
    is_written_by_server,
    with_null,
)

LATIN1, UTF8MB4, BINARY, SJIS, GREEK, CP1251, ARMSCII8, UJIS, SWE7, GB18030 = 8, 255, 63, 13, 25, 51, 32, 12, 10, 248
NO_BACKSLASH_ESCAPES, ANSI_QUOTES = 0x100000, 0x4
KEY = "`my_row_id` bigint unsigned NOT NULL AUTO_INCREMENT /*!80023 INVISIBLE */"
COLUMNS = "\n  `id` int NOT NULL,\n  `ä` enum('ä') DEFAULT NULL\n)"


@for_each(
    ("text", "expected"),
    [
        (f"CREATE TABLE `t` ({COLUMNS} START TRANSACTION", True),
        (f"CREATE TABLE IF NOT EXISTS `d`.`a``b (` ({COLUMNS} START TRANSACTION", True),
        (f'CREATE TABLE "a""b" ({COLUMNS} START TRANSACTION ENGINE=InnoDB', True),
        (f"CREATE TABLE d.bestände ({COLUMNS} START TRANSACTION", True),
        (f"CREATE TABLE `t` (\n  {KEY},\n  `a` int\n) COMMENT='x'", True),
        (f"CREATE TABLE t (\n  {KEY.replace('`', '')},\n  `a b` int\n)", True),
        (f"CREATE TABLE `t` ({COLUMNS}", False),
        (f"CREATE TABLE `t` (\n  `a` int,\n  {KEY}\n)", False),
        (f"create table `t` ({COLUMNS} START TRANSACTION", False),
        ("CREATE TABLE t (id INT) START TRANSACTION", False),
        ("ALTER TABLE t ADD a INT", False),
    ],
)
def test_what_the_server_wrote_has_its_marks(text: str, expected: bool) -> None:
    assert is_written_by_server(text.encode(), temporary=False) is expected


def test_null_is_written_where_the_server_leaves_it_out() -> None:
    lines = [
        "  `i``d` int(7) unsigned zerofill AUTO_INCREMENT",
        "  b bigint AUTO_INCREMENT COMMENT 'int AUTO_INCREMENT'",
    ]
    text = f"CREATE TABLE `t` (\n{lines[0]},\n{lines[1]},\n  `c` int NOT NULL AUTO_INCREMENT\n)"
    expected = text.replace("fill AUTO_INCREMENT", "fill AUTO_INCREMENT NULL").replace(" COMMENT", " NULL COMMENT")
    assert with_null(text) == expected


def test_a_table_like_a_temporary_one_is_written_by_the_server() -> None:
    assert is_written_by_server(f"CREATE TABLE `t` ({COLUMNS} ENGINE=InnoDB".encode(), temporary=True)
    assert not is_written_by_server(b"CREATE TABLE t LIKE s", temporary=True)
    assert has_server_layout(f"CREATE TABLE `t` ({COLUMNS} ENGINE=InnoDB".encode())
    assert not has_server_layout(b"CREATE TABLE `t` (`id` int)") and not has_server_layout(b"CREATE TABLE t LIKE s")


@for_each(
    ("data", "collation", "sql_mode", "expected"),
    [
        (b"e ENUM('\x81\xe9')", LATIN1, 0, "e ENUM('\x81é')"),
        (b"e ENUM('\xff\xe1')", GREEK, 0, "e ENUM('?α')"),
        ("表 'ソ'".encode("shift_jis") + b" \x81", SJIS, 0, "表 'ソ' ?"),
        ("`ä` 'ö'".encode(), BINARY, 0, "`ä` 'ö'"),
        (b"`\xc3\xa4` ENUM('\xe4','b') /* \xc3\xa4 */", BINARY, 0, "`ä` ENUM( X'e4','b') /* ä */"),
        (rb"DEFAULT 'a\n\'\\\Z" + b"\xff'", UTF8MB4, 0, "DEFAULT  X'610a275c1aff'"),
        (b"DEFAULT 'a\\\xff\\' -- '\xe4'", UTF8MB4, NO_BACKSLASH_ESCAPES, "DEFAULT  X'615cff5c' -- '?'"),
        (b"DEFAULT 'it''s\xff'", UTF8MB4, 0, "DEFAULT  X'69742773ff'"),
        (b'DEFAULT "\xff"', UTF8MB4, 0, "DEFAULT  X'ff'"),
        (b"\"\xc3\xa4\" '\xff'", UTF8MB4, ANSI_QUOTES, "\"ä\"  X'ff'"),
        (b"/*!50100 DEFAULT '\xff' */", UTF8MB4, 0, "/*!50100 DEFAULT  X'ff' */"),
        (b"ADD\xa0`a\xa0b`\xa0COMMENT 'c\xa0'", LATIN1, 0, "ADD `a\xa0b` COMMENT 'c\xa0'"),
        (b"ADD \xa0a", CP1251, 0, "ADD \xa0a"),
        (b"'a\xff' \"\xff\" `\xff` -- \xff", ARMSCII8, 0, "'a''' \"'\" `'` -- '"),
        (rb"'\'" + b"\xff' 'b'", ARMSCII8, 0, r"'\'''' 'b'"),
        (b"'a\xff\\' 'b'", ARMSCII8, NO_BACKSLASH_ESCAPES, r"'a''\' 'b'"),
        (b"'a\x81_' \"\x81_\" `\x81_` '\x83\x81_'", SJIS, 0, "'a\\\\' \"\\\\\" `\\` 'メ_'"),
        (b"\"\x81_\" '\x81_'", SJIS, ANSI_QUOTES | NO_BACKSLASH_ESCAPES, "\"\\\" '\\'"),
        (b"\"\x81_\" '\x81_'", SJIS, ANSI_QUOTES, "\"\\\" '\\\\'"),
        (b"'\\\xff\xff' 'b'", ARMSCII8, 0, "'\\'''' 'b'"),
        (b"'\\\x81_' '\\\\\x81_'", SJIS, 0, "'\\\\' '\\\\\\\\'"),
        (b"t.a\x81_b (\x81_\x81_ INT)", SJIS, 0, "t.`a\\b` (`\\\\` INT)"),
        (
            b"'\x83' '\\\x83' 'a\\\\\x83' `\xff` '\x83''b' '\xff\x83' 'x\xff\\'y'",
            SJIS,
            0,
            "'' '' 'a\\\\' `?` '?''b' '?' 'x?\\'y'",
        ),
        (b"'\x8f\xa1' \"\x8f\" '\x81\x8f'", UJIS, 0, "'' \"\" '?'"),
        (b"'\x81' '\\\x81'", SJIS, NO_BACKSLASH_ESCAPES, "'' '\\'"),
        (b"\"\x81\" '\x81'", SJIS, ANSI_QUOTES, "\"?\" ''"),
        (
            b"a[ INT, b] ENUM('a[','b\\\\c','d|''', \"q{\\\"\") /* ` */, {}[ INT",
            SWE7,
            0,
            "`a[` INT, `b]` ENUM('aÄ','bÖc','dö''', \"qä\"\"\") /* ` */, `{}[` INT",
        ),
        (b"`d@\\` CHAR DEFAULT 'x\\ny\\`', `b``c`, c\\ INT", SWE7, 0, "`dÉÖ` CHAR DEFAULT 'x\nyé', `béc`, `c\\` INT"),
        (b"'a\\' \"b[\" c^~", SWE7, NO_BACKSLASH_ESCAPES | ANSI_QUOTES, "'aÖ' \"bÄ\" `c^~`"),
        (b"'a\x81\x30' 'b\x81\x30\x81' '\xff' '\x81\x30x' '\x81\x30xyz'", GB18030, 0, "'a' 'b' '?' '' '?0xyz'"),
        (b"CREATE TABLE t (a INT)", SWE7, 0, "CREATE TABLE t (a INT)"),
        (b"'\x8f\xa1\xc0\xa1\xc0'", UJIS, 0, "'?\\\\'"),
        (f"CREATE TABLE `t` ({COLUMNS}".encode(), LATIN1, 0, f"CREATE TABLE `t` ({COLUMNS}"),
        (f"CREATE TABLE `t` ({COLUMNS}".encode("cp1252"), LATIN1, 0, f"CREATE TABLE `t` ({COLUMNS}"),
        ("CREATE TABLE t (`ä` INT)".encode(), LATIN1, 0, "CREATE TABLE t (`Ã¤` INT)"),
    ],
)
def test_statements_are_read_as_the_server_reads_them(
    data: bytes, collation: int, sql_mode: int, expected: str
) -> None:
    text = decode_statement(data, collation, sql_mode)
    assert text == expected
    text.encode()  # no lone surrogates
