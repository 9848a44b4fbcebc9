"""What a driver makes of the address and the settings of a Spark Connect server, without one."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, DamagedRecordError, StateError
from airflow_provider_mysql_cdc.cdc.fleet.fleet_spec import FLEET_MODE
from airflow_provider_mysql_cdc.cdc.job.job_spec import ConnectSettings, JobSpec
from airflow_provider_mysql_cdc.cdc.model.job_names import CONNECT_VARIABLE
from airflow_provider_mysql_cdc.spark import connect_main
from airflow_provider_mysql_cdc.spark.connect_channel import ServerAddress, connect_error
from airflow_provider_mysql_cdc.spark.connect_session import first_not_ended, session_family
from airflow_provider_mysql_cdc.spark.main import session_name

URL = "sc://spark.example:15003/;token=secret;use_ssl=True"


def test_settings_are_read_once_from_the_inherited_file(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ConnectSettings(URL, {"spark.mysqlcdc.slots": "4"}, ("/a.tar.gz#a",), ("/b.zip",))
    assert "secret" not in repr(settings)
    fd = os.memfd_create("test")
    os.write(fd, b"x" * 4096)
    settings.write(fd)
    monkeypatch.setenv(CONNECT_VARIABLE, str(fd))
    assert connect_main.inherited_settings() == settings
    assert CONNECT_VARIABLE not in os.environ and connect_main.inherited_settings() is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_file_with_something_else_is_named() -> None:
    fd = os.memfd_create("test")
    os.write(fd, b'{"conf": {}}')
    with pytest.raises(DamagedRecordError, match="settings of Spark Connect"):
        ConnectSettings.read(fd)


def test_the_server_is_named_without_its_token() -> None:
    address = ServerAddress.parse(URL)
    assert str(address) == "spark.example:15003" and "secret" not in repr(address)
    assert str(ServerAddress.parse("sc://spark.example")) == "spark.example:15002"
    assert str(ServerAddress.parse("sc://[::1]:7/")) == "[::1]:7"


def test_jobs_of_a_stream_or_of_a_fleet_task_have_one_session() -> None:
    def name(mode: str, owner: str, **properties: str) -> str:
        return session_name(JobSpec(mode, dict(properties), {}, owner))

    assert name("drain", "d/r1/t/-1", **{"topic.prefix": "shop"}) == name(
        "verify", "v/r2/t/-1", **{"topic.prefix": "shop"}
    )
    fleet = name(FLEET_MODE, "d/r1/t/-1", **{"stream.0": "{}"})
    assert fleet and fleet == name(FLEET_MODE, "d/r2/t/-1", **{"stream.0": "{}", "stream.1": "{}"})
    assert len({fleet, *(name(FLEET_MODE, owner) for owner in ("d/r1/t2/-1", "d2/r1/t/-1", "d/r1/t/1"))}) == 4


def test_a_session_depends_on_all_that_it_keeps(tmp_path: Path) -> None:
    archive = tmp_path / "environment.tar.gz"
    archive.write_bytes(b"one")
    settings = ConnectSettings(URL, {"a": "1", "b": "2"}, (f"{archive}#environment",))
    family = session_family(settings, "shop")
    assert family == session_family(ConnectSettings("sc://other", {"b": "2", "a": "1"}, settings.archives), "shop")
    others = [
        session_family(settings, "shop2"),
        session_family(ConnectSettings(URL, {"a": "1", "b": "3"}, settings.archives), "shop"),
    ]
    archive.write_bytes(b"another")
    others.append(session_family(settings, "shop"))
    assert len({family, *others}) == 4


@pytest.mark.parametrize("ended", [0, 1, 2, 3, 100, 101, 1000, 100_000])
def test_the_session_behind_all_that_have_ended_is_found_in_a_few_questions(ended: int) -> None:
    """Also where the server has forgotten some: it remembers a number of them, and the last ones asked for."""
    asked: list[int] = []

    def has_ended(number: int) -> bool:
        asked.append(number)
        return number < ended

    assert first_not_ended(has_ended) == ended and len(asked) <= 2 * ended.bit_length() + 1
    for seed in range(20):
        remembered = set(random.Random(seed).sample(range(ended), min(ended, 50 * seed)))
        found = first_not_ended(remembered.__contains__)
        assert found not in remembered and (found == 0 or found - 1 in remembered), seed


@for_each(
    ("text", "kind", "what"),
    [
        ("<_InactiveRpcError ... UNAUTHENTICATED Invalid authentication token>", ConfigError, "refuses the client"),
        ("[INVALID_HANDLE.SESSION_CHANGED] The handle x is invalid.", StateError, "session .* has ended"),
        ("[RESPONSE_ALREADY_RECEIVED] INVALID_HANDLE.OPERATION_NOT_FOUND", StateError, "session .* has ended"),
        ("[OPERATION_CANCELED] Operation has been canceled.", StateError, "has cancelled this job"),
        ("UNIMPLEMENTED: Received http2 header with status: 404", StateError, "is not a Spark Connect server.*use_ssl"),
        ("RESOURCE_EXHAUSTED: gRPC message exceeds maximum size 4096: 9000", StateError, "maxInboundMessageSize"),
        ("UNAVAILABLE: errors resolving spark.example:1", StateError, "cannot be reached.*host, port and use_ssl"),
        ("[RETRIES_EXCEEDED] The maximum number of retries", StateError, "cannot be reached"),
        ("UNAVAILABLE: failed to connect to all addresses", StateError, "cannot be reached"),
    ],
)
def test_errors_of_server_and_session_are_named(text: str, kind: type[Exception], what: str) -> None:
    error = connect_error(RuntimeError(text + "\n\nJVM stacktrace:\nat a.b.C"), "spark.example:1")
    assert type(error) is kind and "JVM" not in str(error) and "spark.example:1" in str(error)
    with pytest.raises(kind, match=what):
        raise error
    assert error.can_retry is (kind is StateError)


def test_other_errors_are_not_of_the_server() -> None:
    assert connect_error(RuntimeError("division by zero"), "h:1") is None


@pytest.mark.parametrize(("kind", "parents"), [("connect", 0), ("spark-submit", 1)])
def test_the_parent_of_a_driver_without_a_jvm_is_no_part_of_it(
    kind: str, parents: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault that kills the driver must not kill the Airflow task above it."""
    monkeypatch.setenv("MYSQL_CDC_SPARK_DRIVER", kind)
    faults.set_current_driver()
    try:
        assert faults.driver_pids() == [*[os.getppid()][:parents], os.getpid()]
    finally:
        faults.set_driver_pids([])
