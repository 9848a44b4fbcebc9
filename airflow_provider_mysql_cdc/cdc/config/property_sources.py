"""Where properties come from, which a DAG run may set, and to whose brokers an account of Kafka goes.

Where properties come from: operator parameters, then the Airflow connection, then the environment, then defaults.

Pure functions: the caller reads the connection and the environment. The trace says for every property where it was
found and where it was looked for, and errors show it.

Check that an account of Kafka is sent only to the brokers of the place that it comes from.

Otherwise a Kafka connection that a run's form names would receive the account of the stream's own connection, or lower
the security of its brokers. Parameters of a task are left out: they are the DAG author's, and hold no secrets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import kafka, read_properties
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig, config_error
from airflow_provider_mysql_cdc.cdc.config.field import Field, Problem, SetBy
from airflow_provider_mysql_cdc.cdc.config.form_fields import MYSQL_CDC_FORM, field_label, form_places
from airflow_provider_mysql_cdc.cdc.config.property_families import REPLICA_PREFIX
from airflow_provider_mysql_cdc.cdc.config.property_names import (
    ENV_PREFIX,
    closest_name,
    connect_properties,
    env_name,
    hide_salt,
    holds_secret,
    is_secret,
)
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


ENV_DOCUMENT = "MYSQL_CDC_PROPERTIES"
STANDARD_FIELDS = {
    "host": F.DATABASE_HOSTNAME.name,
    "port": F.DATABASE_PORT.name,
    "login": F.DATABASE_USER.name,
    "password": F.DATABASE_PASSWORD.name,
}
"""Fields every Airflow connection has, and the properties they set."""


@dataclass(frozen=True, slots=True)
class PropertySource:
    """Hold the properties of one place.

    Args:
        label: The place in words, for errors.
        values: Property values by name.
        locations: Where exactly a property would stand in this place, by its name, where that is not the name itself.
        notes: What a person should know.
        is_private: Whether its values must not be shown, whatever their names are.
        is_replica: Whether it is the connection of a replica, the only place that may name one.
    """

    label: str
    values: Mapping[str, object] = field(repr=False)
    locations: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_private: bool = False
    is_replica: bool = False


@dataclass(frozen=True, slots=True)
class ResolvedProperties:
    """Hold the properties of all places together.

    Args:
        properties: Property values by name as given; the first place that has one wins.
        origins: The label of the place each property came from.
        sources: The places, in order.
    """

    properties: Mapping[str, object] = field(repr=False)
    origins: Mapping[str, str] = field(repr=False)
    sources: tuple[PropertySource, ...]

    def describe_sources(self, declared: Field[Any]) -> str:
        """Return in words where a property was looked for."""
        locations = (f"{s.label} ({s.locations.get(declared.name, declared.name)})" for s in self.sources)
        return ", then ".join(locations) or "no place at all"

    def config(self) -> ConnectorConfig:
        """Check the properties and return the configuration.

        Raises:
            ConfigError: With every problem and the place of each property; or the account of Kafka is not of the place
                that its brokers come from.
        """
        private_labels = frozenset(source.label for source in self.sources if source.is_private)
        require_own_brokers(self.properties, self.origins, private_labels)
        result = read_properties.read_properties(self.properties, self.describe_sources)
        result.problems += self._foreign_replica()
        if result.problems:
            raise config_error(self._hide_values(result.problems), self._places())
        notes = (*result.notes, *(note for source in self.sources for note in source.notes))
        return ConnectorConfig(result.texts, result.values, result.families, notes)

    def _foreign_replica(self) -> list[Problem]:
        """Return a problem for each part of a replica that comes from another place than its connection."""
        allowed = {source.label for source in self.sources if source.is_replica}
        fix = "Remove it, and name the replica's connection in replica_conn_id"
        return [
            Problem(name, "is not a property of this place", fix, None)
            for name, label in self.origins.items()
            if name.startswith(REPLICA_PREFIX) and label not in allowed
        ]

    def _places(self) -> dict[str, str]:
        """Return where each property stands, for people: the place, and the field of its form."""
        fields = {source.label: source.locations for source in self.sources}
        places = {}
        for name, label in self.origins.items():
            location = fields[label].get(name)
            places[name] = f"{label}, {location}" if location else label
        return places

    def _hide_values(self, problems: Sequence[Problem]) -> list[Problem]:
        """Return the problems without the values of private sources."""
        private_labels = {source.label for source in self.sources if source.is_private}
        private = {
            name: str(value) for name, value in self.properties.items() if self.origins.get(name) in private_labels
        }
        shown = {read_properties.canonical_name(name) for name in self.properties.keys() - private.keys()}
        return [p if read_properties.canonical_name(p.name) in shown else p.without_values(private) for p in problems]


def params_source(values: Mapping[str, object], label: str = "operator parameters") -> PropertySource:
    """Return the parameters of an operator or of a DAG run as a source."""
    return PropertySource(label, {k: v for k, v in values.items() if v is not None})


def connection_source(conn_id: str, standard: Mapping[str, object], extra: Mapping[str, object]) -> PropertySource:
    """Return an Airflow connection as a source.

    Args:
        conn_id: The connection's id.
        standard: Its ``host``, ``port``, ``login`` and ``password``; empty ones do not count.
        extra: Its extra: properties by name, or a Kafka Connect configuration.

    Raises:
        ConfigError: The extra is not a configuration.
    """
    values = {k: v for k, v in connect_properties(extra).items() if v not in (None, "")}
    for attribute, name in STANDARD_FIELDS.items():
        if standard.get(attribute) not in (None, ""):
            values[name] = standard[attribute]
    standard_places = {name: f"field {field_label(attribute)}" for attribute, name in STANDARD_FIELDS.items()}
    locations = {**form_places(MYSQL_CDC_FORM), **standard_places}
    return PropertySource(f"connection {conn_id}", values, locations, is_private=True)


def environment_source(environ: Mapping[str, str]) -> PropertySource:
    """Return the environment as a source.

    Every declared property and alias has a variable; ``MYSQL_CDC_PROPERTIES`` holds a JSON object for the others. An
    empty variable does not count, and a variable that names no property is left alone.

    Raises:
        ConfigError: ``MYSQL_CDC_PROPERTIES`` is not a JSON object.
    """
    by_variable = {env_name(name): name for name in (*read_properties.ALIASES, *F.BY_NAME)}
    try:
        values = connect_properties(environ.get(ENV_DOCUMENT) or "{}")
    except ConfigError as e:
        raise ConfigError(e.what, where=ENV_DOCUMENT, why=e.why, remedy=e.remedy) from e
    notes = []
    for variable, text in sorted(environ.items()):
        if variable in by_variable and text:
            values[by_variable[variable]] = text
        elif variable.startswith(ENV_PREFIX) and variable not in (*by_variable, ENV_DOCUMENT):
            closest = closest_name(variable, by_variable, cutoff=0.9)
            notes += [f"the variable {variable} names no property; {closest} would"] if closest else []
    variables = {f.name: env_name(f.name) for f in F.ALL}
    return PropertySource("the environment", values, variables, tuple(notes), is_private=True)


def merge_sources(sources: Sequence[PropertySource]) -> ResolvedProperties:
    """Lay the sources over each other; of two names for one property the earlier source's counts."""
    properties: dict[str, object] = {}
    origins: dict[str, str] = {}
    canonical_names: set[str] = set()
    for source in sources:
        new = {
            n: v
            for n, v in source.values.items()
            if v is not None and read_properties.canonical_name(n) not in canonical_names
        }
        properties.update(new)
        origins.update(dict.fromkeys(new, source.label))
        canonical_names.update(map(read_properties.canonical_name, new))
    return ResolvedProperties(properties, origins, tuple(sources))


def load_config(sources: Sequence[PropertySource]) -> ConnectorConfig:
    """Return the configuration that the sources give together.

    Raises:
        ConfigError: With every problem, where its value came from, and where a missing property was looked for.
    """
    return merge_sources(sources).config()


def set_by(name: str) -> SetBy:
    """Return who may set a property; of a family, or an unknown one, its author.

    A member of a family is a setting of a client, a class, a statement, a topic, or hides a column.

    Args:
        name: The property, of either generation and in any spelling.
    """
    if holds_secret(name):
        return SetBy.CONNECTION
    declared = F.BY_NAME.get(canonical_name(name))
    return SetBy.AUTHOR if declared is None else declared.set_by


def check_run_properties(names: Iterable[str], opened: Collection[str], conn_id: str) -> None:
    """Refuse properties that a run sets and may not set.

    Args:
        names: Properties that the run sets.
        opened: Properties that the author of the DAG lets runs set.
        conn_id: The connection in which they can be set.

    Raises:
        ConfigError: There are such properties; the text names them, and where to set them.
    """
    opened_names = {canonical_name(name) for name in opened}
    refused = [name for name in sorted(names) if set_by(name) not in _accepted(canonical_name(name) in opened_names)]
    if refused:
        raise ConfigError(
            "the run sets properties that a run may not set",
            where=", ".join(map(_shown, refused)),
            why="they decide where the stream goes, who connects, which code or SQL runs, or which columns are hidden",
            remedy=f"set them in the connection {conn_id}, or in the DAG file as text of the operator's properties; "
            "its author can let runs set single ones with the operator's argument run_properties=[...]",
        )


def _accepted(opened: bool) -> tuple[SetBy, ...]:
    return (SetBy.RUN, SetBy.AUTHOR) if opened else (SetBy.RUN,)


def _shown(name: str) -> str:
    """Return a name as an error shows it: in quotes where it could not be seen otherwise."""
    text = hide_salt(name)
    return text if text.isprintable() and text and text == text.strip() else repr(text)
