"""Check that an account of Kafka is sent only to the brokers of the place that it comes from.

Otherwise a Kafka connection that a run's form names would receive the account of the stream's own connection, or lower
the security of its brokers. Parameters of a task are left out: they are the DAG author's, and hold no secrets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import kafka
from airflow_provider_mysql_cdc.cdc.config.property_names import is_secret
from airflow_provider_mysql_cdc.cdc.config.read_properties import canonical_name
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

_CLIENT_FAMILIES = tuple(prefix for prefix in kafka.PREFIXES if prefix != kafka.SIGNAL_CONSUMER_PREFIX)
_JAAS = "sasl.jaas.config"
_JAAS_SETTINGS = ("sasl.username", "sasl.password")
_REMEDY = "set brokers and account in one connection"
_SIGNAL_REMEDY = (
    f"set {kafka.SIGNAL_CONSUMER_PREFIX}sasl.* in the connection of {F.SIGNAL_KAFKA_BOOTSTRAP_SERVERS.name}, or remove "
    "that property if it is the same cluster"
)


def require_own_brokers(
    properties: Mapping[str, object], origins: Mapping[str, str], private_labels: frozenset[str]
) -> None:
    """Check the brokers of events and those of signals.

    Args:
        properties: Properties of all places together.
        origins: The place of each.
        private_labels: Places whose values are not the author's: connections and the environment.

    Raises:
        ConfigError: An account would be sent to brokers, or be protected by settings, of another place.
    """
    names = {canonical_name(name): name for name in properties}
    brokers = names.get(F.KAFKA_BOOTSTRAP_SERVERS.name) or names.get(F.HISTORY_KAFKA_BOOTSTRAP_SERVERS.name)
    signal_brokers = names.get(F.SIGNAL_KAFKA_BOOTSTRAP_SERVERS.name)
    if brokers is not None:
        _require_one_place(_security_properties(names, _CLIENT_FAMILIES), brokers, origins, private_labels, _REMEDY)
    if signal_brokers is not None and (brokers is None or properties[signal_brokers] != properties[brokers]):
        security = _security_properties(names, kafka.PREFIXES)
        _require_one_place(security, signal_brokers, origins, private_labels, _SIGNAL_REMEDY)


def _security_properties(names: Mapping[str, str], families: Sequence[str]) -> dict[str, str]:
    """Return the property that sets each security setting; the last family wins."""
    found: dict[str, str] = {}
    for family in families:
        members = {name.removeprefix(family): given for name, given in names.items() if name.startswith(family)}
        for setting, given in kafka.security_settings(members).items():
            found.update(dict.fromkeys(_JAAS_SETTINGS if setting == _JAAS else (setting,), given))
    return found


def _require_one_place(
    security: Mapping[str, str],
    brokers: str,
    origins: Mapping[str, str],
    private_labels: frozenset[str],
    remedy: str,
) -> None:
    if not any(map(is_secret, security)):
        return
    used = [brokers, *dict.fromkeys(security.values())]
    private = [name for name in used if origins[name] in private_labels]
    if len({origins[name] for name in private}) > 1:
        raise ConfigError(
            "brokers and account of Kafka come from different places",
            where=", ".join(f"{name} ({origins[name]})" for name in private),
            why="the account would be sent to brokers of another place, or be protected as another place says",
            remedy=remedy,
        )
