"""Structures made of a binlog's statements are those of information_schema, whatever session wrote the statements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.server_structures import check_all, known
from kit.stream_structures import StructureStream
from kit.window_rig import connection

from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, Secret

KEY_ON = "SET SESSION sql_generate_invisible_primary_key = ON"
CASES: dict[str, tuple[str | bytes, ...]] = {
    "lengths that begin with a point, and rare names of types": (
        "CREATE TABLE t (a CHAR(.5), b FLOAT(.5), c NCHAR VARCHARACTER(9), d NATIONAL VARCHARACTER(9), e BINARY(1.))",
        "ALTER TABLE t ADD f VARCHAR(.9), MODIFY c NCHAR VARCHARACTER(8) FIRST, ADD g LONG VARCHARACTER",
        "INSERT INTO t (c) VALUES ('x')",
    ),
    "comments that are no text in the session's character set": (
        b"CREATE TABLE t (a INT COMMENT 'x\xc3', b INT COMMENT 'x\xe4y' COMMENT 'pre\xf0z', KEY k (a) COMMENT 'k\xff') "
        b"COMMENT 'f\xfcr'",
        b"ALTER TABLE t ADD c VARCHAR(9) DEFAULT 'd' COMMENT 'gr\xfc\xdfe', COMMENT = 'zur\xfcck'",
        b"CREATE TABLE p (a INT) PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (5) COMMENT = 'f\xfcr')",
        "INSERT INTO t (a) VALUES (1)",
    ),
    "letters of swe7 that are punctuation of ASCII": (
        "SET NAMES swe7",
        b"CREATE TABLE [x (a[ INT, b] ENUM('a[','b\\\\c','d|','`'), `q{` VARCHAR(9) DEFAULT '~^@' COMMENT 'it\\'s }', "
        b"{} INT)",
        b'ALTER TABLE [x ADD `d@\\` INT, ADD c\\ VARCHAR(9) DEFAULT \'x\\ny\\`\' COMMENT "q\\"[", DROP {}',
        b"ALTER TABLE [x ADD `b``c` INT, ADD m VARCHAR(9) DEFAULT _latin1'['",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'",
        b"CREATE TABLE \"]y\" (a INT DEFAULT 1, \"b[\" ENUM('\\','x'))",
    ),
    "literals that end within a character": (
        "SET NAMES sjis",
        b"CREATE TABLE s (e ENUM('\x83','b','\xff\x83c\x83','a\\\x83z') COMMENT 'x\x83', "
        b"v VARCHAR(9) COMMENT '\x83''b')",
        "SET NAMES ujis",
        b"CREATE TABLE u (e ENUM('a\x8f\xa1','b\x8f','c\x81\x8f'))",
        "SET NAMES gb18030",
        b"CREATE TABLE g (e ENUM('a\x81\x30','b\x81\x30\x81','c\xff','q\x81\x30x','q\x81\x30xyz'))",
        "SET NAMES big5",
        b"CREATE TABLE b (e ENUM('a\x81','b\xa1'))",
        "INSERT INTO b VALUES (1)",
    ),
    "an invisible key stays before new columns": (
        KEY_ON,
        "CREATE TABLE g (a INT, b VARCHAR(9))",
        "ALTER TABLE g ADD c BIGINT UNSIGNED NOT NULL DEFAULT 5 FIRST",
        "ALTER TABLE g CHANGE b b2 VARCHAR(20) FIRST",
        "ALTER TABLE g ADD d INT FIRST, MODIFY a INT FIRST, ADD e INT AFTER my_row_id",
        "INSERT INTO g (a) VALUES (1)",
        "SET SESSION sql_generate_invisible_primary_key = OFF",
        "ALTER TABLE g ADD f INT FIRST",
        "ALTER TABLE g ALTER my_row_id SET VISIBLE, ADD h INT FIRST",
        "ALTER TABLE g ADD i INT FIRST",
        "INSERT INTO g (a) VALUES (1)",
        "CREATE TABLE own (MY_ROW_ID BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY INVISIBLE, a INT)",
        "ALTER TABLE own ADD b INT FIRST",
        "CREATE TABLE second (a INT, my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY INVISIBLE)",
        "ALTER TABLE second ADD b INT FIRST",
        "CREATE TABLE two (my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE, a INT, "
        "PRIMARY KEY (my_row_id, a))",
        "ALTER TABLE two ADD b INT FIRST",
        "CREATE TABLE narrow (my_row_id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY INVISIBLE, a INT)",
        "ALTER TABLE narrow ADD b INT FIRST",
        "ALTER TABLE own DROP my_row_id, DROP PRIMARY KEY, ADD c INT PRIMARY KEY FIRST",
    ),
    "tables that the server writes out for a latin1 session": (
        "SET NAMES latin1",
        "CREATE TABLE src (id INT PRIMARY KEY, o ENUM('ä','b') DEFAULT 'ä' COMMENT '\\\\ ü')".encode("cp1252"),
        "INSERT INTO src VALUES (1,'ä'),(2,'b')".encode("cp1252"),
        "CREATE TABLE ct AS SELECT * FROM src",
        "CREATE TABLE `bestände` AS SELECT 1 AS `größe`".encode("cp1252"),
        "CREATE TEMPORARY TABLE tt (a ENUM('ä') DEFAULT 'ä')".encode("cp1252"),
        "CREATE TABLE lt LIKE tt",
        "SET sql_quote_show_create = OFF",
        "CREATE TABLE bare AS SELECT * FROM src",
        KEY_ON,
        "CREATE TABLE g (`größe` ENUM('ä') DEFAULT 'ä' COMMENT '\\\\ ü')".encode("cp1252"),
        "INSERT INTO g VALUES ('ä')".encode("cp1252"),
        "RENAME TABLE `bestände` TO `vorräte`".encode("cp1252"),
        "ALTER TABLE `vorräte` ADD `ß` INT".encode("cp1252"),
    ),
    "tables that the server writes out under other modes": (
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'",
        "CREATE TABLE src (id INT PRIMARY KEY, o ENUM('a\\','b') DEFAULT 'a\\' COMMENT '\\\\')",
        "INSERT INTO src VALUES (1,'a\\'),(2,'b')",
        "CREATE TABLE ct AS SELECT * FROM src",
        "CREATE TEMPORARY TABLE tt LIKE src",
        "CREATE TABLE lt LIKE tt",
        "CREATE TABLE lt2 LIKE src",
        KEY_ON,
        "CREATE TABLE g (o ENUM('a\\','b\\\\') DEFAULT 'a\\' COMMENT '\\\\')",
        "INSERT INTO g VALUES ('a\\')",
    ),
    "bytes without a character": (
        "SET NAMES latin1",
        b"CREATE TABLE h (id INT PRIMARY KEY, e ENUM('\x81\xe9','b'), s SET('\x8da','\x90b') DEFAULT '\x8da')",
        "INSERT INTO h VALUES (1,1,1)",
        "SET NAMES greek",
        b"CREATE TABLE u (id INT PRIMARY KEY, e ENUM('\xe1','\xff') CHARACTER SET greek, `\xe1` INT)",
        "INSERT INTO u VALUES (1,1,1)",
    ),
    "old character sets": (
        "SET NAMES dec8",
        b"CREATE TABLE d (id INT PRIMARY KEY, e ENUM('\xd7\xe4') DEFAULT '\xd7\xe4', `\xf7` INT COMMENT '\xd7')",
        "INSERT INTO d VALUES (1,1,1)",
        "SET NAMES keybcs2",
        b"CREATE TABLE k (id INT PRIMARY KEY, e ENUM('\x81\x87') DEFAULT '\x81\x87', `\x83` INT COMMENT '\x89')",
        "SET NAMES geostd8",
        b"CREATE TABLE o (id INT PRIMARY KEY, e ENUM('\xc0\xc1') DEFAULT '\xc0\xc1', `\xc2` INT COMMENT '\xc3')",
        "SET NAMES armscii8",
        b"CREATE TABLE a (id INT PRIMARY KEY, e ENUM('\xb2\xb3') DEFAULT '\xb2\xb3', `\xb4` INT COMMENT '\xb5')",
        "SET NAMES hp8",
        b"CREATE TABLE h (id INT PRIMARY KEY, e ENUM('\xa1\xc0') DEFAULT '\xa1\xc0', `\xc1` INT COMMENT '\xc5')",
        "SET NAMES macce",
        b"CREATE TABLE m (id INT PRIMARY KEY, e ENUM('\x81\x82') DEFAULT '\x81\x82', `\x83` INT COMMENT '\x84')",
    ),
    "characters that end with a backslash or a quote": (
        "SET NAMES sjis",
        "CREATE TABLE s (id INT PRIMARY KEY, e ENUM('表','ソ') DEFAULT '表', `能` INT COMMENT '表')".encode(
            "shift_jis"
        ),
        "INSERT INTO s VALUES (1,2,1)",
        "SET NAMES gbk",
        b"CREATE TABLE g (id INT PRIMARY KEY, e ENUM('\x81\x5c','\x81\x60') DEFAULT '\x81\x5c', `\x81\x7c` INT)",
        "SET NAMES big5",
        "CREATE TABLE b (id INT PRIMARY KEY, e ENUM('功','許') DEFAULT '功', `蓋` INT COMMENT '功')".encode("big5"),
        "SET NAMES cp932",
        "CREATE TABLE c (id INT PRIMARY KEY, e ENUM('ソ','①') DEFAULT '①', `能` INT COMMENT '表')".encode("cp932"),
    ),
    "letters that become a quote or a backslash": (
        "SET NAMES armscii8",
        b"CREATE TABLE a (id INT PRIMARY KEY, e ENUM('\xff','b\xff','c\\\xff') DEFAULT 'b\xff', "
        b"v VARCHAR(9) DEFAULT \"x\xff\", `\xff` INT COMMENT '\xff\xa4') COMMENT '\xff' /* \xff */",
        b"INSERT INTO a (id) VALUES (1)",
        "SET NAMES sjis",
        b"CREATE TABLE s (id INT PRIMARY KEY, e ENUM('\x81_','b\x81_','c\\\x81_') DEFAULT '\x81_', "
        b"`\x81_` INT COMMENT '\x81_', a\x81_b INT)",
        b"INSERT INTO s (id) VALUES (1)",
        "SET NAMES ujis",
        b"CREATE TABLE u (id INT PRIMARY KEY, e ENUM('\xa1\xc0','\x8f\xa1\xc0\xa1\xc0') DEFAULT '\xa1\xc0', c INT)",
        b"INSERT INTO u (id) VALUES (1)",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'",
        b"CREATE TABLE n (id INT PRIMARY KEY, \"\xa1\xc0\" ENUM('\xa1\xc0','b') DEFAULT '\xa1\xc0', c INT)",
        b"INSERT INTO n (id) VALUES (1)",
    ),
    "a session of bytes": (
        "SET NAMES binary",
        "CREATE TABLE `tä` (id INT PRIMARY KEY, e ENUM('ä','b') DEFAULT 'ä', v VARBINARY(9) DEFAULT 'ä') COMMENT 'ü'",
        "INSERT INTO `tä` VALUES (1,2,'x')",
        b"CREATE TABLE l (id INT PRIMARY KEY, e ENUM('\xe4','b') CHARACTER SET latin1 DEFAULT '\xe4', n INT)",
        "INSERT INTO l VALUES (1,1,1)",
        "CREATE TABLE u (id INT PRIMARY KEY, e ENUM('ä','b') CHARACTER SET latin1 DEFAULT 'ä')",
        "INSERT INTO u VALUES (1,1)",
        b"CREATE TABLE w (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET ucs2 DEFAULT '\x00\xe4')",
        "SET character_set_connection = latin1",
        "CREATE TABLE x (id INT PRIMARY KEY, e ENUM('ä','b'), v VARCHAR(9) DEFAULT 'ä', w VARBINARY(9) DEFAULT 'ä')",
        "INSERT INTO x (id, e) VALUES (1, 1)",
    ),
    "a connection with fewer characters than its client": (
        "SET character_set_connection = latin1",
        "CREATE TABLE `語` (id INT PRIMARY KEY, e ENUM('ä','語b') DEFAULT '語b', v VARCHAR(9) DEFAULT 'a語ü' "
        "COMMENT '語')",
        "INSERT INTO `語` VALUES (1,1,'x')",
        "SET NAMES latin1, character_set_connection = utf8mb4",
        "CREATE TABLE l (id INT PRIMARY KEY, e ENUM('ä') DEFAULT 'ä')".encode("cp1252"),
        "SET NAMES utf8mb4, character_set_connection = binary",
        "CREATE TABLE b (id INT PRIMARY KEY, e ENUM('ä') CHARACTER SET latin1, f ENUM('ä'))",
        "INSERT INTO b VALUES (1,1,1)",
    ),
    "literals with a character set of their own": (
        "CREATE TABLE i (id INT PRIMARY KEY, e ENUM(X'C3A4', b'01100011', 0x62) DEFAULT X'C3A4')",
        "CREATE TABLE j (id INT PRIMARY KEY, v VARCHAR(9) DEFAULT _latin1'ä', w VARCHAR(9) DEFAULT _latin1 X'E4', "
        "x VARCHAR(9) CHARACTER SET latin1 DEFAULT _utf8mb4'ä', y VARCHAR(9) DEFAULT _cp1251 0xE4)",
        "INSERT INTO j (id) VALUES (1)",
        b"CREATE TABLE k (i INT PRIMARY KEY, v VARCHAR(9) DEFAULT _latin1'\xe4', w VARBINARY(9) DEFAULT _binary'\xe4')",
        "SET NAMES latin1",
        "CREATE TABLE m (id INT PRIMARY KEY, e VARCHAR(9) DEFAULT _utf8mb4'ä', v VARBINARY(9) DEFAULT 'ä')",
        b"CREATE TABLE n (id INT PRIMARY KEY, v VARBINARY(9) DEFAULT '\xe4', w VARCHAR(9) DEFAULT N'\xc3\xa4')",
    ),
    "a table after a view of its name": (
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE VIEW v AS SELECT * FROM t",
        "CREATE VIEW w AS SELECT * FROM t",
        "CREATE VIEW x AS SELECT * FROM t",
        "CREATE TABLE IF NOT EXISTS v (id INT PRIMARY KEY, debit INT, credit INT)",
        "CREATE TABLE IF NOT EXISTS w (id INT PRIMARY KEY, debit INT, credit INT)",
        "CREATE TABLE IF NOT EXISTS x LIKE t",
        "RENAME TABLE v TO v2",
        "RENAME TABLE v2 TO v",
        "DROP VIEW v, w",
        "DROP VIEW IF EXISTS x, t",
        "CREATE TABLE IF NOT EXISTS v (id INT PRIMARY KEY, credit INT, debit INT)",
        "CREATE TABLE IF NOT EXISTS v (id INT PRIMARY KEY)",
        "CREATE TABLE IF NOT EXISTS w (id INT PRIMARY KEY, credit INT, debit INT) ENGINE=MyISAM",
        "CREATE TABLE IF NOT EXISTS x (id INT PRIMARY KEY, v INT)",
        "INSERT INTO v (id, debit, credit) VALUES (1, 100, 7)",
        "INSERT INTO w (id, debit, credit) VALUES (1, 100, 7)",
        "INSERT INTO x VALUES (1, 2)",
    ),
    "auto-increment columns that may be NULL": (
        "CREATE TABLE s (id SERIAL NULL, v INT)",
        "INSERT INTO s VALUES (NULL, 1), (5, 2)",
        "CREATE TABLE u (a INT(7) ZEROFILL AUTO_INCREMENT NULL UNIQUE COMMENT 'AUTO_INCREMENT')",
        "CREATE TABLE n (a BIGINT NULL SERIAL DEFAULT VALUE COMMENT 'x')",
        "CREATE TEMPORARY TABLE t LIKE s",
        "CREATE TABLE l LIKE t",
        "INSERT INTO l VALUES (NULL, 1)",
    ),
    "words and lengths that are rarely written": (
        "CREATE TABLE t (id INT PRIMARY KEY, y SQL_TSI_YEAR(4), d DECIMAL(19.5), v VARCHAR(9.), f FLOAT(7.9))",
        "INSERT INTO t VALUES (1, 2020, 1, 'x', 2)",
        "CREATE TABLE n (a TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP( /* c */ 3) ON UPDATE NOW( -- x\n 3 ), "
        "b DATETIME(2) DEFAULT LOCALTIME(2 /*!80000 */), c TIMESTAMP DEFAULT NOW(/**/), d DATETIME DEFAULT NOW(0))",
    ),
    "defaults that the server writes otherwise": (
        "SET sql_mode = ''",
        "CREATE TABLE e (a TEXT DEFAULT '', b BLOB DEFAULT '', c LONGTEXT NOT NULL DEFAULT '', d TEXT DEFAULT \"\")",
        "INSERT INTO e (c) VALUES ('')",
        "CREATE TABLE y (a DATE DEFAULT '70-01-02', b DATETIME DEFAULT '69-01-02 03:04:05', c YEAR DEFAULT '70', "
        "d YEAR DEFAULT 69, e YEAR DEFAULT 0, f YEAR DEFAULT '0', g YEAR DEFAULT 1, l YEAR DEFAULT '2030', "
        "m TIMESTAMP DEFAULT '99-01-02 03:04:05', n DATE DEFAULT 0, o DATE DEFAULT '2001-02-03', p YEAR DEFAULT '00')",
        "ALTER TABLE y ALTER a SET DEFAULT '10-11-12', ALTER d SET DEFAULT 70",
    ),
    "members keep their bytes when the table is converted": (
        "CREATE TABLE c (id INT PRIMARY KEY, e ENUM('ä','b'), s SET('ö','x')) CHARACTER SET utf8mb4",
        "ALTER TABLE c CONVERT TO CHARACTER SET latin1",
        "INSERT INTO c VALUES (1, 1, 1)",
        "ALTER TABLE c CONVERT TO CHARACTER SET utf8mb4",
        "INSERT INTO c VALUES (2, 1, 1)",
    ),
    "a table is converted by the statement that defines columns": (
        "SET sql_mode = ''",
        "CREATE TABLE c (id INT PRIMARY KEY, a VARCHAR(9), b TEXT, c TEXT, d VARCHAR(200), e DECIMAL(64), "
        "f VARCHAR(30000) CHARSET gbk) CHARSET latin1",
        "ALTER TABLE c ADD h VARCHAR(9) CHARSET latin1, MODIFY a VARCHAR(20) CHARSET latin1, MODIFY b TEXT, "
        "CONVERT TO CHARACTER SET utf8mb4, CHANGE c c2 TINYTEXT COLLATE latin1_bin, ADD i CHAR(3) COLLATE latin1_bin, "
        "ADD j TEXT CHARSET latin1, ADD k CHAR(3) BINARY, ADD l VARCHAR(9) CHARSET binary, ADD m ENUM('ä') ASCII",
        "INSERT INTO c VALUES (1,'é','ü','ö','d',1,'f','h','i','j','k','l','ä')",
        "ALTER TABLE c MODIFY d MEDIUMTEXT, MODIFY e LONG, MODIFY h BLOB, CONVERT TO CHARACTER SET utf8mb3, "
        "COLLATE utf8mb3_bin",
        "ALTER TABLE c ADD n CHAR(1)",
        "INSERT INTO c (id, a) VALUES (2,'é')",
        "ALTER TABLE c MODIFY d TEXT, MODIFY m VARCHAR(9) CHARSET utf8mb4, CONVERT TO CHARACTER SET binary",
        "INSERT INTO c (id, a) VALUES (3,'é')",
    ),
    "members that are no text in their character set": (
        "CREATE TABLE c (id INT PRIMARY KEY, e ENUM('x','aü','béèb','éy'), s SET('é','y')) CHARACTER SET latin1",
        "ALTER TABLE c CONVERT TO CHARACTER SET utf8mb4",
        "INSERT INTO c VALUES (1, 2, 1)",
        "CREATE TABLE k (id INT PRIMARY KEY, e ENUM('Жя','яЖ','Ж'), s SET('ЖЖ','я')) CHARACTER SET koi8r",
        "ALTER TABLE k CONVERT TO CHARACTER SET utf16",
        "INSERT INTO k VALUES (1, 1, 1)",
        "SET NAMES ascii",
        b"CREATE TABLE a (id INT PRIMARY KEY, e ENUM('\xc1\xc2','b') CHARACTER SET ascii)",
        "INSERT INTO a VALUES (1, 1)",
        "SET NAMES binary",
        b"CREATE TABLE b (id INT PRIMARY KEY, e ENUM('\xff','b'), s SET('x\xc3','\xe4\xe4b'))",
        "INSERT INTO b VALUES (1, 1, 1)",
        "SET NAMES utf8mb4",
        b"CREATE TABLE u (id INT PRIMARY KEY, e ENUM('x\xc3','b'))",
        "INSERT INTO u VALUES (1, 1)",
    ),
    "clauses that stand apart": (
        "CREATE TABLE t (a INT)",
        "ALTER TABLE t COLLATE utf8mb4_bin, ADD b CHAR(1), CHARSET utf8mb4, COMMENT 'c', RENAME TO x, RENAME TO y",
        "CREATE TABLE e (id INT PRIMARY KEY, s SET('a ','ä') CHARACTER SET binary)",
        "INSERT INTO e VALUES (1, 1)",
    ),
    "what only Python takes for space, case and digits": (
        "CREATE TABLE t (id INT PRIMARY KEY, \u3000 INT)",
        "ALTER TABLE t ADD \u00a0price INT DEFAULT 5",
        "INSERT INTO t (id) VALUES (2)",
        "ALTER TABLE t ADD ındex INT, ADD \u2028ſet INT, ADD coﬂumn INT, ADD \u0660 INT",
        "ALTER TABLE t ADD ẞ INT, ADD ß INT, ADD Ω INT, ADD ΣΣ INT",
        "ALTER TABLE t DROP ß, RENAME COLUMN ω TO o, RENAME COLUMN σσ TO İ",
        "ALTER TABLE t RENAME COLUMN i TO K",
        "ALTER TABLE t RENAME COLUMN k TO ı, ADD i INT",
        "INSERT INTO t (id) VALUES (3)",
        "SET NAMES latin1",
        b"ALTER\xa0TABLE\xa0t\xa0ADD\xa0x\xa0INT,ADD`\xa0y`\xa0INT\xa0COMMENT'\xa0'",
        "SET NAMES cp852",
        b"ALTER\xffTABLE\xfft\xffADD\xffz\xffINT",
    ),
    "names and comments have no characters beyond U+FFFF": (
        "SET sql_mode = ''",
        "CREATE TABLE `t😀` (id INT PRIMARY KEY, `a😀b` ENUM('😀','😡','ok') DEFAULT '😡' COMMENT 'c😀') COMMENT 'd😀'",
        "INSERT INTO `t😀` VALUES (1,2)",
        "ALTER TABLE `t😀` RENAME TO u😀, ADD s SET('🍕','🍺','x') DEFAULT '🍕,x', RENAME COLUMN `a😀b` TO `c😀`",
        "CREATE TABLE `u??` (id INT PRIMARY KEY)",
        "DROP TABLE `u😀😀`",
    ),
}


@pytest.fixture(params=["MINIMAL", "FULL"])
def row_metadata(request: pytest.FixtureRequest, root: Any) -> Iterator[str]:
    with root.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.binlog_row_metadata")
        before = cursor.fetchone()[0]
        cursor.execute(f"SET GLOBAL binlog_row_metadata = {request.param}")
        yield request.param
        cursor.execute(f"SET GLOBAL binlog_row_metadata = {before}")


@pytest.fixture
def session(stack: Any, database: str) -> Iterator[Any]:
    """Return a session of the test's database, whose settings a test may change."""
    conn = connection(stack, database)
    yield conn
    conn.close()


@pytest.fixture
def stream(stack: Any, root: Any, database: str) -> StructureStream:
    settings = ConnectionSettings(stack.mysql_host, stack.mysql_port, stack.cdc_user, Secret(stack.cdc_password))
    with root.cursor() as cursor:
        state = known(cursor, database)
    return StructureStream(settings, root, (database,), state)


@pytest.mark.req("SCH-01")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.exhaustive(but="^MINIMAL")
def test_the_structures_are_those_of_the_server(
    name: str, stream: StructureStream, session: Any, root: Any, database: str, row_metadata: str
) -> None:
    with session.cursor() as cursor:
        for statement in CASES[name]:
            cursor.execute(statement)
    with root.cursor() as cursor:
        check_all(cursor, stream.follow(), database, name)
