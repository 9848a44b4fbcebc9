"""GTIDs that servers give to their own transactions, and those that somebody has given to one (``SET gtid_next``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.replica_status import replica_status
from airflow_provider_mysql_cdc.cdc.model.gtid import gtid_source

_NAMES = ("server_id", "server_uuid", "group_replication_group_name", "group_replication_view_change_uuid")


@dataclass(frozen=True, slots=True)
class LocalGtids:
    """Hold how a server signs its own transactions.

    Args:
        server_id: Its server_id, which is in the header of each event that it has executed first; 0 where not known.
        server_uuid: Its server_uuid, which its GTIDs begin with.
        group_uuids: What they begin with where it is a member of a replication group.
        sources: server_uuid by server_id of the servers from which it replicates.
    """

    server_id: int = 0
    server_uuid: str = ""
    group_uuids: frozenset[str] = frozenset()
    sources: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def read(cls, conn: Any) -> LocalGtids:
        """Read it.

        Args:
            conn: An open connection.

        Raises:
            SourceError: The query fails.
        """
        names = ", ".join(f"'{name}'" for name in _NAMES)
        rows = fetch_all(conn, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
        found = {str(name): str(value) for name, value in rows}
        group = frozenset(found[name].lower() for name in _NAMES[2:] if found.get(name))
        sources = {int(row["Source_Server_Id"]): str(row["Source_UUID"]).lower() for row in replica_status(conn)}
        return cls(int(found["server_id"]), found["server_uuid"].lower(), group, sources)

    def is_lent(self, gtid: str, server_id: int) -> bool:
        """Return whether somebody has given a GTID of another server to a transaction of this one.

        Args:
            gtid: The transaction's GTID.
            server_id: The server id in its events.
        """
        uuid = gtid_source(gtid).lower()
        return 0 < server_id == self.server_id and uuid != self.server_uuid and uuid not in self.group_uuids
