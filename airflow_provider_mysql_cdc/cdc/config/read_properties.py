"""From properties as given to parsed values, problems and notes; nothing here stops at the first problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import kafka, property_names, transforms, undeclared_properties
from airflow_provider_mysql_cdc.cdc.config import property_families as families
from airflow_provider_mysql_cdc.cdc.config.enums import EventContract, Operation
from airflow_provider_mysql_cdc.cdc.config.event_fields import AVRO_CONVERTER, JSON_CONVERTER, PLAIN_CONVERTERS
from airflow_provider_mysql_cdc.cdc.config.field import Alias, Field, Group, Lookup, Problem, display_text
from airflow_provider_mysql_cdc.cdc.config.property_families import PropertyFamilies
from airflow_provider_mysql_cdc.cdc.config.property_names import HIDDEN, closest_name, env_name, hide_salt, is_secret
from airflow_provider_mysql_cdc.cdc.config.ticdc_checks import ticdc_problems
from airflow_provider_mysql_cdc.cdc.config.ticdc_fields import TICDC_FIELDS

LEGACY_HISTORY_PREFIX, HISTORY_PREFIX = "database.history", "schema.history.internal"
LEGACY_SIGNALS_PREFIX = "signals.consumer."

ALIASES: dict[str, tuple[Field[Any], Alias]] = {a.name: (f, a) for f in F.ALL for a in f.alias_list()}

EXCLUSIVE_LISTS = tuple(
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
class ParsedProperties:
    """Collect what a configuration says.

    Args:
        texts: Property text by today's name.
        values: Parsed values of declared properties.
        families: What the families say.
        notes: What a person should know.
        problems: What is wrong.
        given_names: The name as given, by today's name.
        family_members: Family members: property text by prefix and rest of the name.
    """

    texts: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    families: PropertyFamilies = field(default_factory=PropertyFamilies)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    given_names: dict[str, str] = field(default_factory=dict)
    family_members: dict[str, dict[str, str]] = field(default_factory=dict)

    def refuse(self, name: str, value: str | None, what: str, fix: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(name, what, fix, value))


def read_properties(
    properties: Mapping[str, object], describe_sources: Callable[[Field[Any]], str] | None
) -> ParsedProperties:
    """Read properties.

    Args:
        properties: Property values by name.
        describe_sources: Says for a missing property where it was looked for.
    """
    out = ParsedProperties()
    texts = _property_texts(out, properties)
    plugins = undeclared_properties.plugin_prefixes(texts)
    converters: dict[str, dict[str, str]] = {c: {} for c in F.CONVERTERS.parse(texts.get(F.CONVERTERS.name, ""))}
    listed = F.TRANSFORMS.parse(texts.get(F.TRANSFORMS.name, ""))
    steps: dict[str, dict[str, str]] = {t: {} for t in listed}
    predicates: dict[str, dict[str, str]] = {p: {} for p in F.PREDICATES.parse(texts.get(F.PREDICATES.name, ""))}
    for name, text in texts.items():
        step = _longest_owner(steps, transforms.PREFIX, name)
        predicate = _longest_owner(predicates, transforms.PREDICATE_PREFIX, name)
        own = name in F.BY_NAME or name.startswith(families.REPLICA_PREFIX)
        converter = None if own else next((c for c in converters if name.startswith(f"{c}.")), None)
        if step is not None:
            _set_text(out, name, text, name)
            steps[step][name.removeprefix(f"{transforms.PREFIX}{step}.")] = text
        elif predicate is not None:
            _set_text(out, name, text, name)
            predicates[predicate][name.removeprefix(f"{transforms.PREDICATE_PREFIX}{predicate}.")] = text
        elif converter is not None:
            _set_text(out, name, text, name)
            converters[converter][name.removeprefix(f"{converter}.")] = text
        elif not (plugins and name.startswith(plugins)):
            _assign_property(out, name, text)
    _check_exclusive(out)
    groups = F.TOPIC_CREATION_GROUPS.parse(texts.get(F.TOPIC_CREATION_GROUPS.name, ""))
    out.families = families.read_families(out.family_members, converters, groups)
    out.problems += [replace(p, name=out.given_names.get(p.name, p.name)) for p in out.families.problems]
    out.notes += out.families.notes
    for name, text in out.texts.items():
        if name in F.BY_NAME:
            _parse_field(out, F.BY_NAME[name], text)
    _read_replica(out)
    _read_transforms(out, listed, steps, predicates)
    _check_required(out, describe_sources)
    _cross_checks(out)
    return out


def canonical_name(name: str) -> str:
    """Return today's name of a property: aliases and older prefixes replaced."""
    name = _with_current_prefix(name)
    return ALIASES[name][0].name if name in ALIASES else name


def _with_current_prefix(name: str) -> str:
    """Return a name with today's prefix; the manuals write that of the signals' consumer in two ways (INC-45)."""
    if name == LEGACY_HISTORY_PREFIX or name.startswith(LEGACY_HISTORY_PREFIX + "."):
        return HISTORY_PREFIX + name.removeprefix(LEGACY_HISTORY_PREFIX)
    if name.startswith(LEGACY_SIGNALS_PREFIX):
        return kafka.SIGNAL_CONSUMER_PREFIX + name.removeprefix(LEGACY_SIGNALS_PREFIX)
    return name


def _property_texts(out: ParsedProperties, properties: Mapping[str, object]) -> dict[str, str]:
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
        if property_names.has_placeholder(texts[name]):
            text, today = texts.pop(name), canonical_name(name)
            out.refuse(
                name,
                text,
                "is a placeholder that a Kafka Connect worker would fill in",
                property_names.replacement(today, text, env_name(today)),
            )
            out.given_names.setdefault(canonical_name(name), name)
    return texts


def _assign_property(out: ParsedProperties, name: str, text: str) -> None:
    if (current_name := _with_current_prefix(name)) != name:
        out.notes.append(f"{name} is read as {current_name}")
    if current_name in F.BY_NAME:
        _set_text(out, current_name, text, name)
    elif current_name in ALIASES:
        _set_alias(out, current_name, text, name)
    elif current_name in undeclared_properties.NO_EFFECT:
        _set_text(out, current_name, text, name)
        out.notes.append(f"{name} has no effect: {undeclared_properties.NO_EFFECT[current_name]}")
    elif (prefix := families.prefix_of(current_name)) is not None:
        _set_text(out, current_name, text, name)
        out.family_members.setdefault(prefix, {})[current_name.removeprefix(prefix)] = text
    elif (reason := undeclared_properties.refused_property(current_name)) is not None:
        _check_refused(out, name, text, reason, current_name)
    else:
        _refuse_unknown(out, name, text)


def _set_text(out: ParsedProperties, current_name: str, text: str, name: str) -> None:
    if current_name in out.texts and out.texts[current_name] != text:
        other = out.given_names[current_name]
        out.refuse(
            name,
            text,
            f"contradicts {hide_salt(other)}, which means the same",
            f"Keep one of the two, best {current_name}",
        )
        return
    out.texts[current_name], out.given_names[current_name] = text, name


def _set_alias(out: ParsedProperties, alias: str, text: str, name: str) -> None:
    declared, conversion = ALIASES[alias]
    try:
        converted = conversion.convert(text) if conversion.convert else text
    except ValueError as e:
        out.refuse(name, text, str(e), f"Use {declared.name}")
        out.given_names.setdefault(declared.name, name)
        return
    if alias == name:
        out.notes.append(f"{name} is read as {declared.name}")
    _set_text(out, declared.name, converted, name)


def _check_refused(
    out: ParsedProperties, name: str, text: str, reason: undeclared_properties.RefusedProperty, current_name: str
) -> None:
    if not text.strip() or text.strip().lower() in reason.accepted_values:
        _set_text(out, current_name, text, name)
        if reason.note and text.strip():
            out.notes.append(f"{name}={text.strip()}: {reason.note}")
        return
    fix = "Remove it"
    if reason.accepted_values and reason.accepted_values != ("",):
        fix += f", or set it to {' or '.join(repr(h) for h in reason.accepted_values if h)}"
    out.given_names.setdefault(current_name, name)
    out.refuse(name, text, f"not supported yet: {reason.why}", fix)


def _refuse_unknown(out: ParsedProperties, name: str, text: str) -> None:
    drivers = {families.DRIVER_PREFIX + option for option in families.DRIVER_OPTIONS}
    closest = closest_name(
        name,
        {
            *F.BY_NAME,
            *ALIASES,
            *undeclared_properties.NO_EFFECT,
            *drivers,
            *(r.name for r in undeclared_properties.REFUSED_PROPERTIES),
        },
    )
    if closest:
        current_name = canonical_name(closest)
        out.given_names.setdefault(current_name, name)
        text = HIDDEN if is_secret(current_name) else text
        out.problems.append(Problem(name, "unknown property", f"Write {closest}, if that is meant", text))
    elif name.startswith(transforms.PREDICATE_PREFIX):
        what = f"belongs to no predicate that {F.PREDICATES.name} lists"
        out.refuse(name, text, what, f"Remove it, or add its predicate to {F.PREDICATES.name}")
    elif name.startswith(transforms.PREFIX):
        what = f"belongs to no transform that {F.TRANSFORMS.name} lists"
        out.refuse(name, text, what, f"Remove it, or add its transform to {F.TRANSFORMS.name}")
    elif name.startswith(families.DRIVER_PREFIX):
        options = ", ".join(sorted(drivers))
        out.refuse(
            name, text, "is neither a property nor a known driver option", f"Remove it; driver options: {options}"
        )
    else:
        out.refuse(name, text, "unknown property", "Remove it; docs/properties.md lists all properties")


def _check_exclusive(out: ParsedProperties) -> None:
    given_names = {*out.texts, *out.given_names}
    for include, exclude in EXCLUSIVE_LISTS:
        both = include in given_names and exclude in given_names
        if both and out.texts.get(include, "-").strip() and out.texts.get(exclude, "-").strip():
            name = out.given_names.get(exclude, exclude)
            what = f"cannot be combined with {out.given_names.get(include, include)}"
            out.refuse(name, out.texts.get(exclude), what, "Keep one of the two")


def _parse_field(out: ParsedProperties, declared: Field[Any], text: str) -> None:
    try:
        out.values[declared.name] = declared.read(text)
    except ValueError as e:
        name = out.given_names[declared.name]
        fix = "Correct the value"
        if declared.enum and (closest := closest_name(text, declared.enum, cutoff=0.5)):
            fix = f"Write {closest}, if that is meant"
        out.refuse(name, text, str(e), fix)


def _read_replica(out: ParsedProperties) -> None:
    """Read the members of a replica's server as the properties of the source that they are named after."""
    for member, text in out.family_members.get(families.REPLICA_PREFIX, {}).items():
        name, declared = families.REPLICA_PREFIX + member, F.BY_NAME.get(families.DRIVER_PREFIX + member)
        if declared is None or declared.group not in (Group.CONNECTION, Group.TLS):
            out.refuse(name, text, "unknown property", "Name the replica's connection in replica_conn_id")
            continue
        try:
            out.families.replica[declared.name] = declared.read(text)
            if declared is F.DATABASE_HOSTNAME and "," in text:
                raise ValueError("names several servers; a verification reads one replica")
        except ValueError as e:
            out.refuse(name, text, str(e), "Correct the value in the replica's connection")
    if what := F.ssl_files_problem(Lookup(out.families.replica)):
        name = families.REPLICA_PREFIX + "ssl.key"
        out.refuse(name, out.texts[name], what, f"Set {F.DATABASE_SSL_CERT.name} in the replica's connection")


def _longest_owner(names: Mapping[str, object], prefix: str, setting: str) -> str | None:
    """Return the transform or predicate that a setting belongs to; of several names that fit the longest."""
    return next((n for n in sorted(names, key=len, reverse=True) if setting.startswith(f"{prefix}{n}.")), None)


def _read_transforms(
    out: ParsedProperties,
    names: tuple[str, ...],
    settings: Mapping[str, Mapping[str, str]],
    predicates: Mapping[str, Mapping[str, str]],
) -> None:
    old_contract = Lookup(out.values)[F.EVENT_CONTRACT] is EventContract.OLD
    parsed = transforms.parse_transforms(names, settings, predicates, old_contract=old_contract)
    out.families.transforms, out.families.chain = parsed.transforms, parsed.chain
    out.problems += parsed.problems
    out.notes += parsed.notes


def _check_required(out: ParsedProperties, describe_sources: Callable[[Field[Any]], str] | None) -> None:
    for declared in F.ALL:
        # A property that was given wrongly, or under a misspelt name, is not missing as well.
        if declared.required and declared.name not in out.values and declared.name not in out.given_names:
            _refuse_missing(out, declared, describe_sources)


def _refuse_missing(
    out: ParsedProperties, declared: Field[Any], describe_sources: Callable[[Field[Any]], str] | None
) -> None:
    where = f"; looked for in {describe_sources(declared)}" if describe_sources else ""
    out.refuse(declared.name, None, f"is required and missing{where}", f"Set it: {declared.doc.split('.')[0]}")


def _cross_checks(out: ParsedProperties) -> None:
    get = Lookup(out.values)
    what: str | None
    refused_names = {p.name for p in out.problems}
    bootstrap, history = F.KAFKA_BOOTSTRAP_SERVERS, F.HISTORY_KAFKA_BOOTSTRAP_SERVERS
    if not get[bootstrap] and not {bootstrap.name, history.name} & {*out.given_names}:
        out.refuse(bootstrap.name, None, "is required and missing", "Set it: Kafka cluster, as a list of host:port")
    if get.is_set(bootstrap) and get.is_set(history) and _disjoint(get[bootstrap], get[history]):
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
    _check_ticdc(out, get)
    _check_converters(out, get)
    _check_plain_converters(out, get)
    if out.families.chain is not None:
        _check_chain(out, get)
    _check_select_overrides(out, get)
    _note_kafka_timeouts(out, get)
    if get[F.HEARTBEAT_ACTION_QUERY] and not get[F.HEARTBEAT_INTERVAL_MS]:
        action, interval = F.HEARTBEAT_ACTION_QUERY.name, F.HEARTBEAT_INTERVAL_MS.name
        out.notes.append(f"{action} has no effect: {interval} is 0, so there are no heartbeats")
    if "sink" in get[F.NOTIFICATION_ENABLED_CHANNELS] and not get[F.NOTIFICATION_SINK_TOPIC_NAME]:
        what = f"is missing; {F.NOTIFICATION_ENABLED_CHANNELS.name} has sink"
        out.refuse(F.NOTIFICATION_SINK_TOPIC_NAME.name, None, what, "Name the topic of notifications")
    if F.TOPIC_PREFIX.name not in refused_names and get.is_set(F.TOPIC_PREFIX) and (what := F.topics_problem(get)):
        out.refuse(F.LEDGER_TOPIC.name, get[F.LEDGER_TOPIC], what, "Give each its own name")


def _check_ticdc(out: ParsedProperties, get: Lookup) -> None:
    """Check what goes with TiCDC's protocol; without it its properties have no effect."""
    if not F.is_ticdc(get):
        ineffective = [f.name for f in TICDC_FIELDS if get.is_set(f)]
        out.notes += [f"{name} has no effect with {F.VALUE_FORMAT.name}={get[F.VALUE_FORMAT]}" for name in ineffective]
        return
    for declared, why, fix in ticdc_problems(get):
        value_text = display_text(get[declared]) if get.is_set(declared) else None
        out.refuse(
            declared.name, value_text, f"does not go with {F.VALUE_FORMAT.name}={get[F.VALUE_FORMAT]}: {why}", fix
        )
    # AVRO-54: statements give no records.
    skipped = get[F.SKIPPED_OPERATIONS]
    if Operation.TRUNCATE not in skipped:
        out.notes.append(f"TRUNCATE gives no record with {F.VALUE_FORMAT.name}={get[F.VALUE_FORMAT]}")
    overrides = {F.INCLUDE_SCHEMA_CHANGES.name: False, F.SKIPPED_OPERATIONS.name: skipped | {Operation.TRUNCATE}}
    out.values = {**out.values, **overrides}


def _check_converters(out: ParsedProperties, get: Lookup) -> None:
    """Check the settings of Avro converters, and note those that the converter in use does not have."""
    for part, schemas in zip(F.PARTS, (F.KEY_SCHEMAS_ENABLE, F.VALUE_SCHEMAS_ENABLE), strict=True):
        converter: Field[Any] = F.VALUE_FORMAT if F.is_ticdc(get) else F.CONVERTER_CLASS_FIELD[part]
        if not F.is_avro(get, part):
            ineffective = [f.name for f in F.CONVERTER_FIELDS[part].all() if get.is_set(f)]
        else:
            for declared, what, fix in F.registry_problems(get, part):
                # One that was given wrongly has its problem already.
                if get.is_set(declared) or declared.name not in out.given_names:
                    out.refuse(declared.name, None, what, fix)
            # Avro keys and values have their schema in the registry, whatever this says.
            json_only = (schemas, F.VALUE_REPLACE_NULL_WITH_DEFAULT) if part == "value" else (schemas,)
            ineffective = [f.name for f in json_only if get.is_set(f)]
            out.values = {name: value for name, value in out.values.items() if name not in ineffective}
        out.notes += [f"{name} has no effect with {converter.name}={get[converter]}" for name in ineffective]


def _check_plain_converters(out: ParsedProperties, get: Lookup) -> None:
    """Refuse converters of text and bytes where no transform makes such records."""
    for declared in F.CONVERTER_CLASS_FIELD.values():
        if out.families.chain is None and get[declared] in PLAIN_CONVERTERS:
            what = "needs a transform that makes texts or bytes of change events, such as outbox.EventRouter"
            out.refuse(declared.name, get[declared], what, f"Use {JSON_CONVERTER} or {AVRO_CONVERTER}")


def _check_chain(out: ParsedProperties, get: Lookup) -> None:
    """Refuse what a chain of transforms cannot have behind it, and let the decoders write what it reads.

    It reads JSON with schemas; its own records are written as configured.
    """
    refusals: list[tuple[Field[Any], str, str]] = []
    if F.is_ticdc(get):
        refusals.append((F.VALUE_FORMAT, "its rows are not Connect records", "Remove transforms, or this"))
    elif get[F.EVENT_CONTRACT] is EventContract.OLD:
        fix = "Remove it: the transforms are those of Debezium 3.6.1, whose events they read"
        refusals.append((F.EVENT_CONTRACT, "they need events of contract 3.x", fix))
    for declared, why, fix in refusals:
        out.refuse(declared.name, display_text(get[declared]), f"does not go with {F.TRANSFORMS.name}: {why}", fix)
    name = "key.converter.replace.null.with.default"
    if out.texts.get(name, "").strip().lower() == "false":
        what = f"does not go with {F.TRANSFORMS.name}: a NULL that they put into a key is written as its default"
        out.refuse(name, "false", what, "Remove it, or let no transform put columns with a default into keys")
    if get[F.DRAIN_WRITERS] > 1:
        name = F.DRAIN_WRITERS.name
        out.notes.append(f"{name} has no effect: behind {F.TRANSFORMS.name} one writer keeps the order of the records")
    before: dict[Field[Any], object] = {
        F.KEY_CONVERTER: JSON_CONVERTER,
        F.VALUE_CONVERTER: JSON_CONVERTER,
        F.KEY_SCHEMAS_ENABLE: True,
        F.VALUE_SCHEMAS_ENABLE: True,
        F.VALUE_REPLACE_NULL_WITH_DEFAULT: False,
        F.DRAIN_WRITERS: 1,
        # Their defaults depend on the converters.
        F.FIELD_NAME_ADJUSTMENT_MODE: get[F.FIELD_NAME_ADJUSTMENT_MODE],
        F.SCHEMA_NAME_ADJUSTMENT_MODE: get[F.SCHEMA_NAME_ADJUSTMENT_MODE],
    }
    out.families.behind_chain = out.values
    out.values = {**out.values, **{declared.name: value for declared, value in before.items()}}


def _note_kafka_timeouts(out: ParsedProperties, get: Lookup) -> None:
    """Note times of the Kafka client that a transaction cuts short (``sink.clients``)."""
    limit = get[F.TRANSACTION_TIMEOUT_MS]
    for prefix in (kafka.KAFKA_PREFIX, kafka.PRODUCER_OVERRIDE_PREFIX):
        for name in ("delivery.timeout.ms", "message.timeout.ms", "socket.timeout.ms"):
            text = out.families.kafka_settings.get(prefix, {}).get(name, "").strip()
            if text.isdecimal() and int(text) > limit:
                out.notes.append(f"{prefix}{name} has no effect beyond {F.TRANSACTION_TIMEOUT_MS.name}={limit}")


def _check_select_overrides(out: ParsedProperties, get: Lookup) -> None:
    listed, statements = get[F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES], out.families.select_overrides
    name = F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES.name
    for table in listed:
        if not statements.get(table):
            out.refuse(f"{name}.{table}", None, f"is missing; {name} lists the table", "Set it to a SELECT statement")
    for table in statements:
        if table not in listed:
            what = f"has no effect, because {name} does not list the table"
            out.refuse(f"{name}.{table}", statements[table], what, f"Add {table} to {name}, or remove the statement")


def _disjoint(servers: str, other_servers: str) -> bool:
    return not {*servers.lower().split(",")} & {*other_servers.lower().split(",")}
