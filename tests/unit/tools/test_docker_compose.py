"""docker-compose.yaml is sound and agrees with the scripts, checked without a container engine."""

from __future__ import annotations

import re
from typing import Any

import yaml
from kit.cases import case
from stacklib import settings

COMPOSE = settings.REPOSITORY / "docker-compose.yaml"
TEXT = COMPOSE.read_text(encoding="utf-8")
DOCUMENT: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = DOCUMENT["services"]

SERVICE_KEYS = set(
    "image build command entrypoint environment configs ports volumes healthcheck depends_on".split()  # noqa: SIM905
)


def locked(package: str) -> str:
    match = re.search(rf"^{package}==(\S+)", (settings.REPOSITORY / "requirements.lock").read_text("utf-8"), re.M)
    assert match, f"{package} is not in requirements.lock"
    return match[1]


def mysql_options() -> dict[str, str]:
    return dict(option.removeprefix("--").split("=", 1) for option in SERVICES["mysql"]["command"])


def test_top_level_holds_only_what_the_compose_specification_knows() -> None:
    known = {"name", "services", "volumes", "configs"}
    assert {key for key in DOCUMENT if not key.startswith("x-")} == known


def test_every_service_can_be_started_alone_and_says_when_it_is_up() -> None:
    for name, service in SERVICES.items():
        with case(name):
            assert set(service) <= SERVICE_KEYS
            assert not service["image"].endswith(":latest") and ":" in service["image"]
            check = service["healthcheck"]
            assert check["test"][0] in {"CMD", "CMD-SHELL"} and len(check["test"]) >= 2
            assert check["retries"] > 0
            assert all(re.fullmatch(r"\d+s", check[key]) for key in ("interval", "timeout"))
            assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
            waits = service.get("depends_on", {})
            assert waits.keys() <= SERVICES.keys()
            assert all(how == {"condition": "service_healthy"} for how in waits.values())
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                there = (
                    (settings.REPOSITORY / source).is_dir() if source.startswith(".") else source in DOCUMENT["volumes"]
                )
                assert there, source
            assert all(config["source"] in DOCUMENT["configs"] for config in service.get("configs", []))


def test_every_variable_has_a_default() -> None:
    used = re.findall(r"\$\{?[^\s\"']*", TEXT)
    assert used
    for variable in used:
        assert re.match(r"\$\{[A-Z_]+:-[^}]+\}", variable), variable


def test_published_host_ports_differ() -> None:
    ports = [re.search(r":-(\d+)\}", port) for service in SERVICES.values() for port in service.get("ports", [])]
    numbers = [match[1] for match in ports if match]
    assert len(numbers) == len(set(numbers)) == len(SERVICES)


def test_images_are_the_versions_of_the_scripts() -> None:
    assert SERVICES["mysql"]["image"] == settings.MYSQL_IMAGE
    assert SERVICES["kafka"]["image"] == settings.KAFKA_IMAGE
    assert SERVICES["registry"]["image"] == settings.REGISTRY_IMAGE
    assert SERVICES["spark"]["image"] == SERVICES["airflow"]["image"]
    assert SERVICES["spark"]["build"] == SERVICES["airflow"]["build"]


def test_airflow_and_spark_are_the_locked_versions() -> None:
    dockerfile = SERVICES["airflow"]["build"]["dockerfile_inline"]
    assert dockerfile.startswith(f"FROM {settings.AIRFLOW_BASE_IMAGE}\n")
    assert locked("apache-airflow") == settings.AIRFLOW_VERSION
    assert locked("pyspark") == settings.SPARK_VERSION
    assert "-r /opt/airflow/project/requirements.lock" in dockerfile


def test_image_build_sees_what_it_copies() -> None:
    lines = (settings.REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
    assert lines[0] == "*"
    for name in ("requirements.lock", "pyproject.toml", "airflow_provider_mysql_cdc", "dags", "spark_jobs"):
        assert f"!{name}" in lines


def test_mysql_runs_with_the_settings_of_the_scripts() -> None:
    assert mysql_options() == {**settings.MYSQL_REPLICATION, **settings.MYSQL_DEVELOPMENT}


def test_kafka_runs_with_the_settings_of_the_scripts() -> None:
    environment = SERVICES["kafka"]["environment"]
    for name, value in settings.KAFKA_BROKER.items():
        assert environment["KAFKA_" + name.upper().replace(".", "_")] == value
    assert environment["KAFKA_HEAP_OPTS"] == settings.KAFKA_HEAP


def test_kafka_listeners_are_mapped_and_advertised_consistently() -> None:
    environment = SERVICES["kafka"]["environment"]
    names = {part.split("://")[0] for part in environment["KAFKA_LISTENERS"].split(",")}
    assert {part.split(":")[0] for part in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")} == names
    advertised = {part.split("://")[0] for part in environment["KAFKA_ADVERTISED_LISTENERS"].split(",")}
    assert advertised == names - {environment["KAFKA_CONTROLLER_LISTENER_NAMES"]}


def test_the_capture_account_has_the_grants_of_the_scripts() -> None:
    sql = DOCUMENT["configs"]["mysql-accounts"]["content"]
    grants = re.search(r"GRANT (.*) ON \*\.\* TO '(\w+)'@'%'", sql)
    assert grants and grants[2] == settings.MYSQL_CDC_USER
    assert sorted(grants[1].split(", ")) == sorted(settings.MYSQL_CDC_GRANTS)
    assert sql.startswith("SET SESSION sql_log_bin=0;")
    assert "caching_sha2_password" in sql


def test_airflow_connections_are_json_that_names_the_services() -> None:
    environment = SERVICES["airflow"]["environment"]
    connections = {name: yaml.safe_load(text) for name, text in environment.items() if name.startswith("AIRFLOW_CONN_")}
    mysql = connections["AIRFLOW_CONN_MYSQL_CDC_DEFAULT"]
    assert (mysql["host"], mysql["login"], mysql["conn_type"]) == ("mysql", settings.MYSQL_CDC_USER, "mysql_cdc")
    kafka = connections["AIRFLOW_CONN_" + mysql["extra"]["kafka_conn_id"].upper()]["extra"]["bootstrap.servers"]
    assert f"PLAINTEXT://{kafka}" in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert connections["AIRFLOW_CONN_SPARK_CDC"]["host"] == "spark://spark"
