"""Choose one of the servers in ``database.hostname``, so that everything of a job reads the same one."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server, connect, no_answer_error
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.model.log import Log


@dataclass(frozen=True, slots=True)
class _Answer:
    """Hold a server that answers.

    Args:
        settings: How to reach it.
        uuid: Its server_uuid.
    """

    settings: ConnectionSettings
    uuid: str


def at_one_server(cfg: ConnectorConfig, store: OffsetStore, log: Log) -> ConnectorConfig:
    """Return the configuration with one server in ``database.hostname``; itself if it has one.

    The server that the stream was read from is kept if it answers; otherwise the first one that answers is taken. It is
    not asked here whether the stream can go on there: a server that is refused stops the run, which names it.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        log: Receives one line of text.

    Raises:
        SourceConnectionError: No server answers; each is named, and why.
        SourceError: A server answers, and refuses the account.
    """
    settings = cfg.connection_settings()
    if not settings.alternatives:
        return cfg
    former = _former_server(store)
    answer, silent = _choose(settings, former)
    reasons = "".join(f"; {error.where} does not: {error.why}" for error in silent)
    kept = ", from which the stream was read," if former is not None and answer.uuid.lower() == former.lower() else ""
    address = answer.settings.address()
    log(f"of the servers in database.hostname, {address} (server {answer.uuid}){kept} answers{reasons}")
    return cfg.at_server(answer.settings.host, answer.settings.port)


def _former_server(store: OffsetStore) -> str | None:
    """Return server_uuid of the server that the stored plan or offset belongs to; None if there is none."""
    state = store.load()
    if state is None:
        return None
    offset = state.committed if state.pending is None else state.pending.start
    return None if offset is None else offset.server_uuid


def _choose(settings: ConnectionSettings, former: str | None) -> tuple[_Answer, list[SourceConnectionError]]:
    first: _Answer | None = None
    silent: list[SourceConnectionError] = []
    for server in settings.each():
        try:
            with connect(server) as conn:
                answer = _Answer(server, answering_server(conn))
        except SourceConnectionError as error:
            silent.append(error)
            continue
        if former is None or answer.uuid.lower() == former.lower():
            return answer, silent
        first = first or answer
    if first is None:
        raise no_answer_error(silent)
    return first, silent
