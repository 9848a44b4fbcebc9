"""The refusal of a server at which a stream cannot go on, and the ways out that errors advise."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server
from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError
from airflow_provider_mysql_cdc.cdc.model.gtid import MAX_COPIED_CHARS, GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

_SHOWN_CHARS = 300
VERIFY_REMEDY = "then trigger mysql_cdc_verify with repair=yes, because topics may differ from this server's tables"


def refused_server(
    conn: Any, offset: BinlogOffset, why: str, remedy: str, *, retriable: bool = False
) -> ServerChangedError:
    """Return the error of a server at which a stream cannot go on.

    Args:
        conn: An open connection to it.
        offset: Where the stream stands, in the binlog of the former server.
        why: What is wrong with the server, as the end of a sentence about it.
        remedy: What to do.
        retriable: Whether a retry can help.
    """
    return ServerChangedError(
        "the stored position belongs to another server, and the stream cannot go on at the one that answers",
        where=str(offset),
        why=f"it was read on server {offset.server_uuid}, and server {answering_server(conn)} answers; {why}",
        remedy=remedy,
        retriable=retriable,
    )


def reset_remedy(gtids: GtidSet) -> str:
    """Return how to go on with what a server has.

    Args:
        gtids: Transactions that are left out; none for all of the server's.
    """
    text = str(gtids)
    requested = text if text and len(text) <= MAX_COPIED_CHARS else "current"
    return f"trigger mysql_cdc_reset_offset with offset={requested}, {VERIFY_REMEDY}"


def shown_gtids(gtids: GtidSet) -> str:
    """Return the text of a set for a message.

    Args:
        gtids: The set.
    """
    text = str(gtids)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
