"""Change rows beside a verification."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql

from kit.sql import execute


@contextmanager
def writer(stack: Any, database: str, more: str = ", 1, NULL") -> Iterator[None]:
    """Change rows 20 to 29 of the table orders all the time; ``more`` is what new rows have behind id and name."""
    conn = pymysql.connect(
        host=stack.mysql_host, port=stack.mysql_port, user=stack.root_user, password=stack.root_password,
        autocommit=True, ssl_disabled=True,
    )  # fmt: skip
    ended = threading.Event()

    def write() -> None:
        for number in itertools.count():
            if ended.wait(0.01):
                return
            execute(
                conn,
                f"UPDATE `{database}`.orders SET name = 'w{number}' WHERE id = {20 + number % 10}",
                f"INSERT INTO `{database}`.orders VALUES ({1000 + number}, 'new'{more})",
                f"DELETE FROM `{database}`.orders WHERE id = {1000 + number - 5}",
            )

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)
        conn.close()
