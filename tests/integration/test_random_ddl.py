"""Random DDL in random sessions: structures from the stream are those of information_schema.

MYSQL_CDC_DDL_SESSIONS sets how many sessions are tried, MYSQL_CDC_DDL_SEED another seed; a failure names its own.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pymysql
import pytest
from kit.random_ddl import CLIENTS, MODES, RandomSession
from kit.server_structures import check_all, is_5_7, known
from kit.stream_structures import StructureStream
from kit.window_rig import connection

from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, Secret

SESSIONS = int(os.environ.get("MYSQL_CDC_DDL_SESSIONS", "12"))
SEED = int(os.environ.get("MYSQL_CDC_DDL_SEED", "1"))
STATEMENTS = 30
UNKNOWN_VARIABLE = 1193


def run_session(session: RandomSession, stack: Any, root: Any, database: str) -> None:
    """Run the statements of one session in a new database, and compare what they made now and then."""
    settings = ConnectionSettings(stack.mysql_host, stack.mysql_port, stack.cdc_user, Secret(stack.cdc_password))
    done: list[bytes] = []
    with root.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS `{database}`")
        cursor.execute(f"CREATE DATABASE `{database}`")
        stream = StructureStream(settings, root, (database,), known(cursor, database))
        conn = connection(stack, database)
        try:
            with conn.cursor() as sender:
                is_old = is_5_7(cursor)
                for statement in session.settings():
                    if is_old and "explicit_defaults_for_timestamp" in statement:
                        continue  # it logs no session's setting
                    try:
                        sender.execute(statement)
                    except pymysql.OperationalError as error:
                        if error.args[0] != UNKNOWN_VARIABLE:  # 8.0.15 lacks some
                            raise
                for number in range(1, STATEMENTS + 1):
                    text = session.encoded(session.statement())
                    if is_old and text.startswith(b"DROP VIEW IF EXISTS"):
                        continue  # it does not log whether it was a view (``ddl.classify``)
                    try:
                        sender.execute(text)
                    except pymysql.MySQLError:
                        continue
                    finally:
                        if number % 10 == 0:
                            check_all(cursor, stream.follow(), database, "the statements")
                    done.append(text)
                    if text.startswith(b"CREATE TABLE"):
                        stream.follow()  # the next statement may convert what this one's text leaves out
        except Exception as error:
            error.add_note("\n".join([session.client, session.mode, *map(repr, done)]))
            raise
        finally:
            conn.close()


@pytest.mark.req("SCH-01")
@pytest.mark.parametrize("seed", range(SEED, SEED + SESSIONS))
@pytest.mark.exhaustive(but="^[1-4]$")
def test_structures_after_random_statements(seed: int, stack: Any, root: Any, database: str) -> None:
    random = Random(seed)
    session = RandomSession(random, random.choice([*CLIENTS]), random.choice(MODES))
    metadata = random.choice(("MINIMAL", "FULL"))
    with root.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.binlog_row_metadata")
        before = cursor.fetchone()[0]
        cursor.execute(f"SET GLOBAL binlog_row_metadata = {metadata}")
        try:
            run_session(session, stack, root, database)
        finally:
            cursor.execute(f"SET GLOBAL binlog_row_metadata = {before}")
