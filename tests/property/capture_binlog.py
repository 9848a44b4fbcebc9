"""Record ``data/binlog.gz``: a binlog file of a real server with every kind of event that the fuzzing changes.

.venv/bin/python tests/property/capture_binlog.py    # with the local stack up; MySQL 9.x
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import pymysql

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "tests" / "integration")]

from decode_rig import run_script  # noqa: E402
from stacklib import ensure_stack  # noqa: E402

TARGET = Path(__file__).parent / "data" / "binlog.gz"
WORKLOADS = ROOT / "tests" / "golden" / "peer" / "workloads"
SHAPES = """
CREATE DATABASE fuzz CHARACTER SET utf8mb4; USE fuzz;
CREATE TABLE defaults (a INT DEFAULT 1, b VARCHAR(9) DEFAULT 'two');
CREATE TABLE mixed (id INT PRIMARY KEY, n INT, t VARCHAR(40), b BLOB, j JSON, e ENUM('a','b'), s SET('x','y'),
  d DECIMAL(20,6), p POINT, dt DATETIME(6), f FLOAT, k VARCHAR(20) CHARACTER SET latin1);
CREATE TABLE wide (id INT PRIMARY KEY %s);
SET SESSION binlog_row_image = 'MINIMAL';
INSERT INTO defaults VALUES ();
INSERT INTO mixed (id, n, j) VALUES (1, 2, '{"a": {"b": [1, 2.5, "x", null, true]}, "c": "d"}'), (2, 3, '[]');
UPDATE mixed SET t = 'text', b = x'00ff' WHERE id = 1;
UPDATE mixed SET id = 5 WHERE id = 2;
DELETE FROM mixed WHERE id = 5;
SET SESSION binlog_row_image = 'NOBLOB', binlog_row_value_options = 'PARTIAL_JSON';
UPDATE mixed SET j = JSON_SET(j, '$.a.b[1]', JSON_OBJECT('deep', JSON_ARRAY(1, NOW(6), 1.5)));
SET SESSION binlog_row_image = 'FULL';
UPDATE mixed SET j = JSON_REMOVE(JSON_SET(j, '$.c', REPEAT('long ', 60)), '$.a.b[0]'), e = 'b', s = 'x,y', d = -12.5,
  p = POINT(1, 2), dt = '2020-02-29 01:02:03.456789', f = 1.25, k = 'Ärger';
SET SESSION binlog_row_value_options = '';
SET SESSION binlog_rows_query_log_events = ON;
INSERT INTO mixed (id, j) VALUES (10, JSON_OBJECT('d', DATE'2020-01-02', 't', TIME'01:02:03', 'n', 1.23456789012345678,
  'u', 18446744073709551615, 'i', -5, 'big', 1e300, 'list', JSON_ARRAY(1,2,3, JSON_ARRAY()), 'ä', 'ö'));
SET SESSION binlog_rows_query_log_events = OFF;
INSERT INTO wide (id, c1, c299) VALUES (1, 2, 3);
SET SESSION binlog_transaction_compression = ON;
BEGIN; INSERT INTO mixed (id, t) VALUES (20, REPEAT('z', 40)), (21, 'y'); UPDATE mixed SET n = 7; COMMIT;
SET SESSION binlog_transaction_compression = OFF;
XA START 'one'; INSERT INTO mixed (id) VALUES (30); XA END 'one'; XA PREPARE 'one'; XA COMMIT 'one';
XA START 'two'; INSERT INTO mixed (id) VALUES (31); XA END 'two'; XA COMMIT 'two' ONE PHASE;
SET SESSION gtid_next = 'AUTOMATIC:tag'; DELETE FROM mixed WHERE id = 30; SET SESSION gtid_next = 'AUTOMATIC';
SET SESSION time_zone = '+02:00', sql_mode = 'ANSI'; CREATE TABLE "quoted" (a INT); DROP TABLE "quoted";
DROP DATABASE fuzz;
"""


def record(conn: Any, metadata: str) -> None:
    run_script(conn, f"SET GLOBAL binlog_row_metadata = '{metadata}'")
    for name in ("types", "charsets") if metadata == "MINIMAL" else ("types",):
        text = (WORKLOADS / f"{name}.sql").read_text()
        text = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
        run_script(conn, text)
        run_script(conn, "SET SESSION sql_mode = DEFAULT; DROP DATABASE IF EXISTS tdb; DROP DATABASE IF EXISTS csdb")
    run_script(conn, SHAPES % "".join(f", c{n} TINYINT" for n in range(1, 300)))


def main() -> None:
    """Run the workload into a file of its own and keep that file."""
    stack = ensure_stack(ROOT / ".stack")
    conn = pymysql.connect(
        host=stack.mysql_host, port=stack.mysql_port, user=stack.root_user, password=stack.root_password,
        charset="utf8mb4", autocommit=True,
    )  # fmt: skip
    with conn, conn.cursor() as cursor:
        cursor.execute("SELECT @@binlog_row_metadata, @@datadir")
        before, folder = cursor.fetchone()
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOG STATUS")
        name = cursor.fetchone()[0]
        for metadata in ("MINIMAL", "FULL"):
            record(conn, metadata)
        cursor.execute(f"SET GLOBAL binlog_row_metadata = '{before}'")
        cursor.execute("FLUSH BINARY LOGS")
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_bytes(gzip.compress((Path(folder) / name).read_bytes(), 9, mtime=0))
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
