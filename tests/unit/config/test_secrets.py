"""A secret stands in the 0600 spec file and goes to the client, and is seen nowhere else."""

from __future__ import annotations

import json
import logging
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import kafka
from airflow_provider_mysql_cdc.cdc.config import property_sources as sources
from airflow_provider_mysql_cdc.cdc.config.column_rules import load_converter
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.property_names import (
    hide_salt,
    holds_secret,
    is_secret,
    redact,
    salt_of,
    scrub,
)
from airflow_provider_mysql_cdc.cdc.config.read_properties import ALIASES
from airflow_provider_mysql_cdc.cdc.config.reference import render
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.connection import Secret
from airflow_provider_mysql_cdc.cdc.sink import clients
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import client_logger

pytestmark = pytest.mark.quick

MARK = "M4rked-s3cret"
PEM = f"-----BEGIN PRIVATE KEY-----\n{MARK}\n-----END PRIVATE KEY-----"
BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
SECRETS = {
    "database.password": MARK,
    "database.ssl.key.password": MARK,
    "kafka.sasl.password": MARK,
    "kafka.ssl.key.password": MARK,
    "kafka.ssl.key.pem": PEM,
    "kafka.ssl.keystore.password": MARK,
    "kafka.sasl.oauthbearer.config": f"principal=u secret={MARK}",
    "kafka.sasl.oauthbearer.client.secret": MARK,
    "kafka.sasl.oauthbearer.client.credentials.client.secret": MARK,
    "kafka.sasl.oauthbearer.assertion.private.key.passphrase": MARK,
    "kafka.sasl.oauthbearer.assertion.private.key.pem": PEM,
    "admin.override.ssl.keystore.key": PEM,
    "producer.override.sasl.jaas.config": f'o.PlainLoginModule required username="u" password="{MARK}";',
    "schema.history.internal.producer.sasl.jaas.config": f"o.ScramLoginModule required username=u password={MARK};",
    "schema.history.internal.consumer.ssl.key.password": MARK,
    f"column.mask.hash.SHA-256.with.salt.{MARK}": "a.b.c",
    f"column.mask.hash.v2.MD5.with.salt.{MARK}": "a.b.c",
}
WRONG = {
    "database.pasword": MARK,
    "database.passwd": MARK,
    "kafka.ssl.truststore.password": MARK,
    "kafka.sasl.jaas.config": f"none at all {MARK}",
    "producer.override.sasl.jaas.confg": f"o.PlainLoginModule required password={MARK};",
    "kafka.basic.auth.user.info": f"u:{MARK}",
    "value.converter.schema.registry.basic.auth.user.info": f"u:{MARK}",
    "value.converter.schema.registry.ssl.keystore.password": MARK,
    "value.converter.bearer.auth.token": MARK,
    "value.converter.schema.registry.url": f"https://u:{MARK}@r",
    "signal.consumer.sasl.jaas.config": MARK,
    "transforms": "t",
    "transforms.t.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.t.api.password": MARK,
    "converters": "c",
    "c.type": "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter",
    "c.secret": MARK,
    f"column.mask.hash.NO-1.with.salt.{MARK}": "a.b.c",
    f"column.mask.hash.MD5.wiht.slat.{MARK}": "a.b.c",
    f"colum.mask.hash.MD5.with.salt.{MARK}": "a.b.c",
    "kafka.some.setting": PEM,
}


def test_one_function_knows_every_secret() -> None:
    for name in SECRETS:
        assert holds_secret(name), name
        assert MARK not in hide_salt(name)
    for declared in F.ALL:
        assert is_secret(declared.name) is declared.secret, declared.name
    for alias, (declared, _) in ALIASES.items():
        assert is_secret(alias) is declared.secret, alias
    found = {name for name in kafka.ALL_SETTINGS if is_secret(name)}
    assert found == {
        "sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config", "sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password",
    }  # fmt: skip
    assert all(f"`{name}`" in render() for name in (*found, "sasl.jaas.config", "ssl.keystore.key"))


@for_each(
    "name",
    [
        "snapshot.select.statement.overrides.app.tokens",
        "snapshot.select.statement.overrides.app.password",
        "snapshot.select.statement.overrides.hash.salt",
        "transforms.token.regex",
        "transforms.maskPassword.type",
        "tokens.selector",
        "kafka.sasl.oauthbearer.token.endpoint.url",
        "kafka.sasl.oauthbearer.client.credentials.client.id",
        "kafka.sasl.oauthbearer.assertion.private.key.file",
        "column.exclude.list",
        "column.mask.with.10.chars",
        "message.key.columns",
        "kafka.ssl.key.location",
    ],
)
def test_what_only_sounds_like_a_secret_is_none(name: str) -> None:
    assert not holds_secret(name)
    assert hide_salt(name) == name


@pytest.mark.parametrize(
    ("name", "salt"),
    [
        ("column.mask.hash.SHA-256.with.salt.a.b", "a.b"),
        ("column.mask.hash.v2.SHA-256.with.salt.xmask.a.b", "xmask.a.b"),
        ("column.mask.hash.SHA-256.slat.a", "slat.a"),
    ],
)
def test_a_salt_is_everything_after_the_algorithm(name: str, salt: str) -> None:
    assert salt_of(name) == salt
    assert salt not in hide_salt(name)


def everything(cfg: ConnectorConfig) -> str:
    """Return every text that a configuration and what is made of it show."""
    objects: list[Any] = [
        cfg, cfg.redacted_properties(), cfg.notes, cfg.families, cfg.families.columns,
        cfg.connection_settings(), cfg.values,
        JobSpec("drain", cfg.properties(), {}, "o"), cfg.families.columns.rules, [cfg[f] for f in F.ALL],
        *(cfg.kafka_settings(role) for role in (None, "producer", "consumer", "admin")),
        clients.common_settings(cfg.kafka_settings()), clients.producer_settings(cfg.kafka_settings(), "t", 20_000),
    ]  # fmt: skip
    return "\n".join(f"{o!r} {o}" for o in objects)


def test_no_secret_shows_in_anything_made_of_a_configuration() -> None:
    cfg = ConnectorConfig.from_properties({**BASE, **SECRETS})
    assert MARK not in everything(cfg)
    assert MARK not in everything(pickle.loads(pickle.dumps(cfg)))
    source = sources.params_source(SECRETS)
    assert MARK not in f"{source!r} {sources.merge_sources([source])!r}"


@for_each("name", sorted(WRONG))
def test_no_error_shows_a_secret(name: str) -> None:
    assert MARK not in str(ConnectorConfig.check({**BASE, name: WRONG[name]}))


def test_no_error_of_many_problems_shows_a_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        sources.load_config([sources.params_source({**BASE, **SECRETS, **WRONG, "database.port": "x"})])
    assert len(caught.value.why.splitlines()) > 15
    assert MARK not in f"{caught.value} {caught.value.to_json()} {caught.value!r}"
    for name in SECRETS:
        wrong = {**BASE, name: "${file:/x:" + MARK + "}"}
        assert MARK not in str(ConnectorConfig.check(wrong)), name


def test_contradicting_names_of_one_secret_show_neither() -> None:
    old, new = "database.history.producer.ssl.key.password", "schema.history.internal.producer.ssl.key.password"
    problems = ConnectorConfig.check({**BASE, old: MARK, new: MARK + "2"})
    assert "contradicts" in str(problems) and MARK not in str(problems)


def test_secrets_stand_in_the_spec_file_which_is_its_owners_alone(tmp_path: Path) -> None:
    cfg = ConnectorConfig.from_properties({**BASE, **SECRETS})
    path = tmp_path / "spec.json"
    JobSpec("drain", cfg.properties(), {"epoch": 1}, "o").write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert ConnectorConfig.from_properties(JobSpec.read(path).properties).properties() == cfg.properties()
    assert json.loads(path.read_text())["properties"]["database.password"] == MARK


def test_the_client_gets_secrets_in_clear_and_its_complaints_hide_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cfg = ConnectorConfig.from_properties({**BASE, "kafka.sasl.password": MARK, "kafka.ssl.key.pem": PEM})
    got: list[dict[str, Any]] = []

    def refuse(settings: dict[str, Any], **_: Any) -> None:
        got.append(settings)
        raise ValueError(f"no such {settings['sasl.password']} or {settings['ssl.key.pem']!r}")

    monkeypatch.setattr(clients, "Consumer", refuse)
    with pytest.raises(ConfigError) as caught:
        clients.make_consumer(cfg.kafka_settings(), "g", lambda error: None)
    assert (got[0]["sasl.password"], got[0]["ssl.key.pem"]) == (MARK, PEM)
    assert MARK not in str(caught.value)
    with caplog.at_level(logging.DEBUG):
        client_logger(cfg.kafka_settings()).error("refused %s", MARK)
    assert "refused ***" in caplog.text and MARK not in caplog.text


def test_a_converter_that_fails_does_not_tell_its_secrets() -> None:
    with pytest.raises(ValueError, match="cannot be configured") as caught:
        load_converter("c", {"type": f"{__name__}.Telling", "api.password": MARK})
    assert MARK not in str(caught.value)
    assert caught.value.__cause__ is None


class Telling:
    """Fail with its settings in the message."""

    def configure(self, settings: dict[str, str]) -> None:
        raise RuntimeError(f"cannot use {settings}")

    def converter_for(self, *_: Any) -> None:
        """Convert nothing."""


def test_scrubbing_takes_wrapped_and_plain_secrets_out() -> None:
    given = {"sasl.password": Secret("a1b2"), "ssl.key.pem": "x\ny", "host": "h", "database.password": ""}
    assert scrub("a1b2 'x\\ny' x\ny h", given) == "*** '***' *** h"


@for_each("repeated", ["x", "_", "col", "a://", "://a:", "passwd ", "hash.", "col.hash", "mask.hash."])
def test_a_form_s_long_text_is_judged_in_proportion_to_its_length(repeated: str) -> None:
    """A megabyte of letters once kept a task busy for hours."""
    text = repeated * (20_000 // len(repeated))
    began = time.process_time()
    for name in (text, f"col{text}", f"col.hash{text}", f"column.mask.hash.{text}"):
        redact("table.include.list", name)
        hide_salt(name)
        holds_secret(name)
    assert time.process_time() - began < 1.0
