"""Privileges of the connected account."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection

_GRANT = re.compile(r"GRANT (?P<names>.+?) ON (?P<scope>.+?) TO ", re.IGNORECASE | re.DOTALL)
_NAME = r"`(?:[^`]|``)*`"
_ROLES = re.compile(rf"GRANT (?P<roles>{_NAME}@{_NAME}(?:,\s*{_NAME}@{_NAME})*) TO ", re.IGNORECASE)
_REVOKED = re.compile(rf"REVOKE (?P<names>.+?) ON (?P<database>{_NAME})\.\* FROM ", re.IGNORECASE)
"""A partial revoke, which SHOW GRANTS has with partial_revokes=ON."""
_COLUMNS = re.compile(r"\([^)]*\)")
_GLOBAL_SCOPE = "*.*"


def read_login(conn: MySqlConnection) -> str:
    """Return user and host of a connection as an account of its own would have them.

    Args:
        conn: An open connection.

    Raises:
        SourceError: The query fails.
    """
    return quoted_account(str(fetch_all(conn, "SELECT USER()")[0][0]))


def read_account(conn: MySqlConnection) -> str:
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
        roles: Roles that were granted, active or not, as GRANT takes them; empty for none.
        unreadable_databases: Databases on which SELECT is revoked although it is granted on ``*.*``.
    """

    global_privileges: frozenset[str] = field(default_factory=frozenset)
    scoped_privileges: frozenset[str] = field(default_factory=frozenset)
    roles: str = ""
    unreadable_databases: tuple[str, ...] = ()

    @classmethod
    def read(cls, conn: MySqlConnection) -> Grants:
        """Return the privileges of the session's account and of its active roles.

        Raises:
            SourceError: The query fails.
        """
        return cls._of(conn, "SHOW GRANTS")

    def with_roles(self, conn: MySqlConnection) -> Grants:
        """Return the privileges that the account would have with all its roles active.

        Raises:
            SourceError: The query fails.
        """
        return self._of(conn, f"SHOW GRANTS FOR CURRENT_USER() USING {self.roles}") if self.roles else self

    @classmethod
    def _of(cls, conn: MySqlConnection, statement: str) -> Grants:
        return cls.parse(str(row[0]) for row in fetch_all(conn, statement))

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Grants:
        """Read the lines of SHOW GRANTS; without FOR it shows the privileges of active roles as well."""
        global_privileges: set[str] = set()
        scoped_privileges: set[str] = set()
        roles: list[str] = []
        unreadable: list[str] = []
        for line in lines:
            if match := _ROLES.match(line):
                roles.append(match["roles"])
            elif match := _GRANT.match(line):
                names = {name.strip().upper() for name in _COLUMNS.sub("", match["names"]).split(",")}
                (global_privileges if match["scope"].strip() == _GLOBAL_SCOPE else scoped_privileges).update(names)
            elif (match := _REVOKED.match(line)) and "SELECT" in match["names"].upper().replace(",", " ").split():
                unreadable.append(match["database"][1:-1].replace("``", "`"))
        return cls(frozenset(global_privileges), frozenset(scoped_privileges), ",".join(roles), tuple(unreadable))

    def has(self, *names: str) -> bool:
        """Return whether one of these privileges is held on ``*.*``."""
        return not self.global_privileges.isdisjoint({*names, "ALL PRIVILEGES", "ALL"})

    def has_in_any_scope(self, name: str) -> bool:
        """Return whether a privilege is held on ``*.*`` or on anything smaller."""
        return self.has(name) or not self.scoped_privileges.isdisjoint({name, "ALL PRIVILEGES", "ALL"})
