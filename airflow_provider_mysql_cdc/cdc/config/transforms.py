"""Kafka Connect's single message transforms, as properties name them.

A chain of those that rename topics alone is done without records (``model.topic_transforms``); any other is built of
the classes in ``cdc.transforms``.

Source: ``ConnectorConfig`` and ``TransformationStage`` of Kafka Connect 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from airflow_provider_mysql_cdc.cdc.config.field import Problem
from airflow_provider_mysql_cdc.cdc.config.property_names import closest_name
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import (
    LogicalTableOptions,
    Router,
    TopicPredicate,
    TopicTransforms,
)
from airflow_provider_mysql_cdc.cdc.transforms.event_transforms import ReadToInsertEvent
from airflow_provider_mysql_cdc.cdc.transforms.known_transforms import (
    CONNECT,
    PREDICATES,
    REFUSED,
    TRANSFORMS,
    create_transform,
)
from airflow_provider_mysql_cdc.cdc.transforms.topic_routers import (
    ByLogicalTableRouter,
    Filter,
    RegexRouter,
    TopicNameMatches,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import (
    ChainStep,
    Option,
    OptionError,
    Predicate,
    Transform,
    TransformChain,
    flag,
    read_defaults,
)

PREFIX: Final = "transforms."
PREDICATE_PREFIX: Final = "predicates."
_COMMON = frozenset({"type", "predicate", "negate"})
_BLANKS: Final = "".join(map(chr, range(33)))
"""What ``String.trim`` of Java takes off."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def is_of_chain(name: str) -> bool:
    """Return whether a property names or sets transforms or predicates."""
    return f"{name}.".startswith((PREFIX, PREDICATE_PREFIX))


@dataclass(slots=True)
class ParsedTransforms:
    """Collect what the settings of transforms say.

    Args:
        old_contract: Whether the event contract is 1.9.
        transforms: Those that rename topics, where there are no others.
        chain: All of them otherwise; None where there are no others.
        notes: What a person should know.
        problems: What cannot be used.
    """

    old_contract: bool = False
    transforms: TopicTransforms = field(default_factory=TopicTransforms)
    chain: TransformChain | None = None
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, name: str, what: str, fix: str, value: str | None = None) -> None:
        """Add a problem."""
        self.problems.append(Problem(name, what, fix, value))


def parse_transforms(
    names: tuple[str, ...],
    settings: Mapping[str, Mapping[str, str]],
    predicates: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    *,
    old_contract: bool = False,
) -> ParsedTransforms:
    """Read transforms.

    Args:
        names: The names in ``transforms``.
        settings: Settings by transform and name.
        predicates: Settings of the predicates by predicate and name.
        old_contract: Whether the event contract is 1.9; its router always adjusted schema names to Avro's.
    """
    out = ParsedTransforms(old_contract)
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        out.refuse("transforms", f"names {', '.join(duplicates)} twice", "Name each transform once")
    known = {name: _read_predicate(out, name, predicate) for name, predicate in predicates.items()}
    parsed = [_read_step(out, name, settings.get(name, {}), known) for name in dict.fromkeys(names)]
    if out.problems:
        return out
    steps = [step for step in parsed if step is not None]
    if all(_renames_topics(step) for step, _ in steps):
        routers = tuple(r for step, values in steps if (r := _router(step, values, old_contract)) is not None)
        out.transforms = TopicTransforms(routers, any(isinstance(s.transform, ReadToInsertEvent) for s, _ in steps))
    else:
        out.chain = TransformChain(tuple(step for step, _ in steps))
    return out


def _read_step(
    out: ParsedTransforms, name: str, settings: Mapping[str, str], predicates: Mapping[str, Predicate | None]
) -> tuple[ChainStep, Mapping[str, Any]] | None:
    """Return a transform and the values of its options; None where it cannot be used."""
    kind = settings.get("type", "").strip()
    predicate, negated = _read_condition(out, name, settings, predicates)
    if kind not in TRANSFORMS:
        _refuse_kind(out, name, kind, settings.get("type"))
        return None
    made_by = TRANSFORMS[kind].made_by
    if kind.startswith(CONNECT):
        settings = _trimmed(settings)
    values = _read_options(out, f"{PREFIX}{name}.", made_by, settings)
    if values is None:
        return None
    if made_by is Filter and not settings.get("predicate", "").strip():
        out.refuse(f"{PREFIX}{name}.predicate", "is missing; without it all records are dropped", "Name a predicate")
    try:
        return ChainStep(name, create_transform(kind, values), predicate, negated), values
    except OptionError as error:
        option = f"{PREFIX}{name}.{error.option}"
        out.refuse(option, error.what, error.fix, settings.get(error.option))
        return None


def _trimmed(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return settings as Kafka's ``ConfigDef`` reads them; Debezium's options keep their blanks."""
    return {setting: text.strip(_BLANKS) for setting, text in settings.items()}


def _refuse_kind(out: ParsedTransforms, name: str, kind: str, text: str | None) -> None:
    remove = f"remove {name} from transforms and all {PREFIX}{name}.*"
    if kind in REFUSED:
        why, fix = REFUSED[kind]
        out.refuse(f"{PREFIX}{name}.type", f"not supported: {why}", f"{fix}; {remove}", text)
        return
    base = kind.partition("$")[0]
    closest = " or ".join(known for known in TRANSFORMS if kind and known.partition("$")[0] == base)
    if kind and not closest:
        closest = closest_name(kind, TRANSFORMS, cutoff=0.8) or ""
    what = "not supported: it is Java code that this provider does not have" if kind else "is missing"
    fix = f"write {closest}, if that is meant; or {remove}" if closest else f"{remove}, and transform in the consumer"
    listed = "docs/properties.md lists those that there are (chapter Transforms)"
    out.refuse(f"{PREFIX}{name}.type", what, f"{fix[0].upper()}{fix[1:]}; {listed}", text)


def _read_options(
    out: ParsedTransforms, prefix: str, made_by: type[Transform] | type[Predicate], settings: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the values of options, defaults included; None where one of them cannot be used."""
    options, before, values = made_by.OPTIONS, len(out.problems), dict[str, Any]()
    no_effect, former = (getattr(made_by, name, _NOTHING) for name in ("NO_EFFECT", "FORMER"))
    for setting, text in settings.items():
        if setting in _COMMON:
            continue
        if setting in no_effect:
            out.notes.append(f"{prefix}{setting} has no effect: {no_effect[setting]}")
        elif setting in former:
            why = "Debezium 3.6 and Kafka Connect 4 ignore this option of older releases"
            out.notes.append(f"{prefix}{setting} has no effect: {why}; write {former[setting]}")
        elif setting not in options:
            supported = ", ".join(options) or "none"
            what = f"is not a setting of this {'predicate' if prefix.startswith(PREDICATE_PREFIX) else 'transform'}"
            out.refuse(prefix + setting, what, f"Remove it; there is {supported}", text)
        else:
            _read_option(out, prefix + setting, options[setting], text, values, setting)
    for setting, declared in options.items():
        if declared.required and setting not in settings:
            out.refuse(prefix + setting, "is required and missing", f"Set it: {declared.doc}")
    return read_defaults(options, values) if len(out.problems) == before else None


def _read_option(
    out: ParsedTransforms, name: str, option: Option, text: str, values: dict[str, Any], setting: str
) -> None:
    try:
        values[setting] = option.parse(text)
    except ValueError as error:
        out.refuse(name, str(error), "Correct the value", text)


def _read_predicate(out: ParsedTransforms, name: str, settings: Mapping[str, str]) -> Predicate | None:
    """Return a predicate; None if it cannot be used, which is one of the problems then."""
    prefix, kind = f"{PREDICATE_PREFIX}{name}.", settings.get("type", "").strip()
    if kind not in PREDICATES:
        what = "is not a predicate of Kafka Connect" if kind else "is missing"
        fix = f"Remove {name} from predicates, all {prefix}*, and the transforms that name it; there is "
        out.refuse(f"{prefix}type", what, fix + ", ".join(PREDICATES), settings.get("type"))
        return None
    values = _read_options(out, prefix, PREDICATES[kind], _trimmed(settings))
    return None if values is None else PREDICATES[kind](values)


def _read_condition(
    out: ParsedTransforms, name: str, settings: Mapping[str, str], predicates: Mapping[str, Predicate | None]
) -> tuple[Predicate | None, bool]:
    """Return which records a transform applies to: its predicate, and whether to the others."""
    predicate, negated = settings.get("predicate", "").strip(), False
    try:
        negated = flag(settings.get("negate", "false"))
    except ValueError as error:
        out.refuse(f"{PREFIX}{name}.negate", str(error), "Correct the value", settings["negate"])
    if not predicate:
        if negated:
            fix = "Set predicate, or remove it"
            out.refuse(f"{PREFIX}{name}.negate", "has no predicate to negate", fix, settings["negate"])
        return None, False
    if predicate not in predicates:
        fix = "Add it to predicates, or remove it"
        out.refuse(f"{PREFIX}{name}.predicate", "is not listed in predicates", fix, predicate)
        return None, False
    return predicates[predicate], negated


def _renames_topics(step: ChainStep) -> bool:
    """Return whether a transform is done without looking at records."""
    if isinstance(step.transform, ReadToInsertEvent):
        return step.predicate is None
    by_topic = step.predicate is None or isinstance(step.predicate, TopicNameMatches)
    return by_topic and isinstance(step.transform, tuple(_ROUTERS))


def _router(step: ChainStep, values: Mapping[str, Any], old_contract: bool) -> Router | None:
    """Return what renames the topics of all records alike; None for ``ReadToInsertEvent``."""
    make = _ROUTERS.get(type(step.transform))
    if make is None:
        return None
    selected = None
    if isinstance(step.predicate, TopicNameMatches):
        selected = TopicPredicate(step.predicate.pattern, step.negated)
    return replace(make(step.transform, values, old_contract), predicate=selected)


def _regex_router(transform: Any, values: Mapping[str, Any], old_contract: bool) -> Router:
    return Router(transform.rewrite)


def _logical_router(transform: Any, values: Mapping[str, Any], old_contract: bool) -> Router:
    mode = values["schema.name.adjustment.mode"] or ("avro" if old_contract else "none")
    return Router(
        transform.topic, LogicalTableOptions(transform.key_field, transform.identifier, mode, not old_contract)
    )


_ROUTERS: dict[type[Transform], Callable[[Any, Mapping[str, Any], bool], Router]] = {
    RegexRouter: _regex_router,
    ByLogicalTableRouter: _logical_router,
}
