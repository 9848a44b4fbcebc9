"""A real registry that lets nobody in without an account, a token or a certificate, behind TLS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from kit.avro_rig import Readers, avro
from kit.registry_gate import Gate, running_gate
from kit.sql import execute, rows
from kit.tls_files import KEY_PASSWORD, Files, make_files
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import RegistryAuthError, RegistryConnectionError

USER, PASSWORD, TOKEN, SECRET = "cdc@example", "p@ss:w/rd %41", "t0ken.of-a_person", "cl1ent-s3cret"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def gate(registry: str, files: Files) -> Iterator[Gate]:
    with running_gate(registry, files.context(clients=False)) as found:
        yield found


def both(**more: str) -> dict[str, str]:
    """Return properties of both converters; underscores stand for dots."""
    return {f"{part}.converter.{n.replace('_', '.')}": v for part in ("key", "value") for n, v in more.items()}


def prepared(root: Any, database: str, properties: dict[str, str]) -> Pipeline:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1), (2)")
    return Pipeline(properties)


def go_on(pipeline: Pipeline, root: Any, database: str) -> None:
    """Add a column and a row, for which new schemas are asked."""
    execute(root, f"ALTER TABLE `{database}`.t ADD a INT", f"INSERT INTO `{database}`.t VALUES (3, 3)")


def require_all(pipeline: Pipeline, registry: str, root: Any, database: str, topic: str = "") -> None:
    topic, readers = topic or pipeline.table_topic("t"), Readers(registry)
    found = [readers.read(topic, r.key, key=True)["id"] for r in pipeline.read(topic)]
    assert sorted(found) == [number for (number,) in rows(root, f"SELECT id FROM `{database}`.t ORDER BY id")]


def require_silence(pipeline: Pipeline, error: Exception, *secrets: str) -> None:
    """Fail if a secret stands in the log or in an error."""
    said = "\n".join([*pipeline.lines, str(error), repr(error)])
    for secret in secrets:
        assert secret not in said and quote(secret, safe="") not in said


def wrong(properties: dict[str, str], *ends: str) -> dict[str, str]:
    return {n: "wrong:wrong" if n.endswith(ends) else v for n, v in properties.items()}


ACCOUNTS = {
    "an account": both(basic_auth_credentials_source="USER_INFO", basic_auth_user_info=f"{USER}:{PASSWORD}"),
    "a token": both(bearer_auth_credentials_source="STATIC_TOKEN", bearer_auth_token=TOKEN),
}


@pytest.mark.parametrize("kind", list(ACCOUNTS))
@pytest.mark.exhaustive(but="token")
def test_who_shows_what_is_wanted_is_let_in(
    root: Any, properties: dict[str, str], database: str, registry: str, gate: Gate, files: Files, kind: str
) -> None:
    gate.account, gate.token = (f"{USER}:{PASSWORD}", None) if kind == "an account" else (None, TOKEN)
    given = ACCOUNTS[kind] | both(**{"schema.registry.ssl.ca.location": files.ca})
    pipeline = prepared(root, database, properties | avro(gate.url) | wrong(given, "user.info", "auth.token"))
    refused = gate.refused
    with pytest.raises(RegistryAuthError, match="HTTP 401") as found:
        pipeline.snapshot()
    assert gate.refused > refused and not found.value.can_retry
    require_silence(pipeline, found.value, "wrong:wrong")
    pipeline.properties |= given
    gate.passed.clear()
    assert pipeline.snapshot().complete
    assert [method for method, _ in gate.passed].count("POST") >= 2
    # The password is changed while a table gets a new structure.
    go_on(pipeline, root, database)
    gate.account, gate.token = gate.account and "another:one", gate.token and "another"
    with pytest.raises(RegistryAuthError) as found:
        pipeline.drain()
    require_silence(pipeline, found.value, PASSWORD, TOKEN)
    gate.account, gate.token = (f"{USER}:{PASSWORD}", None) if kind == "an account" else (None, TOKEN)
    assert pipeline.drain() is not None
    require_all(pipeline, registry, root, database)
    require_silence(pipeline, ValueError(), PASSWORD, TOKEN)


@pytest.mark.req("AVRO-03", "CFG-127", "EX-35")
def test_the_address_of_ticdc_holds_the_account(
    root: Any, properties: dict[str, str], database: str, registry: str, gate: Gate, files: Files
) -> None:
    gate.account, gate.token = f"{USER}:{PASSWORD}", None
    place = gate.url.removeprefix("https://")
    flat = {
        "value.format": "ticdc-avro",
        "schema-registry": f"https://{quote(USER, safe='')}:{quote(PASSWORD, safe='')}@{place}",
        "dispatchers": '[{"matcher": ["*.*"], "topic": "{schema}_{table}"}]',
        "value.converter.schema.registry.ssl.ca.location": files.ca,
    }
    pipeline = prepared(root, database, properties | flat)
    assert pipeline.snapshot().complete
    go_on(pipeline, root, database)
    assert pipeline.drain() is not None
    require_all(pipeline, registry, root, database, f"{database}_t")
    gate.account = "another:one"
    execute(root, f"ALTER TABLE `{database}`.t ADD b INT", f"INSERT INTO `{database}`.t VALUES (4, 4, 4)")
    with pytest.raises(RegistryAuthError) as found:
        pipeline.drain()
    require_silence(pipeline, found.value, PASSWORD)


@pytest.mark.exhaustive
def test_a_certificate_is_shown_and_looked_at(
    root: Any, properties: dict[str, str], database: str, registry: str, files: Files
) -> None:
    ssl = "schema.registry.ssl."
    own = {f"{ssl}certificate.location": files.client, f"{ssl}key.location": files.client_key}
    with running_gate(registry, files.context(clients=True)) as gate:
        pipeline = prepared(root, database, properties | avro(gate.url))
        with pytest.raises(RegistryConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            pipeline.snapshot()
        pipeline.properties |= both(**{f"{ssl}ca.location": files.ca})
        with pytest.raises(RegistryConnectionError):  # it asks for a certificate
            pipeline.snapshot()
        assert gate.passed == []
        pipeline.properties |= both(**own, **{f"{ssl}key.password": KEY_PASSWORD})
        assert pipeline.snapshot().complete
        go_on(pipeline, root, database)
        assert pipeline.drain() is not None
        require_all(pipeline, registry, root, database)


def test_a_token_server_gives_tokens(root: Any, properties: dict[str, str], database: str, registry: str) -> None:
    with running_gate(registry) as gate:
        gate.client = ("cdc", SECRET)
        given = both(
            bearer_auth_credentials_source="OAUTHBEARER",
            bearer_auth_issuer_endpoint_url=f"{gate.url}/token",
            bearer_auth_client_id="cdc",
            bearer_auth_client_secret="wrong:wrong",
            bearer_auth_scope="schemas",
        )
        pipeline = prepared(root, database, properties | avro(gate.url) | given)
        with pytest.raises(RegistryConnectionError, match="returned no token") as found:
            pipeline.snapshot()
        require_silence(pipeline, found.value, "wrong:wrong")
        pipeline.properties |= both(bearer_auth_client_secret=SECRET)
        assert pipeline.snapshot().complete
        go_on(pipeline, root, database)
        assert pipeline.drain() is not None
        assert gate.given >= 2 and gate.refused == 0
        require_all(pipeline, registry, root, database)
        require_silence(pipeline, ValueError(), SECRET)
