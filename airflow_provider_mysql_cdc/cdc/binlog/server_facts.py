"""What preflight knows about a server and its account, and what a run needs of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog.binlog_coverage import BinlogCoverage
from airflow_provider_mysql_cdc.cdc.binlog.cascading_keys import CascadingKey
from airflow_provider_mysql_cdc.cdc.binlog.grants import Grants
from airflow_provider_mysql_cdc.cdc.binlog.registered_clients import RegisteredClient
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.model.finding import ERROR, Finding


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Hold what the server says about itself.

    Args:
        address: ``host:port`` for messages.
        variables: Global variables by name; those a version does not have are absent.
        grants: Privileges of the account.
        replicas: Registered replication clients.
        unlogged_keys: Foreign keys of captured tables whose cascades the server does not log.
        account: The account as GRANT takes it.
        all_grants: Its privileges with all its roles active; None where it has none.
        login: User and host of the connection, in the same form.
        coverage: What its binlog does not contain.
        rds_retention_s: Seconds for which Amazon RDS keeps the binlog; None on other servers, and where it is unknown.
    """

    address: str
    variables: Mapping[str, str]
    grants: Grants
    replicas: tuple[RegisteredClient, ...] = ()
    unlogged_keys: tuple[CascadingKey, ...] = ()
    account: str = "the account"
    all_grants: Grants | None = None
    login: str = "the account"
    coverage: BinlogCoverage = field(default_factory=BinlogCoverage)
    rds_retention_s: int | None = None

    @property
    def is_anonymous(self) -> bool:
        """Whether the server has taken the connection for that of an account without a name."""
        return self.account.startswith("''@")

    def is_on(self, name: str) -> bool:
        """Return whether a switch is on."""
        return self.variables.get(name, "").upper() in ("ON", "1")


@dataclass(frozen=True, slots=True)
class RunRequirements:
    """Hold what a run needs.

    Args:
        snapshot: Whether tables will be read, not only the binlog.
        takes_locks: Whether the snapshot takes a lock.
        include_query: Whether ``include.query`` is set.
        server_ids: Replication client ids of the writers.
        client_name: ``topic.prefix``.
        table_locks: Whether the snapshot may lock table by table where the global lock is refused.
        undrained_s: Seconds since the last batch was committed, if there are changes after it; otherwise None.
        captures_database: Whether the lists let a database's tables be captured.
    """

    snapshot: bool
    takes_locks: bool = True
    include_query: bool = False
    server_ids: range = field(default_factory=lambda: range(0))
    table_locks: bool = True
    client_name: str = ""
    undrained_s: float | None = None
    captures_database: Callable[[str], bool] = field(default=lambda _: True, compare=False)

    @classmethod
    def from_config(cls, cfg: ConnectorConfig, *, snapshot: bool, undrained_s: float | None = None) -> RunRequirements:
        """Take from a configuration what matters here."""
        first = cfg.server_id(0)
        return cls(
            snapshot=snapshot,
            takes_locks=cfg[F.SNAPSHOT_LOCKING_MODE].value != "none",
            include_query=cfg[F.INCLUDE_QUERY],
            server_ids=range(first, first + cfg[F.DRAIN_WRITERS]),
            table_locks=cfg[F.SNAPSHOT_LOCKING_MODE].value != "minimal_percona_no_table_locks",
            client_name=cfg.topic_prefix,
            undrained_s=undrained_s,
            captures_database=cfg.captures_database,
        )


def error_finding(cls: type[CdcError], facts: ServerFacts, what: str, why: str, fix: str) -> Finding:
    """Return a finding that ends the run.

    Args:
        cls: The class of its error.
        facts: The server.
        what: What is wrong.
        why: Why that matters.
        fix: What to do.
    """
    return Finding(ERROR, what, why, fix, cls(what, where=facts.address, why=why, remedy=fix))
