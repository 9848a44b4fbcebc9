"""A registry behind TLS that asks for the client's certificate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from avrolib.fake_registry import running_registry
from kit.tls_files import KEY_PASSWORD, Files, make_files

from airflow_provider_mysql_cdc.cdc.avro.schema_registry import SchemaRegistry
from airflow_provider_mysql_cdc.cdc.errors import RegistryConnectionError
from airflow_provider_mysql_cdc.cdc.model.connection import RegistrySettings, Secret

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def url(files: Files) -> Iterator[str]:
    with running_registry(files.context(clients=True)) as fake:
        yield fake.url


def ask(url: str, **more: object) -> int:
    registry = SchemaRegistry(RegistrySettings(url=url, retries=0, **more))  # type: ignore[arg-type]
    try:
        return registry.schema_id("t-key", '"string"', "table a.t").number
    finally:
        registry.close()


def test_a_certificate_opens_the_registry(url: str, files: Files) -> None:
    own = {"ssl_cert": files.client, "ssl_key": files.client_key, "ssl_key_password": Secret(KEY_PASSWORD)}
    assert url.startswith("https://")
    assert ask(url, ssl_ca=files.ca, **own) == 1


def test_neither_a_stranger_nor_an_unknown_registry_is_spoken_to(url: str, files: Files) -> None:
    with pytest.raises(RegistryConnectionError):  # the registry asks for a certificate
        ask(url, ssl_ca=files.ca)
    with pytest.raises(RegistryConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        ask(url)
