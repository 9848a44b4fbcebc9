"""Checks before a job starts: what is wrong with the server's settings or the account, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourcePrivilegeError, SourceSettingError


@dataclass(frozen=True, slots=True)
class Finding:
    """Describe one result of a check.

    Args:
        level: ``ok``, ``warning`` or ``error``.
        what: What was found.
        why: Why it matters.
        fix: What to do.
        error: The error to raise for level ``error``.
    """

    level: str
    what: str
    why: str = ""
    fix: str = ""
    error: CdcError | None = None

    def __str__(self) -> str:
        return (
            f"{self.level}: {self.what}"
            + (f" ({self.why})" if self.why else "")
            + (f"; {self.fix}" if self.fix else "")
        )


# Privilege -> the phase that needs it (SETUP-02 to SETUP-07).
ALWAYS = {"REPLICATION SLAVE": "reading the binlog", "REPLICATION CLIENT": "asking for binlog positions"}
SNAPSHOT = {"SELECT": "reading rows in snapshots"}
LOCKING = ("RELOAD", "FLUSH_TABLES", "LOCK TABLES")
# Variable -> (accepted values, why, what to set).
_SETTINGS = {
    "log_bin": (("1", "ON"), "without the binary log there are no changes to read", "start the server with log_bin"),
    "binlog_format": (
        ("ROW",),
        "STATEMENT and MIXED do not log the rows",
        "SET GLOBAL binlog_format=ROW and let clients reconnect",
    ),
    "binlog_row_image": (
        ("FULL",),
        "the other images leave columns out of the events",
        "SET GLOBAL binlog_row_image=FULL and let clients reconnect",
    ),
    "binlog_row_value_options": (
        ("",),
        "partial JSON updates are not decoded yet",
        "SET GLOBAL binlog_row_value_options='' and let clients reconnect",
    ),
}


def preflight(conn: Any, cfg: Any = None, *, snapshot: bool) -> list[Finding]:
    """Check the server and the account.

    Args:
        conn: An open connection of the connector's account.
        cfg: The connector's configuration (for tables the account must be able to read); not needed yet.
        snapshot: Whether a snapshot is about to run (SETUP-03 to SETUP-05).

    Returns:
        All findings, also the good ones.
    """
    findings = [_setting(conn, name) for name in _SETTINGS]
    return [*findings, *_privileges(conn, snapshot)]


def require(findings: Iterable[Finding]) -> None:
    """Raise the first finding that makes capture impossible.

    Raises:
        SourceSettingError, SourcePrivilegeError: See the finding.
    """
    for finding in findings:
        if finding.error is not None:
            raise finding.error


def _variable(conn: Any, name: str) -> str | None:
    with conn.cursor() as cursor:
        # Not from performance_schema or information_schema: SHOW works on every version (SETUP-12).
        cursor.execute("SHOW GLOBAL VARIABLES LIKE %s", (name,))
        row = cursor.fetchone()
    return None if row is None else str(row[1])


def _setting(conn: Any, name: str) -> Finding:
    accepted, why, fix = _SETTINGS[name]
    value = _variable(conn, name)
    # A variable that the server does not have (row value options before 8.0) has its only value.
    if value is None or value.upper() in accepted:
        return Finding("ok", f"{name}={value}")
    what = "binary logging is off" if name == "log_bin" else f"{name} is {value}, it must be {accepted[0] or 'empty'}"
    return Finding("error", what, why, fix, SourceSettingError(what, where=name, why=why, remedy=fix))


def _grants(conn: Any) -> str:
    with conn.cursor() as cursor:
        try:
            cursor.execute("SHOW GRANTS FOR CURRENT_USER()")
            own = [str(row[0]) for row in cursor.fetchall()]
            roles = re.findall(r"GRANT ((?:`[^`]+`@`[^`]+`,?)+) TO", "\n".join(own))
            for role in roles:
                cursor.execute(f"SHOW GRANTS FOR CURRENT_USER() USING {role}")
                own += [str(row[0]) for row in cursor.fetchall()]
        except pymysql.MySQLError:
            return "GRANT ALL PRIVILEGES ON *.*"  # not allowed to look; the statements themselves will tell
    return "\n".join(own).upper()


def _privileges(conn: Any, snapshot: bool) -> list[Finding]:
    grants = _grants(conn)
    on_all = ",".join(re.findall(r"GRANT (.*?) ON \*\.\*", grants))
    held = {p.strip() for p in on_all.split(",")}
    everything = "ALL PRIVILEGES" in held
    out = []
    for name, phase in (ALWAYS | (SNAPSHOT if snapshot else {})).items():
        # SELECT may be granted on databases or tables only.
        if everything or name in held or (name == "SELECT" and re.search(r"GRANT [^\n]*\b(SELECT|ALL)\b", grants)):
            out.append(Finding("ok", f"privilege {name}"))
            continue
        fix = f"GRANT {name} ON *.* TO the account"
        error = SourcePrivilegeError(f"the account lacks {name}", where=phase, why=f"{phase} needs it", remedy=fix)
        out.append(Finding("error", f"the account lacks {name}", f"{phase} needs it", fix, error))
    if snapshot and not everything and not held & set(LOCKING) and "LOCK TABLES" not in grants:
        out.append(
            Finding(
                "warning",
                "the account may neither take the global read lock nor lock tables",
                "snapshots need one of them unless snapshot.locking.mode=none",
                "GRANT RELOAD ON *.* TO the account",
            )
        )
    return out
