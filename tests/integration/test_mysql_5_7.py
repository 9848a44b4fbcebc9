"""MySQL 5.7.22: TABLE_MAP without names, signs and character sets; other defaults; no recursive queries."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import test_old_server as old_server
from kit.incremental_rig import ask_for, books, check_exact, reads
from kit.private_mysql import Pool, PrivateServer
from kit.random_ddl import RandomSession
from kit.records import compacted, duplicates, payload
from kit.server_structures import check_all, known
from kit.sql import execute, rows
from kit.stream_structures import StructureStream
from kit.tiers import many
from pipelinelib.pipeline import Pipeline
from test_old_server import old, pipeline
from test_random_ddl import run_session

from airflow_provider_mysql_cdc.cdc.binlog.preflight import preflight

__all__ = ["old", "pipeline"]

VERSION = "5.7.22"
GTIDS_OFF = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


@pytest.fixture(scope="module", params=many(["no GTIDs"], ["GTIDs", "no GTIDs"]))
def server(request: pytest.FixtureRequest, pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent(VERSION, **({} if request.param == "GTIDs" else GTIDS_OFF)) as made:
        yield made


@pytest.mark.req("SETUP-07", "SNAP-01", "STRM-01", "SCH-01")
def test_snapshot_drain_and_statements(pipeline: Pipeline, old: Any, database: str) -> None:
    old_server.fill(old, database)
    assert pipeline.snapshot().complete
    old_server.change(old, database)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    old_server.check(pipeline, old, database, "orders", "id, customer, note")
    old_server.check(pipeline, old, database, "fresh", "k, v")
    source = payload(pipeline.records("people")[0].value)["source"]
    assert (source["gtid"] is None) == (rows(old, "SELECT @@gtid_mode") == [("OFF",)])
    execute(old, "FLUSH BINARY LOGS", f"DELETE FROM `{database}`.fresh WHERE k = 'b'")
    assert pipeline.drain() is not None
    old_server.check(pipeline, old, database, "fresh", "k, v")


@pytest.mark.req("TYPE-01")
def test_values_whose_type_only_the_statement_has(pipeline: Pipeline, old: Any, database: str) -> None:
    """TABLE_MAP has neither signs nor character sets here."""
    execute(
        old,
        f"CREATE TABLE `{database}`.v (id BIGINT UNSIGNED PRIMARY KEY, y YEAR, t TINYINT UNSIGNED, m MEDIUMINT, "
        "d DECIMAL(9,3) UNSIGNED, l VARCHAR(9) CHARACTER SET latin1, g TEXT CHARACTER SET gbk, "
        "e ENUM('é', 'b') CHARACTER SET latin1, s SET('x', 'ÿ'), b BIT(9), at TIMESTAMP(3) NULL, w TIME(6))",
    )
    values = "2020, 255, -8388608, 7.125, 'é€', '乗', 'é', 'x,ÿ', 257, '2026-01-02 03:04:05.678', '-12:00:00.000001'"
    execute(old, f"INSERT INTO `{database}`.v VALUES (18446744073709551615, {values})")
    assert pipeline.snapshot().complete
    execute(old, f"INSERT INTO `{database}`.v VALUES (18446744073709551614, {values})")
    assert pipeline.drain() is not None
    read, streamed = (payload(r.value)["after"] for r in pipeline.records("v"))
    assert read.pop("id") - streamed.pop("id") in (1, -1, 0) and read == streamed
    assert (read["t"], read["m"], read["l"], read["g"], read["e"], read["s"]) == (255, -8388608, "é€", "乗", "é", "x,ÿ")


@pytest.mark.req("SNAP-10")
def test_keys_of_text_in_the_default_collation_are_split(pipeline: Pipeline, old: Any, database: str) -> None:
    """SHOW CREATE TABLE leaves utf8mb4_general_ci out, the default here."""
    words = ",".join(f"('{first}{n}', {n})" for n in range(60) for first in ("a", "Ö", "語"))
    execute(
        old,
        f"CREATE TABLE `{database}`.k (k VARCHAR(30) PRIMARY KEY, v INT)",
        f"INSERT INTO `{database}`.k VALUES {words}",
        f"ANALYZE TABLE `{database}`.k",
    )
    assert pipeline.snapshot().complete
    records = pipeline.records("k")
    assert duplicates(records) == [] and len(records) == 180
    with old.cursor() as cursor:
        cursor.execute(f"SHOW CREATE TABLE `{database}`.k")
        assert "COLLATE" not in cursor.fetchone()[1]
    assert any(" 4 chunk" in line for line in pipeline.lines), pipeline.lines


@pytest.mark.req("SCH-01")
def test_structures_are_those_of_the_server(server: PrivateServer, old: Any, pipeline: Pipeline, database: str) -> None:
    """explicit_defaults_for_timestamp is OFF here, and utf8mb4 means utf8mb4_general_ci."""
    assert rows(old, "SELECT @@GLOBAL.explicit_defaults_for_timestamp") == [(0,)]
    execute(old, f"USE `{database}`", "SET sql_mode = ''")  # takes the zero timestamp as a default
    with old.cursor() as cursor:
        stream = StructureStream(pipeline.cfg.connection_settings(), old, (database,), known(cursor, database))
        for statement in (
            "CREATE TABLE a (i INT, t TIMESTAMP, u TIMESTAMP(3), v TIMESTAMP NULL, w VARCHAR(9) CHARACTER SET utf8mb4)",
            "CREATE TABLE b (i INT(3) ZEROFILL, p GEOMETRY, j JSON, g INT AS (i + 1), KEY (i)) CHARSET utf8mb4",
            "ALTER TABLE a ADD x TIMESTAMP AFTER i, ADD y TEXT CHARACTER SET utf8",
            "ALTER TABLE a CONVERT TO CHARACTER SET utf8, MODIFY y TINYTEXT /*!99999 , ADD z INT /* not here */ */",
            "CREATE TABLE c LIKE a",
            "ALTER TABLE b CONVERT TO CHARACTER SET utf8mb4, ADD n NCHAR(5) FIRST",
            "CREATE TABLE d SELECT i, w FROM a" if rows(old, "SELECT @@gtid_mode") == [("OFF",)] else "DO 1",
            "RENAME TABLE a TO e",
        ):
            cursor.execute(statement)
            check_all(cursor, stream.follow(), database, statement)


@pytest.mark.req("SCH-01")
@pytest.mark.parametrize("mode", ["", "ANSI"])
@pytest.mark.exhaustive(but="no GTIDs-$")
def test_rows_of_a_table_like_a_temporary_one_arrive(mode: str, pipeline: Pipeline, old: Any, database: str) -> None:
    """The server leaves the table's character set out of the statement, and TABLE_MAP has none."""
    execute(old, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    assert pipeline.snapshot().complete
    execute(
        old,
        f"USE `{database}`",
        f"SET sql_mode = '{mode}'",
        "CREATE TEMPORARY TABLE tmp (id INT PRIMARY KEY, v VARCHAR(9), w TEXT, e ENUM('é', 'b')) CHARSET latin1",
        "CREATE TABLE n LIKE tmp",
        "INSERT INTO n VALUES (1, 'é', 'ü', 'é')",
    )
    assert pipeline.drain() is not None
    execute(old, "ALTER TABLE n ADD x CHAR(3) FIRST", "INSERT INTO n VALUES ('ß', 2, 'é', 'ü', 'é')")
    assert pipeline.drain() is not None
    rows_of_n = [payload(record.value)["after"] for record in pipeline.records("n")]
    expected = {"id": 1, "v": "é", "w": "ü", "e": "é"}
    assert rows_of_n == [expected, {"x": "ß", **expected, "id": 2}]
    assert not any("differs from the server's" in line for line in pipeline.lines), pipeline.lines


@pytest.mark.req("SCH-01")
@pytest.mark.parametrize("seed", [3, 5, 9])
@pytest.mark.exhaustive
def test_structures_after_random_statements(
    seed: int, server: PrivateServer, old: Any, database: str, pipeline: Pipeline
) -> None:
    where = SimpleNamespace(mysql_host="127.0.0.1", mysql_port=server.port, root_user="root", root_password="",
                            cdc_user="cdc", cdc_password=server.password)  # fmt: skip
    random = Random(seed)
    run_session(RandomSession(random, random.choice(["utf8mb4", "latin1", "gbk"]), ""), where, old, database)


def test_what_this_version_lacks_is_said(pipeline: Pipeline, old: Any, database: str) -> None:
    found = [finding.what for finding in preflight(old, pipeline.cfg, snapshot=True)]
    assert "MySQL 5.7.22-log has no binlog_row_metadata" in found
    execute(
        old,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, e ENUM('😀', 'b'))",
        f"INSERT INTO `{database}`.t VALUES (1, '😀')",
    )
    pipeline.snapshot()
    assert any("this server cannot be asked for them" in line for line in pipeline.lines)
    execute(old, f"INSERT INTO `{database}`.t VALUES (2, '😀'), (3, 'b')")
    pipeline.drain()
    assert any("with a question mark (column e). MySQL 5.7" in line for line in pipeline.lines)
    execute(
        old, f"ALTER TABLE `{database}`.t MODIFY e ENUM('😀', 'b', 'c')", f"INSERT INTO `{database}`.t VALUES (4, '😀')"
    )
    pipeline.drain()
    shown = {row["id"]: row["e"] for row in compacted(pipeline.records("t")).values()}
    assert shown == {1: "😀", 2: "?", 3: "b", 4: "😀"}


@pytest.mark.req("INC-02")
@pytest.mark.exhaustive
def test_tables_are_read_again_while_the_stream_runs(
    pipeline: Pipeline, server: PrivateServer, old: Any, database: str
) -> None:
    execute(
        old,
        f"CREATE TABLE `{database}`.signals (id VARCHAR(64), type VARCHAR(32), data VARCHAR(2048))",
        f"GRANT INSERT, DELETE ON `{database}`.signals TO cdc",
        f"CREATE TABLE `{database}`.a (id VARCHAR(9) PRIMARY KEY, v INT UNSIGNED)",
        f"INSERT INTO `{database}`.a VALUES " + ",".join(f"('k{i}', {4_000_000_000 + i})" for i in range(200)),
    )
    pipeline.properties |= {"table.include.list": f"{database}.a", "signal.data.collection": f"{database}.signals"}
    pipeline.snapshot()
    ask_for(pipeline, ["a"])
    execute(old, f"UPDATE `{database}`.a SET v = 1 WHERE id > 'k5'", f"DELETE FROM `{database}`.a WHERE id = 'k7'")
    pipeline.drain()
    assert {scan.state for scan in books(pipeline).scans.values()} == {"done"} and reads(pipeline, "a")
    check_exact(pipeline, old, "a")
