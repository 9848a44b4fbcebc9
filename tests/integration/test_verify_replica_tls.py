"""A verification that reads a replica over TLS, on pairs of MySQL 9.7 and 8.0.15."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.private_mysql import PrivateServer, running_server
from kit.records import payload
from kit.replication import start_replica, wait_for_gtids
from kit.sql import execute, rows
from kit.table_rig import FLAT, filled
from kit.tls_files import make_files
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceAuthError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind

DB = "shop"


@pytest.fixture(scope="module", params=["9.7", pytest.param("8.0.15", marks=pytest.mark.exhaustive)])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PrivateServer, PrivateServer]]:
    with (
        running_server(tmp_path_factory, request.param, {"server_id": "101"}) as source,
        running_server(tmp_path_factory, request.param, {"server_id": "102"}) as replica,
        source.connect() as conn,
        replica.connect() as on_replica,
    ):
        execute(on_replica, "SET sql_log_bin = 0", "CREATE USER reader@'%' IDENTIFIED BY 'pass-of-reader' REQUIRE X509")
        execute(on_replica, "GRANT SELECT, RELOAD, REPLICATION CLIENT ON *.* TO reader@'%'", "SET sql_log_bin = 1")
        start_replica(on_replica, source)
        execute(conn, f"CREATE DATABASE {DB}", f"USE {DB}", *filled(DB, "t", count=120))
        yield source, replica


@pytest.fixture
def pipeline(properties: dict[str, str], pair: tuple[PrivateServer, PrivateServer]) -> Pipeline:
    """Return a stream whose verification trusts the authority that the replica has made for itself, and no other."""
    source, replica = pair
    made_by_server = replica.folder / "data"
    more = {
        "database.include.list": DB,
        "verify.replica.database.hostname": "127.0.0.1",
        "verify.replica.database.port": str(replica.port),
        "verify.replica.database.user": "reader",
        "verify.replica.database.password": "pass-of-reader",
        "verify.replica.database.ssl.mode": "verify_ca",
        "verify.replica.database.ssl.ca": str(made_by_server / "ca.pem"),
        "verify.replica.database.ssl.cert": str(made_by_server / "client-cert.pem"),
        "verify.replica.database.ssl.key": str(made_by_server / "client-key.pem"),
    }
    made = Pipeline(properties | FLAT | source.properties() | more)
    made.snapshot()
    return made


def catch_up(pair: tuple[PrivateServer, PrivateServer]) -> None:
    with pair[0].connect() as source, pair[1].connect() as replica:
        wait_for_gtids(replica, rows(source, "SELECT @@GLOBAL.gtid_executed")[0][0])


@pytest.mark.exhaustive
def test_rows_of_the_replica_are_compared(pipeline: Pipeline, pair: tuple[PrivateServer, PrivateServer]) -> None:
    """The account takes certificates only; what the replica alone has is found, so it is the server that was read."""
    source, replica = pair
    with source.connect() as conn, replica.connect() as other:
        execute(conn, f"UPDATE {DB}.t SET v = v + 1 WHERE id % 3 = 0", f"DELETE FROM {DB}.t WHERE id = 5")
        execute(conn, f"INSERT INTO {DB}.t VALUES (5, 3)")
        catch_up(pair)
        assert pipeline.verify().verdict == "equal"
        execute(other, "SET sql_log_bin = 0", f"UPDATE {DB}.t SET v = 77 WHERE id = 7")
        try:
            result = pipeline.verify()
        finally:
            execute(other, f"UPDATE {DB}.t SET v = 0 WHERE id = 7")
        assert [dict(verdict.findings) for verdict in result.tables] == [{DifferenceKind.DIFFERING: 1}]
    assert any("the views are open on the replica" in line for line in pipeline.lines)
    assert payload(pipeline.records("t")[-1].value)["after"]["id"] == 5


def test_a_replica_that_is_not_reached_as_it_demands(pipeline: Pipeline, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, str | None], type[CdcError]]] = [
        ({"ssl.mode": "disabled"}, SourceAuthError),
        ({"ssl.cert": None, "ssl.key": None}, SourceAuthError),
        ({"ssl.ca": make_files(tmp_path).ca}, SourceConnectionError),
    ]
    whole = dict(pipeline.properties)
    for changed, error in cases:
        named = {f"verify.replica.database.{name}": value for name, value in changed.items()}
        pipeline.properties = {name: value for name, value in (whole | named).items() if value is not None}
        with pytest.raises(error, match="the replica of the verification") as caught:
            pipeline.verify()
        assert not caught.value.can_retry and "pass-of-reader" not in str(caught.value), changed
