"""Every statement runs on a real server too; afterwards our structures and the server's must be the same."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply, parse_create
from airflow_provider_mysql_cdc.cdc.ddl.collations import BY_NAME, COLLATIONS, MAX_BYTES
from airflow_provider_mysql_cdc.cdc.ddl.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, REAL_AS_FLOAT
from airflow_provider_mysql_cdc.cdc.ddl.state import DbDefaults, DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId

MODES = {"ANSI_QUOTES": ANSI_QUOTES, "NO_BACKSLASH_ESCAPES": NO_BACKSLASH_ESCAPES, "REAL_AS_FLOAT": REAL_AS_FLOAT}
INTEGERS = {"TINYINT": (4, 3), "SMALLINT": (6, 5), "MEDIUMINT": (9, 8), "INT": (11, 10), "BIGINT": (20, 20)}
NUMBERS = {*INTEGERS, "DECIMAL", "FLOAT", "DOUBLE", "YEAR"}
ONE = {"BIT", "CHAR", "BINARY"}

CORPUS: dict[str, str] = {}


def case(name: str, text: str) -> None:
    CORPUS[name] = text


case(
    "integers and their synonyms",
    """
    CREATE TABLE t (id INTEGER UNSIGNED AUTO_INCREMENT PRIMARY KEY, a INT1, b INT2, c INT3, d INT4, e INT8, f MIDDLEINT,
      g BOOL, h BOOLEAN NOT NULL, i TINYINT(1), j TINYINT(1) UNSIGNED, k INT(5) ZEROFILL, l SMALLINT ZEROFILL, m BIGINT SIGNED,
      n MEDIUMINT UNSIGNED NOT NULL DEFAULT 5, o TINYINT ZEROFILL, p MEDIUMINT ZEROFILL, q BIGINT ZEROFILL);
    CREATE TABLE s (id SERIAL PRIMARY KEY, v INT);
    CREATE TABLE s2 (a INT UNIQUE, c SERIAL, b BIGINT UNSIGNED PRIMARY KEY);
    CREATE TABLE s3 (a INT PRIMARY KEY, n INT SERIAL DEFAULT VALUE);
    CREATE TABLE s4 (a INT NULL AUTO_INCREMENT UNIQUE);
    """,
)
case(
    "fractions",
    """
    CREATE TABLE t (a DEC, b DEC(5), c NUMERIC(18,9), d FIXED(9,3) UNSIGNED, e FLOAT, f FLOAT(7,2), g FLOAT(24), h FLOAT(25),
      i FLOAT(53), j DOUBLE PRECISION, k DOUBLE(20,4) ZEROFILL, l REAL, m FLOAT4, n FLOAT8, o FLOAT UNSIGNED, p DECIMAL(8,2) ZEROFILL,
      q REAL(8,2), r DOUBLE PRECISION (9,3) UNSIGNED, s FLOAT(0), u DECIMAL(0));
    SET sql_mode='REAL_AS_FLOAT';
    CREATE TABLE u (l REAL, q REAL(8,2));
    SET sql_mode='';
    """,
)
case(
    "time types",
    """
    SET sql_mode='';
    CREATE TABLE t (a DATE, b TIME, c TIME(3), d DATETIME, e DATETIME(6), f TIMESTAMP, g TIMESTAMP(2) NULL, h YEAR, i YEAR(4), j TIME(0),
      k DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, l TIMESTAMP(3) NOT NULL DEFAULT NOW(3) ON UPDATE LOCALTIMESTAMP(3),
      m DATETIME(0) DEFAULT LOCALTIME, n TIMESTAMP DEFAULT '2020-01-01 00:00:00', o DATE DEFAULT '0000-00-00', p TIME DEFAULT '12:34:56',
      q YEAR DEFAULT 1999, r DATE DEFAULT '2020-02-02', s DATETIME(3) DEFAULT '2020-02-02 01:02:03', u DATETIME DEFAULT NOW());
    """,
)
case(
    "implicit timestamps when explicit_defaults_for_timestamp is off",
    """
    SET sql_mode='', explicit_defaults_for_timestamp=OFF;
    CREATE TABLE a (id INT PRIMARY KEY, t1 TIMESTAMP, t2 TIMESTAMP, t3 TIMESTAMP NULL);
    CREATE TABLE b (id INT PRIMARY KEY, t1 TIMESTAMP NULL, t2 TIMESTAMP(3), t3 TIMESTAMP DEFAULT 0);
    CREATE TABLE c (t1 TIMESTAMP DEFAULT '2020-01-01 00:00:00', t2 TIMESTAMP NOT NULL, t3 TIMESTAMP ON UPDATE NOW());
    CREATE TABLE d (t1 TIMESTAMP(3), t2 TIMESTAMP NULL DEFAULT NULL, t3 TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP);
    CREATE TABLE e (t1 TIMESTAMP ON UPDATE NOW());
    ALTER TABLE a ADD COLUMN t4 TIMESTAMP, ADD COLUMN t5 TIMESTAMP;
    ALTER TABLE a MODIFY t3 TIMESTAMP, ADD t6 TIMESTAMP NOT NULL;
    ALTER TABLE d ALTER t1 DROP DEFAULT;
    CREATE TABLE g (t1 TIMESTAMP DEFAULT '2020-01-01 00:00:00', t2 TIMESTAMP);
    ALTER TABLE g ALTER t1 DROP DEFAULT;
    ALTER TABLE g ADD x INT;
    ALTER TABLE g ADD t0 TIMESTAMP FIRST, ADD t9 TIMESTAMP;
    ALTER TABLE g MODIFY t1 TIMESTAMP;
    SET explicit_defaults_for_timestamp=ON;
    CREATE TABLE f (t1 TIMESTAMP, t2 TIMESTAMP NOT NULL);
    """,
)
case(
    "character types and where their character set comes from",
    """
    CREATE TABLE t (a CHAR, b CHARACTER(10), c CHAR VARYING(5), d CHARACTER VARYING(7), e VARCHARACTER(8), f NCHAR(5), g NATIONAL CHAR(4),
      h NATIONAL CHARACTER(3), i NVARCHAR(20), j NATIONAL VARCHAR(21), k NCHAR VARYING(22), l NATIONAL CHARACTER VARYING(9), m LONG,
      n LONG VARCHAR, o LONG CHAR VARYING, p LONG VARBINARY, q TINYTEXT, r TEXT, s MEDIUMTEXT, u LONGTEXT, v CHAR(5) BINARY,
      w VARCHAR(5) CHARACTER SET latin1 BINARY, x VARCHAR(5) ASCII, y VARCHAR(5) UNICODE, z CHAR(5) BYTE, aa VARCHAR(9) CHARSET binary,
      bb TEXT CHARSET binary, cc TEXT BYTE, dd VARCHAR(5) COLLATE latin1_bin, ee CHAR(3) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin,
      ff ENUM('a','b') CHARACTER SET latin1, gg SET('x','y') COLLATE utf8mb4_bin, hh ENUM('a') CHARSET binary, ii CHAR(5) CHARSET 'latin1',
      jj NCHAR VARCHAR(2), kk NATIONAL VARCHARACTER(2), ll VARCHAR(3) CHAR SET latin1, mm CHAR(0), nn VARCHAR(0)) CHARACTER SET utf8mb4;
    CREATE TABLE u (a CHAR(2), b VARCHAR(3) CHARACTER SET latin1) DEFAULT CHARSET=latin2;
    CREATE TABLE v (a CHAR(2)) COLLATE utf8mb4_general_ci;
    CREATE TABLE w (a CHAR(2), b CHAR(3) BINARY) CHARACTER SET = latin1 COLLATE = latin1_german1_ci;
    CREATE TABLE x (a CHAR(2), b TEXT, c ENUM('a')) CHARSET binary;
    CREATE TABLE z (a JSON, b GEOMETRY, c POINT NOT NULL SRID 4326, d GEOMCOLLECTION, e GEOMETRYCOLLECTION, f VECTOR, g VECTOR(3),
      h MULTIPOINT, i MULTILINESTRING, j MULTIPOLYGON, k LINESTRING, l POLYGON, SPATIAL KEY (c));
    """,
)
case(
    "TEXT and BLOB with a length",
    """
    SET sql_mode='';
    CREATE TABLE t (a TEXT(10), b TEXT(63), c TEXT(64), d TEXT(255), e TEXT(256), f TEXT(16383), g TEXT(16384), h TEXT(65535), i TEXT(70000),
      j TEXT(5000000), k BLOB(10), l BLOB(255), m BLOB(256), n BLOB(65535), o BLOB(65536), p BLOB(20000000), q TEXT(200) CHARSET latin1,
      r TEXT(70000) CHARSET latin1, s TEXT(255) CHARSET binary) CHARSET utf8mb4;
    CREATE TABLE u (a VARCHAR(20000), b VARBINARY(70000), c VARCHAR(66000) CHARSET latin1) CHARSET utf8mb4;
    """,
)
case(
    "defaults",
    r"""
    SET sql_mode='';
    CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, ti TINYINT DEFAULT -5, tp INT DEFAULT +5, i INT DEFAULT '17', b BOOL DEFAULT TRUE,
      bf BOOL NOT NULL DEFAULT FALSE, bt BIT DEFAULT b'1', bt1 BIT(10) DEFAULT b'1010', bt2 BIT(8) DEFAULT 5, bt3 BIT(8) DEFAULT x'0F', bt4 BIT(8) DEFAULT 0b11,
      f FLOAT DEFAULT 1.5, d DOUBLE DEFAULT 1e3, de DECIMAL(10,2) DEFAULT .5, hx INT DEFAULT 0x10, bx INT DEFAULT b'101',
      v VARCHAR(20) NOT NULL DEFAULT 'it''s', v1 VARCHAR(20) DEFAULT 'a\'b\\c\n', v2 VARCHAR(20) DEFAULT "dq""x", v3 VARCHAR(20) DEFAULT x'4142',
      v4 VARCHAR(20) DEFAULT _utf8mb4'xy', v5 VARCHAR(20) DEFAULT N'nn', v6 VARCHAR(20) DEFAULT 'a' 'b', v7 VARCHAR(9) DEFAULT _latin1 x'41', v8 VARCHAR(9) DEFAULT '',
      bn BINARY(3) DEFAULT 'abc', vb VARBINARY(5) DEFAULT X'00FF', vc VARBINARY(5) DEFAULT 0x4142, e ENUM('a','b') DEFAULT 'b',
      s SET('a','b','c') DEFAULT 'a,c', j JSON DEFAULT (JSON_OBJECT('k', 1)), x INT DEFAULT (1 + (2)), u CHAR(36) DEFAULT (UUID()),
      tx TEXT DEFAULT ('abc'), nn INT NOT NULL, nl INT NULL DEFAULT NULL, tn TEXT, jn JSON NOT NULL, da DATE DEFAULT (CURRENT_DATE), vn VARCHAR(5) DEFAULT 12);
    ALTER TABLE t ALTER COLUMN i SET DEFAULT 55, ALTER nl SET DEFAULT (1 + 1), ALTER ti DROP DEFAULT, ALTER v SET DEFAULT 'new';
    ALTER TABLE t ALTER COLUMN nl SET DEFAULT NULL;
    """,
)
case(
    "enum and set members",
    r"""
    SET sql_mode='';
    CREATE TABLE t (a ENUM('x,y','it''s','','ünï','sp ace ',"dq",'back\\slash') , b SET('one','two words ',x'4142'), c ENUM('中','文') CHARSET gbk,
      d ENUM('q', 'r'), e ENUM('a)','b(','c,d'));
    ALTER TABLE t MODIFY d ENUM('q','r','s') NOT NULL DEFAULT 's', MODIFY b SET('one','two words','AB','more');
    """,
)
case(
    "attributes of all kinds",
    """
    CREATE TABLE p (id INT PRIMARY KEY, x INT, UNIQUE (x));
    CREATE TABLE t (id INT NOT NULL COMMENT 'the ''pk''' COLUMN_FORMAT FIXED STORAGE DISK, a INT INVISIBLE DEFAULT 3, b INT VISIBLE,
      c INT GENERATED ALWAYS AS (id * (2)) VIRTUAL NULL COMMENT 'g', d INT AS (id + 1) STORED NOT NULL, e VARCHAR(10) AS (CONCAT('x', a)),
      f INT CHECK (f > 0), g INT CONSTRAINT gg CHECK (g > 0) NOT ENFORCED, h INT REFERENCES p(id) ON DELETE CASCADE ON UPDATE SET NULL,
      i INT SECONDARY_ENGINE_ATTRIBUTE '{}' , j INT COMMENT '', k INT UNIQUE COMMENT 'after' KEY,
      CONSTRAINT ck CHECK (id > 0), CHECK (a <> 5)) ENGINE=InnoDB AUTO_INCREMENT=7 COMMENT='t,(able' ROW_FORMAT=DYNAMIC STATS_PERSISTENT=1;
    ALTER TABLE t ALTER COLUMN a SET VISIBLE, ALTER b SET INVISIBLE, ALTER CHECK ck NOT ENFORCED, ALTER INDEX k INVISIBLE;
    ALTER TABLE t COMMENT '', ALTER INDEX k VISIBLE, DROP CHECK ck;
    """,
)
case(
    "keys and the names the server gives them",
    """
    CREATE TABLE p (id INT, x INT, PRIMARY KEY USING BTREE (id DESC) COMMENT 'pk', CONSTRAINT cx UNIQUE ux (x));
    CREATE TABLE t (a INT, b INT NOT NULL, c VARCHAR(20), d TEXT, e INT UNIQUE, f INT UNIQUE KEY, g INT, KEY (a), UNIQUE (a), UNIQUE KEY (b, a),
      UNIQUE INDEX named (c(10)), INDEX i1 USING BTREE (c) KEY_BLOCK_SIZE=4, FULLTEXT KEY ft (c, d) WITH PARSER ngram, CONSTRAINT sym UNIQUE (g), UNIQUE ((a + b)),
      KEY ((a + 1)), UNIQUE fx ((CAST(a AS CHAR(5))), b), PRIMARY KEY (b, a), UNIQUE full (c(20)));
    ALTER TABLE t ADD UNIQUE (c), ADD INDEX (c), ADD UNIQUE u2 USING HASH (g) COMMENT 'x' INVISIBLE;
    ALTER TABLE t DROP INDEX c, DROP KEY a_2, RENAME INDEX u2 TO u3;
    ALTER TABLE t DROP PRIMARY KEY;
    ALTER TABLE t ADD CONSTRAINT pk PRIMARY KEY (a), DROP CONSTRAINT sym;
    CREATE UNIQUE INDEX ci ON t (g, b) COMMENT 'c' ALGORITHM=INPLACE LOCK=NONE;
    CREATE INDEX cj USING BTREE ON t (g);
    CREATE FULLTEXT INDEX ck ON t (c);
    DROP INDEX ci ON t ALGORITHM DEFAULT;
    DROP INDEX `PRIMARY` ON t;
    ALTER TABLE t DROP KEY functional_index, DROP KEY functional_index_2, DROP KEY fx;
    ALTER TABLE t DROP COLUMN a;
    ALTER TABLE t CHANGE b bb BIGINT NOT NULL, RENAME COLUMN g TO gg;
    """,
)
case(
    "foreign keys and the indexes they bring",
    """
    CREATE TABLE p (id INT PRIMARY KEY, x INT, y INT, UNIQUE KEY (x, y));
    CREATE TABLE c1 (id INT PRIMARY KEY, pid INT, FOREIGN KEY (pid) REFERENCES p(id));
    CREATE TABLE c2 (id INT PRIMARY KEY, pid INT, CONSTRAINT fkc FOREIGN KEY (pid) REFERENCES p (id) MATCH SIMPLE ON DELETE NO ACTION);
    CREATE TABLE c3 (id INT PRIMARY KEY, pid INT, FOREIGN KEY idx (pid) REFERENCES p(id), KEY other (pid, id));
    CREATE TABLE c4 (id INT PRIMARY KEY, pid INT, a INT, b INT, FOREIGN KEY (a, b) REFERENCES p(x, y), FOREIGN KEY (a) REFERENCES p(id));
    ALTER TABLE c1 ADD UNIQUE (pid);
    ALTER TABLE c2 ADD KEY (pid), DROP FOREIGN KEY fkc;
    ALTER TABLE c2 ADD CONSTRAINT fk2 FOREIGN KEY (pid) REFERENCES p(id) ON UPDATE CASCADE;
    ALTER TABLE c2 ADD UNIQUE (pid);
    CREATE TABLE c5 LIKE c4;
    ALTER TABLE c5 ADD UNIQUE (a);
    """,
)
case(
    "where columns go",
    """
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(10), c INT);
    ALTER TABLE t ADD COLUMN f0 INT FIRST, ADD COLUMN after_a VARCHAR(5) DEFAULT 'x' AFTER a;
    ALTER TABLE t ADD (m1 INT, m2 TIMESTAMP(3) NULL DEFAULT CURRENT_TIMESTAMP(3), KEY (m1), CHECK (m1 > 1));
    ALTER TABLE t DROP COLUMN f0, DROP after_a;
    ALTER TABLE t MODIFY c BIGINT FIRST, MODIFY a INT AFTER m1, ADD z INT AFTER a;
    ALTER TABLE t CHANGE COLUMN b bb VARCHAR(50) NULL AFTER z, CHANGE c c2 INT;
    ALTER TABLE t RENAME COLUMN a TO z, RENAME COLUMN z TO a;
    ALTER TABLE t ADD n1 INT AFTER a, ADD n2 INT AFTER n1, ADD n3 INT FIRST, ADD n4 INT FIRST;
    ALTER TABLE t RENAME COLUMN n1 TO o1, ADD p1 INT AFTER o1;
    ALTER TABLE t DROP n2, ADD n2 VARCHAR(3) AFTER n4;
    ALTER TABLE t CHANGE o1 n1 INT AFTER n4, MODIFY n3 INT AFTER n1;
    ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, n1);
    ALTER TABLE t ADD COLUMN auto BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE, ALGORITHM=COPY, LOCK=SHARED;
    ALTER TABLE t ADD ins INT DEFAULT 9, ALGORITHM=INSTANT;
    ALTER TABLE t ORDER BY n1 DESC, id;
    ALTER TABLE t ENGINE=InnoDB, COMMENT 'x' AUTO_INCREMENT=50 ROW_FORMAT DYNAMIC, ADD last INT;
    ALTER TABLE t RENAME t2, ADD more INT;
    ALTER TABLE t2 RENAME AS t3;
    ALTER TABLE t3 RENAME TO t4, DROP more;
    ALTER TABLE t4 MODIFY COLUMN id BIGINT, MODIFY n1 INT COMMENT 'still in the key';
    """,
)
case(
    "character sets of tables that change",
    """
    CREATE TABLE t (id INT PRIMARY KEY, a CHAR(5), b VARCHAR(10), c TINYTEXT, d TEXT, e MEDIUMTEXT, f LONGTEXT, g ENUM('x'), h SET('y'), i BINARY(3),
      j BLOB, k VARCHAR(5) CHARSET ascii, l VARCHAR(12000), m JSON, n TEXT CHARSET utf8mb4) CHARSET latin1;
    ALTER TABLE t DEFAULT CHARACTER SET gbk;
    ALTER TABLE t ADD COLUMN o VARCHAR(10);
    ALTER TABLE t ADD COLUMN p VARCHAR(10), CHARSET latin2, ADD q VARCHAR(3);
    ALTER TABLE t MODIFY b VARCHAR(11);
    ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    ALTER TABLE t ADD r VARCHAR(3), CONVERT TO CHARACTER SET latin1, MODIFY a CHAR(6);
    ALTER TABLE t COLLATE latin1_bin;
    ALTER TABLE t ADD s TEXT;
    ALTER TABLE t CONVERT TO CHARACTER SET utf8mb3;
    ALTER TABLE t CONVERT TO CHARSET utf8mb4;
    ALTER TABLE t CONVERT TO CHARSET DEFAULT;
    ALTER TABLE t CONVERT TO CHARACTER SET binary;
    ALTER TABLE t CONVERT TO CHARACTER SET ascii;
    CREATE TABLE u (a VARCHAR(16000), b TEXT(100), c TEXT(200), d MEDIUMTEXT) CHARSET latin1;
    ALTER TABLE u CONVERT TO CHARACTER SET utf8mb4;
    """,
)
case(
    "databases",
    """
    ALTER DATABASE CHARACTER SET latin1;
    CREATE TABLE a (t VARCHAR(3));
    ALTER DATABASE COLLATE utf8mb4_bin;
    CREATE TABLE b (t VARCHAR(3));
    ALTER SCHEMA DEFAULT CHARACTER SET = utf8mb4;
    CREATE TABLE c (t VARCHAR(3));
    ALTER DATABASE CHARACTER SET utf8mb3;
    CREATE TABLE d (t VARCHAR(3));
    SET default_collation_for_utf8mb4=utf8mb4_general_ci;
    CREATE TABLE e (t VARCHAR(3) CHARSET utf8mb4, u VARCHAR(3)) CHARSET utf8mb4;
    CREATE TABLE f (t VARCHAR(3));
    SET default_collation_for_utf8mb4=DEFAULT;
    """,
)
case(
    "names, quotes and comments",
    r"""
    CREATE TABLE `q``uote` (`i``d` INT PRIMARY KEY, `Mixed Case` INT, `select` INT, 1st INT, `a.b` INT, ünï INT, $x INT, _u INT) /* inline comment */;
    ALTER TABLE `q``uote` ADD `x` INT -- trailing comment
;
    /*!80000 ALTER TABLE `q``uote` ADD COLUMN verc INT*/;
    ALTER /* c1 */ TABLE # to the end; of the line
      `q``uote` ADD -- another; one
      y INT /*!50100 DEFAULT 5 */;
    CREATE TABLE 2t (a INT COMMENT 'semi;colon', b VARCHAR(20) DEFAULT '/* no comment */', c VARCHAR(9) DEFAULT '-- x');
    ALTER TABLE 2t ADD 1e INT, ADD e1 INT, ADD 0x INT, ADD 5a6 INT;
    SET sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES';
    CREATE TABLE "an""si" ("a b" INT PRIMARY KEY, b VARCHAR(20) DEFAULT 'back\', "c" VARCHAR(9) DEFAULT 'd''q');
    ALTER TABLE "an""si" ADD "x""y" INT COMMENT 'c\';
    SET sql_mode='';
    CREATE TABLE LIKE_me (a INT);
    CREATE TABLE status (date DATE, time TIME, timestamp TIMESTAMP, year YEAR, text TEXT, `set` SET('a'), bit BIT, enum ENUM('x'), type INT, comment INT COMMENT 'c', data INT, engine INT, action INT, value INT, first INT, after INT, `order` INT, visible INT, storage INT, `virtual` INT, vector INT, json JSON);
    ALTER TABLE status ADD date2 DATE AFTER date, DROP text, ADD COLUMN text INT AFTER after, MODIFY comment INT FIRST;
    """,
)
case(
    "copies, renames, drops",
    """
    CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(5) DEFAULT 'x' COMMENT 'c', UNIQUE (a)) COMMENT 'the table' CHARSET latin1;
    CREATE TABLE l1 LIKE t;
    CREATE TABLE l2 (LIKE t);
    CREATE TABLE IF NOT EXISTS l2 (other INT);
    CREATE TABLE IF NOT EXISTS l3 (other INT);
    RENAME TABLE l1 TO tmp, l2 TO l1, tmp TO l2;
    RENAME TABLE t TO u;
    TRUNCATE u;
    TRUNCATE TABLE u;
    DROP TABLE l1, l2;
    DROP TABLE IF EXISTS nope, l3 CASCADE;
    CREATE TEMPORARY TABLE tt (id INT PRIMARY KEY);
    DROP TEMPORARY TABLE tt;
    CREATE OR REPLACE VIEW vw AS SELECT id FROM u;
    DROP VIEW vw;
    ANALYZE TABLE u;
    CREATE PROCEDURE pr() BEGIN CREATE TABLE never (a INT); DROP TABLE u; END;
    DROP PROCEDURE pr;
    CREATE TRIGGER trg BEFORE INSERT ON u FOR EACH ROW SET NEW.a = 'y';
    """,
)
case(
    "partitions",
    """
    CREATE TABLE part (id INT NOT NULL, d DATE NOT NULL, v INT, PRIMARY KEY (id, d)) PARTITION BY RANGE (YEAR(d))
      (PARTITION p0 VALUES LESS THAN (2020) COMMENT = 'x', PARTITION p1 VALUES LESS THAN (2025), PARTITION pm VALUES LESS THAN MAXVALUE);
    ALTER TABLE part TRUNCATE PARTITION p1;
    ALTER TABLE part DROP PARTITION p0;
    ALTER TABLE part REORGANIZE PARTITION pm INTO (PARTITION p3 VALUES LESS THAN (2040), PARTITION pm VALUES LESS THAN MAXVALUE);
    ALTER TABLE part REMOVE PARTITIONING;
    CREATE TABLE hp (id INT PRIMARY KEY, v INT) ENGINE=InnoDB PARTITION BY HASH(id) PARTITIONS 4;
    ALTER TABLE hp ADD PARTITION PARTITIONS 2;
    ALTER TABLE hp COALESCE PARTITION 2;
    ALTER TABLE hp REBUILD PARTITION ALL;
    ALTER TABLE hp ADD w INT PARTITION BY KEY (id) PARTITIONS 3;
    CREATE TABLE ex (id INT PRIMARY KEY, v INT, w INT);
    ALTER TABLE hp EXCHANGE PARTITION p0 WITH TABLE ex WITHOUT VALIDATION;
    CREATE TABLE sp (id INT, d DATE) PARTITION BY LIST COLUMNS (id) SUBPARTITION BY HASH (TO_DAYS(d)) SUBPARTITIONS 2 (PARTITION a VALUES IN (1, 2), PARTITION b VALUES IN (3));
    """,
)


def statements(text: str) -> list[str]:
    """Split a corpus text at semicolons that end a line."""
    return [part.strip() for part in (text.strip() + "\n").split(";\n") if part.strip()]


def fetch(cursor: Any, sql: str, *args: Any) -> list[tuple[Any, ...]]:
    cursor.execute(sql, args)
    return list(cursor.fetchall())


def context(cursor: Any, db: str) -> DdlContext:
    (mode, server, utf8mb4, explicit) = fetch(
        cursor,
        "SELECT @@sql_mode, @@collation_server, @@default_collation_for_utf8mb4, @@explicit_defaults_for_timestamp",
    )[0]
    bits = sum(MODES.get(m, 0) for m in mode.split(","))
    return DdlContext(
        db,
        bits,
        server_collation=BY_NAME[server].id,
        default_collation_for_utf8mb4=BY_NAME[utf8mb4].id,
        explicit_defaults_for_timestamp=bool(explicit),
    )


def column_type(c: Column) -> str:
    """Return COLUMN_TYPE as information_schema of MySQL 9.7 prints it."""
    base = {"GEOMETRYCOLLECTION": "geomcollection"}.get(c.type_name, c.type_name.lower())
    sign = (" unsigned" if c.unsigned else "") + (" zerofill" if c.zerofill else "")
    if c.type_name in INTEGERS:
        width = c.length if c.length is not None else INTEGERS[c.type_name][1 if c.unsigned else 0]
        shown = c.zerofill or (c.type_name == "TINYINT" and c.length == 1 and not c.unsigned)
        return base + (f"({width})" if shown else "") + sign
    if c.type_name == "DECIMAL":
        return f"decimal({c.length or 10},{c.scale or 0}){sign}"
    if c.type_name in ("FLOAT", "DOUBLE"):
        return base + (f"({c.length},{c.scale})" if c.scale is not None else "") + sign
    if c.enum_values:
        return f"{base}({','.join(quoted(v) for v in c.enum_values)})"
    if c.type_name in ONE:
        return f"{base}({1 if c.length is None else c.length})"
    if c.type_name in ("VARCHAR", "VARBINARY", "VECTOR"):
        return f"{base}({2048 if c.length is None else c.length})"
    if c.type_name in ("TIME", "DATETIME", "TIMESTAMP") and c.length:
        return f"{base}({c.length})"
    return base


def quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def same_default(c: Column, theirs: str | None, extra: str) -> bool:
    if "DEFAULT_GENERATED" in extra and theirs is not None:
        now = c.default is not None and c.default.startswith("CURRENT_TIMESTAMP")
        return c.default_is_expression and (not now or c.default == theirs)
    ours = c.default
    if ours is None or theirs is None or c.default_is_expression:
        return ours is None and theirs is None
    if c.type_name == "BIT":
        number = int(ours[2:-1], 2) if ours.startswith("b'") else int(ours)
        return theirs == f"b'{number:b}'"
    if c.type_name in NUMBERS:
        try:
            return Decimal(ours) == Decimal(theirs)
        except InvalidOperation:
            return False
    if c.type_name in ("BINARY", "VARBINARY"):
        return ours.rstrip("\0") == theirs or theirs.lower() == ours.lower() or theirs.startswith("0x")
    return theirs in (ours, ours + ".000") or (ours == "0" and theirs.startswith("0000"))


def check_columns(cursor: Any, table: Table, where: str) -> None:
    rows = fetch(
        cursor,
        "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME, COLLATION_NAME, COLUMN_DEFAULT, EXTRA, COLUMN_COMMENT, SRS_ID "
        "FROM information_schema.COLUMNS WHERE TABLE_SCHEMA=%s AND TABLE_NAME=%s ORDER BY ORDINAL_POSITION",
        table.id.db,
        table.id.table,
    )
    assert [c.name for c in table.columns] == [r[0] for r in rows], where
    assert [c.position for c in table.columns] == list(range(1, len(rows) + 1)), where
    for c, (name, kind, nullable, charset, collation, default, extra, comment, srid) in zip(
        table.columns, rows, strict=True
    ):
        place = f"{where} column {name}"
        ours = (column_type(c), c.nullable, c.charset, c.collation, c.comment or "", c.srid)
        kind = kind if isinstance(kind, str) else kind.decode()
        if c.type_name == "JSON":
            charset = collation = None
        if c.charset == "binary":
            charset = collation = "binary"
        assert ours == (kind, nullable == "YES", charset, collation, comment, srid), place
        assert c.auto_increment == ("auto_increment" in extra), place
        assert c.generated == (" GENERATED" in extra), place
        assert c.invisible == ("INVISIBLE" in extra), place
        assert c.on_update == ("on update" in extra), place
        assert same_default(c, default, extra), f"{place}: {c.default!r} {default!r} {extra}"


def check_keys(cursor: Any, state: SchemaState, table: Table, where: str) -> None:
    rows = fetch(
        cursor,
        "SELECT INDEX_NAME, NON_UNIQUE, COLUMN_NAME, SUB_PART, INDEX_TYPE FROM information_schema.STATISTICS "
        "WHERE TABLE_SCHEMA=%s AND TABLE_NAME=%s ORDER BY INDEX_NAME, SEQ_IN_INDEX",
        table.id.db,
        table.id.table,
    )
    unique: dict[str, list[str | None]] = {}
    plain: dict[str, list[str | None]] = {}
    prefixed = set()
    for name, not_unique, column, prefix, _ in rows:
        (plain if not_unique else unique).setdefault(name, []).append(column)
        if prefix is not None or column is None:
            prefixed.add(name)
    primary = tuple(unique.pop("PRIMARY", ()))
    assert table.primary_key == primary, where
    assert {i.name: [c for c in i.columns] for i in table.unique_keys} == {
        n: [c for c in columns if c is not None] for n, columns in unique.items()
    }, where
    assert {i.name for i in table.unique_keys if i.prefixed} == {n for n in unique if n in prefixed}, where
    assert {k.name: list(k.columns) for k in state.plain_keys.get(table.id, ())} == plain, where


def check_table(cursor: Any, state: SchemaState, table: Table, where: str) -> None:
    check_columns(cursor, table, where)
    check_keys(cursor, state, table, where)
    collation, comment, engine = fetch(
        cursor,
        "SELECT TABLE_COLLATION, TABLE_COMMENT, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA=%s AND TABLE_NAME=%s",
        table.id.db,
        table.id.table,
    )[0]
    assert (table.collation, table.charset) == (collation, BY_NAME[collation].charset), where
    assert (table.comment or "") == comment, where
    text = fetch(cursor, f"SHOW CREATE TABLE {table.id.quoted()}")[0][1]
    session = context(cursor, table.id.db)
    # The server escapes with backslashes here even under NO_BACKSLASH_ESCAPES, and implies no timestamp defaults.
    session = replace(session, sql_mode=session.sql_mode & ~NO_BACKSLASH_ESCAPES, explicit_defaults_for_timestamp=True)
    shown = parse_create(text, session, DbDefaults("latin7", "latin7_bin"))
    check_columns(cursor, shown, f"{where} from SHOW CREATE TABLE")
    assert shown.primary_key == table.primary_key, where
    assert {replace(i) for i in shown.unique_keys} == set(table.unique_keys), where
    assert (shown.charset, shown.collation, shown.comment) == (table.charset, table.collation, table.comment), where


def check_all(cursor: Any, state: SchemaState, db: str, where: str) -> None:
    names = fetch(
        cursor, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA=%s AND TABLE_TYPE='BASE TABLE'", db
    )
    assert {i.table for i in state.tables_of(db)} == {n for (n,) in names}, where
    for table_id in state.tables_of(db):
        check_table(cursor, state, state.tables[table_id], f"{table_id} after {where}")


def known(cursor: Any, db: str) -> SchemaState:
    charset, collation = fetch(
        cursor,
        "SELECT DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME=%s",
        db,
    )[0]
    return SchemaState().with_database(db, DbDefaults(charset, collation))


@pytest.mark.req("SCH-01")
@pytest.mark.parametrize("name", CORPUS)
def test_structures_equal_the_servers_after_every_statement(name: str, root: Any, database: str) -> None:
    with root.cursor() as cursor:
        cursor.execute(f"USE `{database}`")
        cursor.execute("SET SESSION information_schema_stats_expiry=0")
        state = known(cursor, database)
        for sql in statements(CORPUS[name]):
            before = context(cursor, database)
            cursor.execute(sql)
            state = apply(state, sql, before).state
            check_all(cursor, state, database, sql)


def test_collation_table_equals_the_servers(root: Any) -> None:
    with root.cursor() as cursor:
        theirs = {
            r[0]: (r[1], r[2], r[3] == "Yes")
            for r in fetch(
                cursor, "SELECT ID, COLLATION_NAME, CHARACTER_SET_NAME, IS_DEFAULT FROM information_schema.COLLATIONS"
            )
        }
        widths = dict(fetch(cursor, "SELECT CHARACTER_SET_NAME, MAXLEN FROM information_schema.CHARACTER_SETS"))
    assert {c.id: (c.name, c.charset, c.is_default) for c in COLLATIONS.values()} == theirs
    assert widths == MAX_BYTES


@pytest.mark.req("SCH-01")
def test_statements_as_the_binlog_holds_them(root: Any, database: str) -> None:
    """CREATE TABLE ... SELECT reaches the binlog as a column list, DROP TABLE with quoted names."""
    sent = [
        "CREATE TABLE base (id INT PRIMARY KEY, b3 VARCHAR(60) COLLATE utf8mb4_bin COMMENT 'c', d DECIMAL(8,2), e ENUM('a','b'), t TIMESTAMP(3))",
        "CREATE TABLE ctas AS SELECT id, b3, d + 1 AS d1, e, t, NOW() IS NULL AS nn, 'x' AS lit, POINT(1,1) AS p FROM base",
        "CREATE TABLE ctas2 (extra INT DEFAULT 3, id INT PRIMARY KEY) CHARSET latin1 SELECT id, b3 FROM base",
        "CREATE TABLE ctas3 (KEY (id)) PARTITION BY HASH (id) PARTITIONS 2 AS SELECT id FROM base",
        "SET SESSION sql_generate_invisible_primary_key=ON",
        "CREATE TABLE gipk (a INT, b INT)",
        "ALTER TABLE gipk ADD c INT",
        "SET SESSION sql_generate_invisible_primary_key=OFF",
        "CREATE TABLE gone (a INT)",
        "DROP TABLE gone, ctas3",
        "CREATE TABLE comments (a INT /*!50100 NOT NULL */, b INT /*!99999 NOT NULL */ /*!50100 DEFAULT /* nested */ 5 */)",
    ]
    with root.cursor() as cursor:
        cursor.execute(f"USE `{database}`")
        state = known(cursor, database)
        file, start = fetch(cursor, "SHOW BINARY LOG STATUS")[0][:2]
        for sql in sent:
            cursor.execute(sql)
        for event in fetch(cursor, f"SHOW BINLOG EVENTS IN '{file}' FROM {start}"):
            head = f"use `{database}`; "
            if event[2] == "Query" and event[5].startswith(head):
                state = apply(state, event[5][len(head) :], context(cursor, database)).state
        assert TableId(database, "ctas") in state.tables
        check_all(cursor, state, database, "the binlog")
