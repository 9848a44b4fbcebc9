"""Choose one of the servers in ``database.hostname`` by one rule, and find out that it was left behind.

Choose one of the servers in ``database.hostname``: the one rule by which all that asks the source asks the same one.

The server that the stream was read from is kept if it answers. Otherwise it is the first one that has executed all
transactions of the stream's offset, so that the stream can go on there; and if none has, the first one that answers. It
is not asked here whether the stream can go on: a server that is refused stops the run, which names it. A server that
is behind another one of the list, from which it does not replicate, is refused here (``require_not_left_behind``).

Find out that the server which is to be read was left behind: another one of the list was promoted.

A former primary comes back after a crash, answers, and has nothing new, while applications write to the other one.
GTIDs show it: the other one has executed transactions that it lacks, and neither takes them from the other. Without
GTIDs nothing tells which of two servers is ahead, so two that do not replicate from each other are refused as well,
unless one is a replica that was stopped: it is read_only, and a server that is promoted is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.binlog.binlog_coverage import ReplicaChannel, replica_channels
from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server, connect, fetch_all
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError, SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

ASK_TIMEOUT_S = 3.0
"""Longest wait for another server of the list, in seconds: each look at the source asks them all."""
_EXECUTED_WAIT_S = 1
"""A transaction is sent to replicas, and on to theirs, before it counts as executed; semi-synchronous replication
stretches that."""
_SHOWN_CHARS = 300
_JOINED = frozenset({"ONLINE", "RECOVERING"})


@dataclass(frozen=True, slots=True)
class _ListedServer:
    """Hold what a server says.

    Args:
        address: ``host:port``.
        uuid: Its server_uuid.
        executed: Its GTID set; None if it does not give every transaction a GTID.
        channels: How it replicates.
        read_only: Whether it takes no writes of applications.
        group: Members of its replication group; None where nothing tells.
    """

    address: str
    uuid: str
    executed: str | None
    channels: tuple[ReplicaChannel, ...]
    read_only: bool
    group: frozenset[str] | None

    def follows(self, other: _ListedServer, unless_known: str = "") -> bool:
        """Return whether it takes transactions of another server, or will when it has connected again.

        Args:
            other: The other server.
            unless_known: server_uuid that counts for a channel which has not been connected yet.
        """
        uuids = {(c.source_uuid or unless_known).lower() for c in self.channels if c.receives != "No"}
        return other.uuid.lower() in uuids

    def rests(self, other: _ListedServer) -> bool:
        """Return whether it is a replica of another server that was stopped, and was not promoted."""
        return self.read_only and any(c.source_uuid.lower() == other.uuid.lower() for c in self.channels)

    def __str__(self) -> str:
        return f"{self.address} (server {self.uuid})"


def require_not_left_behind(
    chosen: ConnectionSettings, others: Iterable[ConnectionSettings], counts: Callable[[str], bool], log: Log
) -> None:
    """Refuse a server of a list if another one has gone on without it.

    Args:
        chosen: How to reach it.
        others: How to reach the others; those that do not answer, or refuse the account, are passed over.
        counts: Says of a server's uuid whether its transactions count (``gtid.source.*``).
        log: Receives one line about each that is passed over, and about a replica with transactions of its own.

    Raises:
        ServerChangedError: Another one has transactions that it lacks, and it replicates from none; or neither has
            GTIDs, nor replicates from the other.
        SourceError: It cannot be asked.
    """
    # Before the chosen one: what is committed there meanwhile is no difference.
    asked = [answer for settings in others if (answer := _ask_other(settings, log)) is not None]
    if not asked:
        return
    with connect(chosen) as conn:
        here = _ask_listed(conn, chosen)
        if here.group is None:
            return
        if here.group:
            asked = [other for other in asked if other.group and here.uuid.lower() not in other.group]
        replicas = _replicas(here, asked)
        for other in asked:
            if other.uuid.lower() != here.uuid.lower() and not here.follows(other):
                _compare(conn, here, other, other in replicas, counts, log)


def _replicas(here: _ListedServer, asked: Sequence[_ListedServer]) -> list[_ListedServer]:
    """Return the servers that take transactions of one, also by way of each other."""
    found = [other for other in asked if other.follows(here, here.uuid)]
    for source in found:  # grows meanwhile
        found += [other for other in asked if other not in found and other.follows(source)]
    return found


def _compare(
    conn: MySqlConnection,
    here: _ListedServer,
    other: _ListedServer,
    is_replica: bool,
    counts: Callable[[str], bool],
    log: Log,
) -> None:
    sources = [channel for channel in here.channels if channel.receives == "Yes"]
    if here.executed is None or other.executed is None:
        if not sources and not is_replica and not other.rests(here):
            raise _left_behind_error(
                here,
                other,
                "answers too, and without GTIDs it cannot be told which of them has the newest changes, unless one "
                "is a replica of the other that replicates, or was stopped and is read_only",
            )
        return
    ahead = _lacking(conn, other.executed, here.channels).of_sources(counts)
    if ahead:
        fetch_all(conn, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (str(ahead), _EXECUTED_WAIT_S))
        ahead = _lacking(conn, str(ahead), tuple(replica_channels(conn)))
    if ahead and not is_replica and not sources:
        raise _left_behind_error(here, other, f"has executed {_shown(ahead)}, which it lacks")
    if ahead and not is_replica:
        log(
            f"WARNING: {other} has executed {_shown(ahead)}, which the server that is read, {here}, lacks and has not "
            f"received from {sources[0]}: it is far behind, or never gets them; if {other.address} was promoted, set "
            "database.hostname to it alone"
        )
    elif ahead:
        log(
            f"WARNING: {other}, a replica of the server that is read, has executed {_shown(ahead)} by itself; if it is "
            "promoted, the stream may be refused there"
        )


def _ask_other(settings: ConnectionSettings, log: Log) -> _ListedServer | None:
    """Return what a server says; None if it does not answer, or refuses the account."""
    limit_s = min(settings.connect_timeout_s or ASK_TIMEOUT_S, ASK_TIMEOUT_S)
    try:
        with connect(replace(settings, connect_timeout_s=limit_s)) as conn:
            return _ask_listed(conn, settings)
    except SourceError as error:
        log(
            f"WARNING: {settings.address()} of database.hostname cannot be asked whether it has gone on without the "
            f"server that is read: {error.what} ({error.why})"
        )
        return None


def _ask_listed(conn: MySqlConnection, settings: ConnectionSettings) -> _ListedServer:
    names = "@@server_uuid, @@GLOBAL.gtid_mode, @@GLOBAL.gtid_executed, @@GLOBAL.read_only"
    uuid, mode, executed, read_only = fetch_all(conn, f"SELECT {names}")[0]
    gtids = str(executed) if mode == "ON" else None
    return _ListedServer(
        settings.address(), str(uuid), gtids, tuple(replica_channels(conn)), bool(int(read_only)), _group(conn)
    )


def _lacking(conn: MySqlConnection, executed: str, channels: Iterable[ReplicaChannel]) -> GtidSet:
    """Return the transactions of a set that a server has neither executed nor received."""
    text = fetch_all(conn, "SELECT GTID_SUBTRACT(%s, @@GLOBAL.gtid_executed)", (executed,))[0][0]
    lacking = GtidSet.parse(str(text))
    for channel in channels if lacking else ():
        if channel.receives == "Yes":
            lacking = lacking.subtract(GtidSet.parse(channel.retrieved))
    return lacking


def _group(conn: MySqlConnection) -> frozenset[str] | None:
    """Return the members of a server's replication group that it reaches; none if it is in none, or cut off from most.

    A member that is cut off stays ONLINE, for ever by default, and has nothing new
    (group_replication_unreachable_majority_timeout; MySQL 9.7.4). None where the account may not see them, and for a
    Galera cluster.
    """
    names = "'group_replication_group_name', 'wsrep_cluster_address'"
    found = {str(n): str(v) for n, v in fetch_all(conn, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")}
    if found.get("wsrep_cluster_address"):
        return None
    if not found.get("group_replication_group_name"):
        return frozenset()
    query = "SELECT MEMBER_ID, MEMBER_STATE FROM performance_schema.replication_group_members"
    try:
        states = {str(uuid).lower(): str(state) for uuid, state in fetch_all(conn, query)}
    except SourceConnectionError:
        raise
    except SourceError:
        return None
    joined = frozenset(uuid for uuid, state in states.items() if state in _JOINED)
    return joined if 2 * len(joined) > len(states) else frozenset()


def _left_behind_error(here: _ListedServer, other: _ListedServer, what: str) -> ServerChangedError:
    return ServerChangedError(
        "the server that is to be read may have been left behind by another one of the list",
        where=f"{here}, database.hostname",
        why=f"{other} {what}; and neither takes the changes of the other",
        remedy=f"if {other.address} was promoted, set database.hostname to it alone, or let {here.address} replicate "
        f"from it; if {here.address} is the primary, take {other.address} out of database.hostname until it "
        "replicates from the primary",
    )


def _shown(gtids: GtidSet) -> str:
    text = str(gtids)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold a server that answers.

    Args:
        settings: How to reach it.
        uuid: Its server_uuid.
        kept: Whether the stream was read from it.
        lacks: Whether it has not executed all transactions of the stream's offset.
    """

    settings: ConnectionSettings
    uuid: str
    kept: bool = False
    lacks: bool = False


def at_one_server(cfg: ConnectorConfig, store: OffsetStore, log: Log) -> ConnectorConfig:
    """Return the configuration with the server of the stored offset, whose connections refuse any other one.

    Args:
        cfg: The connector's configuration; returned as it is if it was chosen before.
        store: Airflow's offset store.
        log: Receives one line of text.

    Raises:
        ServerChangedError: It was left behind by another server of the list.
        SourceConnectionError: No server answers; each is named, and why.
        SourceError: A server answers, and refuses the account.
    """
    if cfg.server_uuid is not None:
        return cfg
    if len(cfg.servers()) == 1:
        with connect(cfg.connection_settings()) as conn:
            return cfg.of_server(answering_server(conn))
    return _at_server(cfg, lambda: _stored_offset(store), log, newest=True)


def at_server_of_ledger(cfg: ConnectorConfig, *, newest: bool = False) -> ConnectorConfig:
    """Return the configuration with the server that the ledger's last batch was read from; itself if it has one server.

    Args:
        cfg: The connector's configuration.
        newest: Whether to refuse a server that was left behind by another one of the list.

    Raises:
        ServerChangedError: It was left behind.
        SourceConnectionError: No server answers; each is named, and why.
        SourceError: A server answers, and refuses the account.
        SinkError: There are several servers, and Kafka does not answer.
    """
    return _at_server(cfg, lambda: offset_of_ledger(kafka_clients.ledger(cfg).peek()), newest=newest)


def at_server_of(cfg: ConnectorConfig, offset: BinlogOffset | None, *, newest: bool = False) -> ConnectorConfig:
    """Return the configuration with the server of an offset; itself if it has one server.

    Args:
        cfg: The connector's configuration.
        offset: The stream's offset; None if it has none.
        newest: Whether to refuse a server that was left behind by another one of the list.

    Raises:
        ServerChangedError: It was left behind.
        SourceConnectionError: No server answers; each is named, and why.
        SourceError: A server answers, and refuses the account.
    """
    return _at_server(cfg, lambda: offset, newest=newest)


def offset_of_ledger(ledger: LedgerState) -> BinlogOffset | None:
    """Return the end of the ledger's last batch, or the start of one that is not complete; None if there is none.

    Args:
        ledger: The ledger.
    """
    plan = ledger.plan
    return None if plan is None else ledger.end() or plan.start


def _stored_offset(store: OffsetStore) -> BinlogOffset | None:
    """Return the stored offset, or the start of a batch that is not finished; None if there is none."""
    state = store.load()
    if state is None:
        return None
    return state.committed if state.pending is None else state.pending.start


def _at_server(
    cfg: ConnectorConfig,
    read_offset: Callable[[], BinlogOffset | None],
    log: Log = lambda _: None,
    *,
    newest: bool,
) -> ConnectorConfig:
    servers = cfg.servers()
    if len(servers) == 1:
        return cfg
    offset = read_offset()
    chosen, reasons = choose((_ask(server, offset) for server in servers), any_fits=offset is None)
    kept = ", from which the stream was read," if chosen.kept else ""
    log(
        f"of the servers in database.hostname, {chosen.settings.address()} (server {chosen.uuid}){kept} answers"
        + "".join(f"; {reason}" for reason in reasons)
    )
    if newest and offset is not None:
        others = [server for server in servers if server != chosen.settings]
        require_not_left_behind(chosen.settings, others, cfg.counts_gtid_source, log)
    return cfg.at_server(chosen.settings.host, chosen.settings.port).of_server(chosen.uuid)


def choose(asked: Iterable[Answer | SourceConnectionError], *, any_fits: bool) -> tuple[Answer, list[str]]:
    """Return the server to ask, and why others are not.

    Args:
        asked: What each server answers, in order, or why it does not; not read further than is needed.
        any_fits: Whether the stream has no offset, so that the first server that answers is as good as another.

    Raises:
        SourceConnectionError: No server answers.
    """
    silent: list[SourceConnectionError] = []
    lagging: list[Answer] = []
    fit: Answer | None = None
    for answer in asked:
        if isinstance(answer, SourceConnectionError):
            silent.append(answer)
        elif answer.kept or any_fits:
            fit = answer
            break
        elif answer.lacks:
            lagging.append(answer)
        else:
            fit = fit or answer
    if fit is None and not lagging:
        raise _no_answer_error(silent)
    reasons = [f"{error.where} does not: {error.why}" for error in silent]
    if fit is None:
        return lagging[0], reasons
    passed_over = [] if fit.kept else lagging
    return fit, reasons + [f"{other.settings.address()} lacks transactions of the offset" for other in passed_over]


def _ask(server: ConnectionSettings, offset: BinlogOffset | None) -> Answer | SourceConnectionError:
    """Return what a server says of itself and of an offset, or why it does not answer.

    Raises:
        SourceError: It refuses the account.
    """
    gtids = "" if offset is None else offset.gtids or ""
    query = "SELECT @@server_uuid, GTID_SUBSET(%s, @@GLOBAL.gtid_executed)"
    try:
        with connect(server) as conn:
            uuid, has_all = fetch_all(conn, query, (gtids,))[0]
    except SourceConnectionError as error:
        return error
    kept = offset is not None and (offset.server_uuid or "").lower() == str(uuid).lower()
    return Answer(server, str(uuid), kept, not has_all)


def _no_answer_error(errors: list[SourceConnectionError]) -> SourceConnectionError:
    """Return the error of several servers of which none answers."""
    return SourceConnectionError(
        "none of the servers in database.hostname answers",
        where=", ".join(error.where for error in errors),
        why="; ".join(f"{error.where}: {error.why or error.what}" for error in errors),
        remedy=errors[0].remedy,
        retriable=any(error.can_retry for error in errors),
    )
