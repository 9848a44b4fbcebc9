"""One run at a time for each topic.prefix, held as a named lock on the source server.

The lock lives as long as the driver's connection (MySQL manual, "Locking Functions"), so a killed driver frees it at
once and nobody has to clean up. It needs no privilege. Kafka's fencing stays the guarantee; this lock refuses a second
run early, before it produces anything.
"""

from __future__ import annotations

import hashlib
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import RunInProgressError


def lock_name(prefix: str) -> str:
    """Return the lock's name; MySQL limits it to 64 characters."""
    name = f"mysql_cdc:{prefix}"
    return name if len(name) <= 64 else "mysql_cdc:" + hashlib.sha256(prefix.encode()).hexdigest()[:48]


def acquire(conn: Any, prefix: str, owner: str) -> None:
    """Take the lock of a prefix on this connection, or refuse.

    An older attempt of the same owner (a driver that outlived its Airflow task) is ended: its connection is killed,
    which an account may always do to its own connections, and Kafka fences what it still tries to write.

    Args:
        conn: An open pymysql connection; the lock ends with it.
        prefix: topic.prefix.
        owner: ``dag_id/run_id/task_id/map_index`` of this run.

    Raises:
        RunInProgressError: Another owner holds the lock.
    """
    name = lock_name(prefix)
    with conn.cursor() as cursor:
        # The connection idles while the tasks work; the server must not close it (SETUP-24).
        cursor.execute("SET SESSION wait_timeout = 2147483")
        # The owner is readable for others through a second lock whose name carries it.
        for _ in range(2):
            cursor.execute("SELECT GET_LOCK(%s, 0), IS_USED_LOCK(%s)", (name, name))
            got, holder = cursor.fetchone()
            if got == 1:
                cursor.execute("SELECT GET_LOCK(%s, 0)", (_owner_lock(prefix, owner),))
                return
            cursor.execute("SELECT IS_USED_LOCK(%s)", (_owner_lock(prefix, owner),))
            if cursor.fetchone()[0] != holder or holder is None:
                break
            cursor.execute("KILL %s", (int(holder),))
            cursor.execute("SELECT GET_LOCK(%s, 10)", (name,))
            if cursor.fetchone()[0] == 1:
                cursor.execute("SELECT GET_LOCK(%s, 10)", (_owner_lock(prefix, owner),))
                return
    raise RunInProgressError(
        "another run of this topic.prefix is at work",
        where=f"topic.prefix={prefix}",
        why=f"connection {holder} of the MySQL server holds the lock {name!r}",
        remedy=f"wait for the other run, or end it (SHOW PROCESSLIST; KILL {holder})",
    )


def _owner_lock(prefix: str, owner: str) -> str:
    return "mysql_cdc:o:" + hashlib.sha256(f"{prefix}\0{owner}".encode()).hexdigest()[:48]
