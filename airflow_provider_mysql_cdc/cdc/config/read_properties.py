"""From properties as given to parsed values, problems and notes; nothing here stops at the first problem."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import kafka, transforms
from airflow_provider_mysql_cdc.cdc.config import property_families as families
from airflow_provider_mysql_cdc.cdc.config import undeclared_properties as known
from airflow_provider_mysql_cdc.cdc.config.enums import EventContract, Operation
from airflow_provider_mysql_cdc.cdc.config.field import Alias, Field, Lookup, Problem, plain
from airflow_provider_mysql_cdc.cdc.config.property_families import Families
from airflow_provider_mysql_cdc.cdc.config.property_names import HIDDEN, hide_salt, is_secret, suggestion
from airflow_provider_mysql_cdc.cdc.config.ticdc_checks import ticdc_problems
from airflow_provider_mysql_cdc.cdc.config.ticdc_fields import ONLY_TICDC
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

OLD_HISTORY, HISTORY = "database.history", "schema.history.internal"
OTHER_SIGNALS = "signals.consumer."
_PROVIDER = re.compile(r"\$\{[\w-]+:[^}]*\}")

ALIASES: dict[str, tuple[Field[Any], Alias]] = {a.name: (f, a) for f in F.ALL for a in f.alias_list()}

EXCLUSIVE = tuple(
    (f"{what}.{a}", f"{what}.{b}")
    for what, a, b in (
        ("database", "include.list", "exclude.list"),
        ("table", "include.list", "exclude.list"),
        ("column", "include.list", "exclude.list"),
        ("gtid.source", "includes", "excludes"),
    )
)
"""Pairs of which only one may be set (FAULT-20, COL-02)."""


@dataclass(slots=True, repr=False)
class Reading:
    """Collect what a configuration says.

    Args:
        texts: Property text by today's name.
        values: Parsed values of declared properties.
        families: What the families say.
        notes: What a person should know.
        problems: What is wrong.
        origin: The name as given, by today's name.
        members: Family members: property text by prefix and rest of the name.
    """

    texts: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    families: Families = field(default_factory=Families)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    origin: dict[str, str] = field(default_factory=dict)
    members: dict[str, dict[str, str]] = field(default_factory=dict)

    def refuse(self, name: str, value: str | None, what: str, fix: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(name, what, fix, value))


def read(properties: Mapping[str, object], looked_in: Callable[[Field[Any]], str] | None) -> Reading:
    """Read properties.

    Args:
        properties: Property values by name.
        looked_in: Says for a missing property where it was looked for.
    """
    out = Reading()
    texts = _texts(out, properties)
    plugins = known.plugin_prefixes(texts)
    converters: dict[str, dict[str, str]] = {c: {} for c in F.CONVERTERS.parse(texts.get(F.CONVERTERS.name, ""))}
    listed = F.TRANSFORMS.parse(texts.get(F.TRANSFORMS.name, ""))
    steps: dict[str, dict[str, str]] = {t: {} for t in listed}
    for name, text in texts.items():
        step = next(
            (t for t in sorted(steps, key=len, reverse=True) if name.startswith(f"{transforms.PREFIX}{t}.")), None
        )
        converter = next((c for c in converters if name.startswith(f"{c}.") and name not in F.BY_NAME), None)
        if step is not None:
            _set(out, name, text, name)
            steps[step][name.removeprefix(f"{transforms.PREFIX}{step}.")] = text
        elif converter is not None:
            _set(out, name, text, name)
            converters[converter][name.removeprefix(f"{converter}.")] = text
        elif not (plugins and name.startswith(plugins)):
            _place(out, name, text)
    _exclusive(out)
    out.families = families.read(out.members, converters)
    out.problems += [replace(p, name=out.origin.get(p.name, p.name)) for p in out.families.problems]
    out.notes += out.families.notes
    for name, text in out.texts.items():
        if name in F.BY_NAME:
            _parse(out, F.BY_NAME[name], text)
    _transforms(out, listed, steps)
    _required(out, looked_in)
    _cross_checks(out)
    return out


def canonical(name: str) -> str:
    """Return today's name of a property: aliases and older prefixes replaced."""
    name = _of_today(name)
    return ALIASES[name][0].name if name in ALIASES else name


def _of_today(name: str) -> str:
    """Return a name with today's prefix; the manuals write that of the signals' consumer in two ways (INC-45)."""
    if name == OLD_HISTORY or name.startswith(OLD_HISTORY + "."):
        return HISTORY + name.removeprefix(OLD_HISTORY)
    if name.startswith(OTHER_SIGNALS):
        return kafka.SIGNAL_CONSUMER + name.removeprefix(OTHER_SIGNALS)
    return name


def _texts(out: Reading, properties: Mapping[str, object]) -> dict[str, str]:
    texts = {}
    for name, value in properties.items():
        if value is None:
            continue
        if isinstance(value, bool):
            texts[name] = str(value).lower()
        elif isinstance(value, (str, int)):
            texts[name] = str(value)
        else:
            out.refuse(name, type(value).__name__, "must be a text, a whole number or a boolean", "Write it as text")
            continue
        if _PROVIDER.search(texts[name], 0, texts[name].rfind("}") + 1):
            out.refuse(
                name,
                texts.pop(name),
                "is a placeholder that a Kafka Connect worker would fill in",
                "Put the value into the Airflow connection, or into its secrets backend",
            )
            out.origin.setdefault(canonical(name), name)
    return texts


def _place(out: Reading, name: str, text: str) -> None:
    if (today := _of_today(name)) != name:
        out.notes.append(f"{name} is read as {today}")
    if today in F.BY_NAME:
        _set(out, today, text, name)
    elif today in ALIASES:
        _alias(out, today, text, name)
    elif today in known.NO_EFFECT:
        _set(out, today, text, name)
        out.notes.append(f"{name} has no effect: {known.NO_EFFECT[today]}")
    elif (prefix := families.prefix_of(today)) is not None:
        _set(out, today, text, name)
        out.members.setdefault(prefix, {})[today.removeprefix(prefix)] = text
    elif (reason := known.refused(today)) is not None:
        _known(out, name, text, reason, today)
    else:
        _unknown(out, name, text)


def _set(out: Reading, today: str, text: str, name: str) -> None:
    if today in out.texts and out.texts[today] != text:
        other = out.origin[today]
        out.refuse(
            name, text, f"contradicts {hide_salt(other)}, which means the same", f"Keep one of the two, best {today}"
        )
        return
    out.texts[today], out.origin[today] = text, name


def _alias(out: Reading, alias: str, text: str, name: str) -> None:
    declared, how = ALIASES[alias]
    try:
        converted = how.convert(text) if how.convert else text
    except ValueError as e:
        out.refuse(name, text, str(e), f"Use {declared.name}")
        out.origin.setdefault(declared.name, name)
        return
    if alias == name:
        out.notes.append(f"{name} is read as {declared.name}")
    _set(out, declared.name, converted, name)


def _known(out: Reading, name: str, text: str, reason: known.Refused, today: str) -> None:
    if text.strip().lower() in reason.harmless:
        _set(out, today, text, name)
        return
    fix = "Remove it"
    if reason.harmless and reason.harmless != ("",):
        fix += f", or set it to {' or '.join(repr(h) for h in reason.harmless if h)}"
    out.origin.setdefault(today, name)
    out.refuse(name, text, f"not supported yet: {reason.why}", fix)


def _unknown(out: Reading, name: str, text: str) -> None:
    drivers = {families.DRIVER + option for option in families.DRIVER_OPTIONS}
    near = suggestion(name, {*F.BY_NAME, *ALIASES, *known.NO_EFFECT, *drivers, *(r.name for r in known.REFUSED)})
    if near:
        today = canonical(near)
        out.origin.setdefault(today, name)
        text = HIDDEN if is_secret(today) else text
        out.problems.append(Problem(name, "unknown property", f"Write {near}, if that is meant", text))
    elif name.startswith(transforms.PREFIX):
        what = f"belongs to no transform that {F.TRANSFORMS.name} lists"
        out.refuse(name, text, what, f"Remove it, or add its transform to {F.TRANSFORMS.name}")
    elif name.startswith(families.DRIVER):
        options = ", ".join(sorted(drivers))
        out.refuse(
            name, text, "is neither a property nor a known driver option", f"Remove it; driver options: {options}"
        )
    else:
        out.refuse(name, text, "unknown property", "Remove it; docs/properties.md lists all properties")


def _exclusive(out: Reading) -> None:
    seen = {*out.texts, *out.origin}
    for include, exclude in EXCLUSIVE:
        both = include in seen and exclude in seen
        if both and out.texts.get(include, "-").strip() and out.texts.get(exclude, "-").strip():
            name = out.origin.get(exclude, exclude)
            what = f"cannot stand beside {out.origin.get(include, include)}"
            out.refuse(name, out.texts.get(exclude), what, "Keep one of the two")


def _parse(out: Reading, declared: Field[Any], text: str) -> None:
    try:
        out.values[declared.name] = declared.read(text)
    except ValueError as e:
        name = out.origin[declared.name]
        fix = "Correct the value"
        if declared.enum and (near := suggestion(text, declared.enum, cutoff=0.5)):
            fix = f"Write {near}, if that is meant"
        out.refuse(name, text, str(e), fix)


def _transforms(out: Reading, names: tuple[str, ...], given: Mapping[str, Mapping[str, str]]) -> None:
    old = Lookup(out.values)[F.EVENT_CONTRACT] is EventContract.OLD
    found = transforms.read(names, given, old_contract=old)
    out.families.transforms = found.made
    out.problems += found.problems
    out.notes += found.notes


def _required(out: Reading, looked_in: Callable[[Field[Any]], str] | None) -> None:
    for declared in F.ALL:
        # A property that was given wrongly, or under a misspelt name, is not missing as well.
        if declared.required and declared.name not in out.values and declared.name not in out.origin:
            _missing(out, declared, looked_in)


def _missing(out: Reading, declared: Field[Any], looked_in: Callable[[Field[Any]], str] | None) -> None:
    where = f"; looked for in {looked_in(declared)}" if looked_in else ""
    out.refuse(declared.name, None, f"is required and missing{where}", f"Set it: {declared.doc.split('.')[0]}")


def _cross_checks(out: Reading) -> None:
    get = Lookup(out.values)
    what: str | None
    wrong = {p.name for p in out.problems}
    bootstrap, history = F.KAFKA_BOOTSTRAP_SERVERS, F.HISTORY_KAFKA_BOOTSTRAP_SERVERS
    if not get[bootstrap] and not {bootstrap.name, history.name} & {*out.origin}:
        out.refuse(bootstrap.name, None, "is required and missing", "Set it: Kafka cluster, as a list of host:port")
    if get.given(bootstrap) and get.given(history) and _disjoint(get[bootstrap], get[history]):
        what = (
            f"names other servers than {bootstrap.name}; both topics are written in one transaction, so in one cluster"
        )
        out.refuse(history.name, get[history], what, "Remove it, or name the same servers")
    if get[F.TRANSACTION_TIMEOUT_MS] <= get[F.COMMIT_INTERVAL_MS]:
        name, fix = F.TRANSACTION_TIMEOUT_MS.name, f"Raise it, or lower {F.COMMIT_INTERVAL_MS.name}"
        out.refuse(name, str(get[F.TRANSACTION_TIMEOUT_MS]), f"must be above {F.COMMIT_INTERVAL_MS.name}", fix)
    if what := F.ssl_files_problem(get):
        out.refuse(F.DATABASE_SSL_KEY.name, get[F.DATABASE_SSL_KEY], what, f"Set {F.DATABASE_SSL_CERT.name}")
    if what := F.source_struct_problem(get):
        fix = f"Set {F.EVENT_CONTRACT.name}=1.9, or remove it for the source block of today"
        out.refuse(F.SOURCE_STRUCT_VERSION.name, str(get[F.SOURCE_STRUCT_VERSION]), what, fix)
    _ticdc(out, get)
    _converters(out, get)
    _select_overrides(out, get)
    _kafka_times(out, get)
    if get[F.HEARTBEAT_ACTION_QUERY] and not get[F.HEARTBEAT_INTERVAL_MS]:
        action, interval = F.HEARTBEAT_ACTION_QUERY.name, F.HEARTBEAT_INTERVAL_MS.name
        out.notes.append(f"{action} has no effect: {interval} is 0, so there are no heartbeats")
    if "sink" in get[F.NOTIFICATION_ENABLED_CHANNELS] and not get[F.NOTIFICATION_SINK_TOPIC_NAME]:
        what = f"is missing; {F.NOTIFICATION_ENABLED_CHANNELS.name} has sink"
        out.refuse(F.NOTIFICATION_SINK_TOPIC_NAME.name, None, what, "Name the topic of notifications")
    if F.TOPIC_PREFIX.name not in wrong and get.given(F.TOPIC_PREFIX) and (what := F.topics_problem(get)):
        out.refuse(F.LEDGER_TOPIC.name, get[F.LEDGER_TOPIC], what, "Give each its own name")


def _ticdc(out: Reading, get: Lookup) -> None:
    """Check what goes with TiCDC's protocol; without it its properties have no effect."""
    if not F.is_ticdc(get):
        idle = [f.name for f in ONLY_TICDC if get.given(f)]
        out.notes += [f"{name} has no effect with {F.VALUE_FORMAT.name}={get[F.VALUE_FORMAT]}" for name in idle]
        return
    for declared, why, fix in ticdc_problems(get):
        shown = plain(get[declared]) if get.given(declared) else None
        out.refuse(declared.name, shown, f"does not go with {F.VALUE_FORMAT.name}={get[F.VALUE_FORMAT]}: {why}", fix)
    # AVRO-54: statements give no records.
    skipped = get[F.SKIPPED_OPERATIONS]
    if Operation.TRUNCATE not in skipped:
        out.notes.append(f"TRUNCATE gives no record with {F.VALUE_FORMAT.name}={get[F.VALUE_FORMAT]}")
    without = {F.INCLUDE_SCHEMA_CHANGES.name: False, F.SKIPPED_OPERATIONS.name: skipped | {Operation.TRUNCATE}}
    out.values = {**out.values, **without}


def _converters(out: Reading, get: Lookup) -> None:
    """Check the settings of Avro converters, and note those that the converter in use does not have."""
    for part, schemas in zip(F.PARTS, (F.KEY_SCHEMAS_ENABLE, F.VALUE_SCHEMAS_ENABLE), strict=True):
        converter: Field[Any] = F.VALUE_FORMAT if F.is_ticdc(get) else F.CONVERTER_OF[part]
        if not F.is_avro(get, part):
            idle = [f.name for f in F.OF_PART[part].all() if get.given(f)]
        else:
            for declared, what, fix in F.registry_problems(get, part):
                # One that was given wrongly has its problem already.
                if get.given(declared) or declared.name not in out.origin:
                    out.refuse(declared.name, None, what, fix)
            # Avro keys and values have their schema in the registry, whatever this says.
            json_only = (schemas, F.VALUE_REPLACE_NULL_WITH_DEFAULT) if part == "value" else (schemas,)
            idle = [f.name for f in json_only if get.given(f)]
            out.values = {name: value for name, value in out.values.items() if name not in idle}
        out.notes += [f"{name} has no effect with {converter.name}={get[converter]}" for name in idle]


def _kafka_times(out: Reading, get: Lookup) -> None:
    """Note times of the Kafka client that a transaction cuts short (``sink.clients``)."""
    limit = get[F.TRANSACTION_TIMEOUT_MS]
    for prefix in (kafka.KAFKA, kafka.PRODUCER_OVERRIDE):
        for name in ("delivery.timeout.ms", "message.timeout.ms", "socket.timeout.ms"):
            text = out.families.kafka.get(prefix, {}).get(name, "").strip()
            if text.isdecimal() and int(text) > limit:
                out.notes.append(f"{prefix}{name}={text} has no effect beyond {F.TRANSACTION_TIMEOUT_MS.name}={limit}")


def _select_overrides(out: Reading, get: Lookup) -> None:
    listed, given = get[F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES], out.families.selects
    name = F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES.name
    for table in listed:
        if not given.get(table):
            out.refuse(f"{name}.{table}", None, f"is missing; {name} lists the table", "Set it to a SELECT statement")
    for table in given:
        if table not in listed:
            what = f"has no effect, because {name} does not list the table"
            out.refuse(f"{name}.{table}", given[table], what, f"Add {table} to {name}, or remove the statement")


def _disjoint(some: str, others: str) -> bool:
    return not {*some.lower().split(",")} & {*others.lower().split(",")}


def _object(value: object, name: str) -> Mapping[str, Any]:
    """Return a member of a configuration document; an absent one is empty."""
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{name} of the configuration is not a JSON object", remedy="Correct the JSON text")
    return value or {}


def connect_properties(document: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a Kafka Connect configuration.

    Args:
        document: JSON text or the object: ``{"name": .., "config": {..}}``, a bare configuration, or Strimzi's
            KafkaConnector resource.

    Raises:
        ConfigError: It is none of these.
    """
    try:
        data = json.loads(document) if isinstance(document, str) else document
    except (ValueError, RecursionError) as e:
        raise ConfigError("The configuration is not JSON", why=str(e), remedy="Correct the JSON text") from e
    if isinstance(data, Mapping) and isinstance(data.get("spec"), Mapping):
        spec, meta = _object(data["spec"], "spec"), _object(data.get("metadata"), "metadata")
        head = {"name": meta.get("name"), "connector.class": spec.get("class"), "tasks.max": spec.get("tasksMax")}
        data = {
            "name": meta.get("name"),
            "config": {**{k: v for k, v in head.items() if v}, **_object(spec.get("config"), "spec.config")},
        }
    if not isinstance(data, Mapping):
        raise ConfigError(
            "The configuration is not a JSON object", remedy='Give {"name": .., "config": {..}} or the properties alone'
        )
    if isinstance(data.get("config"), Mapping):
        return {"name": data.get("name"), **data["config"]}
    return dict(data)
