"""XA COMMIT as the first transaction after mysqld came back."""

from __future__ import annotations

import signal
from contextlib import closing, suppress
from typing import Any

import pymysql

from soaklib.world import SoakStream

_TRIES = 12


def restart_before_xa_commit(world: SoakStream) -> bool:
    """XA COMMIT is the first transaction after mysqld came back; its prepare is in this batch or an earlier one."""
    world.ddl.pause()
    world.load.pause()
    try:
        xid = _prepare(world)
        if world.rng.random() < 0.5:
            world.run(world.start())
        number = world.rng.choice((signal.SIGTERM, signal.SIGKILL))
        world.servers.restart_mysql(number, 0.0)
        if world.rng.random() < 0.5:
            world.run(world.start(), excused=True)
        with closing(world.servers.connect(database=world.database)) as conn:
            hit = xid is not None and commit_first(conn, xid)
        world.load.done["xa committed"] += hit
    finally:
        world.load.resume()
        world.ddl.resume()
    world.run(world.start(), excused=True)
    return hit


def _prepare(world: SoakStream) -> str | None:
    """Prepare a transaction that only this code commits; after some tries those that hold locks are decided first."""
    xid = f"{world.database}-first-{world.tried['restart before XA COMMIT']}"
    for n in range(_TRIES):
        with suppress(pymysql.MySQLError), closing(world.servers.connect(database=world.database)) as conn:
            if n == _TRIES // 3:
                world.load.decide_all(conn)
            prepare_xa(conn, xid)
            return xid
    return None


def prepare_xa(conn: Any, xid: str) -> None:
    """Prepare an XA transaction that has rows of a captured table for certain."""
    with conn.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
        cursor.execute(f"SET @soak_mark = 'xa {xid}'")
        cursor.execute(f"XA START '{xid}'")
        cursor.execute("INSERT INTO c (a) VALUES (1), (2)")
        cursor.execute("UPDATE c SET a = a + 1, ver = ver + 1 ORDER BY id DESC LIMIT 2")
        cursor.execute(f"XA END '{xid}'")
        cursor.execute(f"XA PREPARE '{xid}'")


def commit_first(conn: Any, xid: str) -> bool:
    """Commit it; return whether that is the first transaction of the server's newest binlog file."""
    with conn.cursor() as cursor:
        cursor.execute(f"XA COMMIT '{xid}'")
        cursor.execute("SHOW BINARY LOG STATUS")
        file = cursor.fetchone()[0]
        cursor.execute(f"SHOW BINLOG EVENTS IN '{file}' LIMIT 8")
        texts = [str(row[5]) for row in cursor.fetchall() if row[2] == "Query"]
    return bool(texts) and texts[0].startswith("XA COMMIT")
