"""Airflow's API server with the page, in this process: DAGs in the metadata database, users, and their tokens."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from airflow.sdk import DAG

PASSWORD = "pa55-of-the-page"
KAFKA_PASSWORD = "pa55-of-its-kafka"
NOWHERE = 1
"""A port at which nobody listens."""


def define_connection(monkeypatch: pytest.MonkeyPatch, conn_id: str, prefix: str, **more: Any) -> None:
    """Define a connection whose server and Kafka do not answer."""
    value = {
        "conn_type": "mysql_cdc",
        "host": "127.0.0.1",
        "port": NOWHERE,
        "login": "cdc",
        "password": PASSWORD,
        "extra": {
            "topic.prefix": prefix,
            "kafka.bootstrap.servers": f"127.0.0.1:{NOWHERE}",
            "kafka.sasl.username": "cdc",
            "kafka.sasl.password": KAFKA_PASSWORD,
            **more,
        },
    }
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(value))


def store_dags(dags: Mapping[str, DAG], bundle: str = "dags-folder") -> None:
    """Store DAGs in the metadata database, as the DAG processor does."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    add_bundle(bundle)
    bag = DagBag(dag_folder=os.devnull, bundle_name=bundle)
    for dag in dags.values():
        bag.bag_dag(dag)
    sync_bag_to_db(bag, bundle, None)


def add_bundle(name: str, team: str = "") -> None:
    """Add a bundle, of a team or of nobody."""
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.team import Team
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        bundle = session.scalar(select(DagBundleModel).where(DagBundleModel.name == name))
        if bundle is None:
            bundle = DagBundleModel(name=name)
            session.add(bundle)
        if team:
            owner = session.scalar(select(Team).where(Team.name == team)) or Team(name=team)
            bundle.teams = [owner]


@contextmanager
def connection_of_team(conn_id: str, conn_type: str, team: str) -> Iterator[None]:
    """Store a connection of a team in the metadata database."""
    from airflow.models import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        session.add(Connection(conn_id=conn_id, conn_type=conn_type, team_name=team))
    try:
        yield
    finally:
        with create_session() as session:
            session.execute(delete(Connection).where(Connection.conn_id == conn_id))


def forget_dags() -> None:
    """Delete all DAGs with their runs and events."""
    from airflow.models.asset import AssetEvent
    from airflow.models.dag import DagModel
    from airflow.models.dag_version import DagVersion
    from airflow.models.dagrun import DagRun
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        for model in (AssetEvent, DagRun, SerializedDagModel, DagVersion, DagModel):
            session.execute(delete(model))


def create_api() -> Any:
    """Return Airflow's API server with the plugin that the package declares."""
    from airflow import plugins_manager
    from airflow.api_fastapi.app import create_app, purge_cached_app

    purge_cached_app()
    plugins_manager.get_fastapi_plugins.cache_clear()
    return create_app(apps="core")


def token(name: str, role: str | None, teams: list[str] | None = None) -> str:
    """Return the token of a user."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    return str(get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=name, role=role, teams=teams or [])))


def bearer(name: str, role: str | None, teams: list[str] | None = None) -> dict[str, str]:
    """Return the header of a request of a user."""
    return {"Authorization": f"Bearer {token(name, role, teams)}"}


@contextmanager
def counted_queries() -> Iterator[list[str]]:
    """Collect the statements that are sent to the metadata database."""
    from airflow import settings
    from sqlalchemy import event

    statements: list[str] = []

    def note(conn: Any, cursor: Any, statement: str, *more: Any) -> None:
        statements.append(statement)

    event.listen(settings.engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(settings.engine, "before_cursor_execute", note)
