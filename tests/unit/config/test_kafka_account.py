"""An account of Kafka goes to no brokers of another place."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config.property_sources import PropertySource, load_config
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

pytestmark = pytest.mark.quick

SECRET = "hunter2"
BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.password": "x"}
BROKERS, OTHER_BROKERS = {"kafka.bootstrap.servers": "a:9092"}, {"kafka.bootstrap.servers": "b:9092"}
SIGNAL_BROKERS = {"signal.kafka.bootstrap.servers": "s:9092"}
ACCOUNT = {
    "kafka.security.protocol": "sasl_ssl",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "cdc",
    "kafka.sasl.password": SECRET,
}
SIGNAL_ACCOUNT = {name.replace("kafka.", "signal.consumer."): value for name, value in ACCOUNT.items()}
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="cdc" password="{SECRET}";'


def load(*, task: dict[str, str] | None = None, **places: dict[str, str]) -> None:
    """Read a configuration from the task's properties and from places in their order; ``mysql`` has the rest."""
    places["mysql"] = BASE | places.get("mysql", {})
    sources = [PropertySource(name, values, is_private=True) for name, values in places.items()]
    load_config([PropertySource("the task's properties", task or {}), *sources])


@for_each(
    "places",
    [
        {"mysql": ACCOUNT, "kafka": BROKERS},
        {"mysql": BROKERS, "kafka": ACCOUNT | OTHER_BROKERS},
        {"kafka": BROKERS, "environment": ACCOUNT},
        {"mysql": BROKERS | ACCOUNT, "kafka": {"kafka.ssl.endpoint.identification.algorithm": "none"}},
        {"mysql": {"producer.override.sasl.jaas.config": JAAS}, "kafka": BROKERS},
        {"mysql": {"database.history.producer.sasl.jaas.config": JAAS}, "kafka": {"bootstrap.servers": "a:9092"}},
        {"mysql": {"schema.history.internal.kafka.bootstrap.servers": "h:9092"}, "kafka": ACCOUNT},
        {"mysql": SIGNAL_BROKERS, "kafka": BROKERS | ACCOUNT},
        {"mysql": SIGNAL_BROKERS | {"signal.consumer.sasl.password": "own"}, "kafka": BROKERS | ACCOUNT},
        {"mysql": SIGNAL_ACCOUNT | BROKERS, "kafka": SIGNAL_BROKERS},
    ],
)
def test_brokers_of_one_place_and_an_account_of_another_are_refused(places: dict[str, dict[str, str]]) -> None:
    with pytest.raises(ConfigError, match="brokers and account of Kafka come from different places") as caught:
        load(**places)
    error = caught.value
    assert "bootstrap.servers (" in error.where and SECRET not in str(error) and "9092" not in str(error)
    assert sum(f"({place})" in error.where for place in ("mysql", "kafka", "environment")) == 2


@for_each(
    "places",
    [
        {"mysql": BROKERS | ACCOUNT},
        {"kafka": BROKERS | ACCOUNT},
        {"mysql": {"kafka.linger.ms": "5"}, "kafka": BROKERS | ACCOUNT},
        {"mysql": BROKERS, "environment": {"kafka.ssl.ca.location": "/etc/ca.pem"}},
        {"mysql": SIGNAL_BROKERS | SIGNAL_ACCOUNT, "kafka": BROKERS | ACCOUNT},
        {"mysql": {"signal.kafka.bootstrap.servers": "a:9092"}, "kafka": BROKERS | ACCOUNT},
        {
            "mysql": SIGNAL_BROKERS | {"signal.consumer.sasl.jaas.config": JAAS, **SIGNAL_ACCOUNT},
            "environment": BROKERS | ACCOUNT,
        },
        {"task": BROKERS, "mysql": ACCOUNT},
        {"task": {"kafka.security.protocol": "sasl_plaintext"}, "mysql": BROKERS | ACCOUNT},
    ],
)
def test_one_place_has_both_or_the_author_names_the_brokers(places: dict[str, dict[str, str]]) -> None:
    load(**places)  # type: ignore[arg-type]
