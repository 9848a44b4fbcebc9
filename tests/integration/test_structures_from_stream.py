"""Structures made of a binlog's statements are those of information_schema, whatever session wrote the statements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from kit.server_structures import check_all, known
from kit.stream_structures import StructureStream

from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.model.secret import Secret

KEY_ON = "SET SESSION sql_generate_invisible_primary_key = ON"
CASES: dict[str, tuple[str | bytes, ...]] = {
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
    conn = pymysql.connect(
        host=stack.mysql_host,
        port=stack.mysql_port,
        user=stack.root_user,
        password=stack.root_password,
        charset="utf8mb4",
        database=database,
        autocommit=True,
        ssl_disabled=True,
    )
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
def test_the_structures_are_those_of_the_server(
    name: str, stream: StructureStream, session: Any, root: Any, database: str, row_metadata: str
) -> None:
    with session.cursor() as cursor:
        for statement in CASES[name]:
            cursor.execute(statement)
    with root.cursor() as cursor:
        check_all(cursor, stream.follow(), database, name)
