"""Privileges of the connected account."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all

_GRANT = re.compile(r"GRANT (?P<names>.+?) ON (?P<scope>.+?) TO ", re.IGNORECASE | re.DOTALL)
_COLUMNS = re.compile(r"\([^)]*\)")
_GLOBAL_SCOPE = "*.*"


def read_account(conn: Any) -> str:
    """Return the account of a connection as GRANT takes it.

    Args:
        conn: An open connection.

    Raises:
        SourceError: The query fails.
    """
    return quoted_account(str(fetch_all(conn, "SELECT CURRENT_USER()")[0][0]))


def quoted_account(current_user: str) -> str:
    """Return an account as GRANT takes it.

    Args:
        current_user: What CURRENT_USER() returns; a user name may contain @, a host name may not.
    """
    return "@".join("'" + part.replace("'", "''") + "'" for part in current_user.rpartition("@")[::2])


@dataclass(frozen=True, slots=True)
class Grants:
    """Hold privileges.

    Args:
        global_privileges: Privileges on ``*.*``, dynamic ones too, in upper case.
        scoped_privileges: Privileges on any database, table or column.
    """

    global_privileges: frozenset[str] = field(default_factory=frozenset)
    scoped_privileges: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Grants:
        """Read the lines of SHOW GRANTS; without FOR it shows the privileges of active roles as well."""
        global_privileges: set[str] = set()
        scoped_privileges: set[str] = set()
        for line in lines:
            # A line without ON grants a role.
            if match := _GRANT.match(line):
                names = {name.strip().upper() for name in _COLUMNS.sub("", match["names"]).split(",")}
                (global_privileges if match["scope"].strip() == _GLOBAL_SCOPE else scoped_privileges).update(names)
        return cls(frozenset(global_privileges), frozenset(scoped_privileges))

    def has(self, *names: str) -> bool:
        """Return whether one of these privileges is held on ``*.*``."""
        return not self.global_privileges.isdisjoint({*names, "ALL PRIVILEGES", "ALL"})

    def has_in_any_scope(self, name: str) -> bool:
        """Return whether a privilege is held on ``*.*`` or on anything smaller."""
        return self.has(name) or not self.scoped_privileges.isdisjoint({name, "ALL PRIVILEGES", "ALL"})
