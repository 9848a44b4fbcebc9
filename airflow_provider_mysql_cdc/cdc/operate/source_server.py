"""Choose one of the servers in ``database.hostname``: the one rule by which all that asks the source asks the same one.

The server that the stream was read from is kept if it answers. Otherwise it is the first one that has executed all
transactions of the stream's offset, so that the stream can go on there; and if none has, the first one that answers. It
is not asked here whether the stream can go on: a server that is refused stops the run, which names it. A server that
is behind another one of the list, from which it does not replicate, is refused here (``left_behind``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server, connect, fetch_all
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate.left_behind import require_not_left_behind


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
