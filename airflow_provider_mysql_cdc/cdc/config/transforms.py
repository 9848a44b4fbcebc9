"""Kafka Connect's single message transforms, as far as they are supported.

Source: ``ReadToInsertEvent`` and ``ByLogicalTableRouter`` of Debezium 3.6.1, ``RegexRouter`` of Kafka 4.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.enums import NameAdjustmentMode
from airflow_provider_mysql_cdc.cdc.config.field import Problem
from airflow_provider_mysql_cdc.cdc.config.parse_value import boolean, choice, pattern
from airflow_provider_mysql_cdc.cdc.model.expression import Expression
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import (
    LogicalTableOptions,
    Rewrite,
    Router,
    TopicPredicate,
    TopicTransforms,
    parse_replacement,
)

PREFIX = "transforms."
READ_TO_INSERT = "io.debezium.connector.mysql.transforms.ReadToInsertEvent"
REGEX_ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"
LOGICAL_ROUTER = "io.debezium.transforms.ByLogicalTableRouter"
KEY_FIELD = "__dbz__physicalTableIdentifier"

PREDICATE_PREFIX = "predicates."
TOPIC_NAME_MATCHES = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"


def _expression(text: str) -> Expression:
    return pattern(text, ignore_case=False)


def _required_text(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def _optional_expression(text: str) -> Expression | None:
    return _expression(text) if text.strip() else None


@dataclass(frozen=True, slots=True)
class TransformSetting:
    """Declare a setting of a transform.

    Args:
        parse: Turns the text into the value; raises ``ValueError``.
        doc: Words for the reference page.
        required: Whether it must be given.
    """

    parse: Callable[[str], Any]
    doc: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class TransformKind:
    """Declare a transform.

    Args:
        doc: Words for the reference page.
        settings: Its settings beside ``type``.
        no_effect: Settings that are accepted, with the reason why they do nothing.
    """

    doc: str
    settings: Mapping[str, TransformSetting] = field(default_factory=dict)
    no_effect: Mapping[str, str] = field(default_factory=dict)


TRANSFORM_KINDS: dict[str, TransformKind] = {
    READ_TO_INSERT: TransformKind("snapshot rows have `op` `c` in place of `r`"),
    REGEX_ROUTER: TransformKind(
        "renames topics; schemas and keys stay",
        {
            "regex": TransformSetting(_expression, "matches the whole topic name", required=True),
            "replacement": TransformSetting(str, "the new name; `$1` is the first group", required=True),
        },
    ),
    LOGICAL_ROUTER: TransformKind(
        "renames topics so that several tables share one; the schemas are named after the new topic",
        {
            "topic.regex": TransformSetting(
                lambda text: _expression(_required_text(text)), "matches the whole topic name", required=True
            ),
            "topic.replacement": TransformSetting(
                _required_text, "the new name; `$1` is the first group", required=True
            ),
            "key.enforce.uniqueness": TransformSetting(
                boolean, "whether keys get a field that names the table; default `true`"
            ),
            "key.field.name": TransformSetting(_required_text, f"that field's name; default `{KEY_FIELD}`"),
            "key.field.regex": TransformSetting(
                _optional_expression, "matches the old topic name; without it the field holds that name"
            ),
            "key.field.replacement": TransformSetting(str, "makes the field's value of the match"),
            "schema.name.adjustment.mode": TransformSetting(
                choice(NameAdjustmentMode), "how schema names are adjusted; default `none`, with contract 1.9 `avro`"
            ),
        },
        {"logical.table.cache.size": "names are made once for each table version"},
    ),
}
"""Supported transforms by the name of their class."""


@dataclass(slots=True)
class ParsedTransforms:
    """Collect what the settings of transforms say.

    Args:
        old_contract: Whether the event contract is 1.9.
        transforms: The transforms.
        notes: What a person should know.
        problems: What cannot be used.
    """

    old_contract: bool = False
    transforms: TopicTransforms = field(default_factory=TopicTransforms)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, transform: str, setting: str, what: str, fix: str, value: str | None = None) -> None:
        """Add a problem."""
        self.problems.append(Problem(f"{PREFIX}{transform}.{setting}", what, fix, value))


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
        out.problems.append(Problem("transforms", f"names {', '.join(duplicates)} twice", "Name each transform once"))
    routers: list[Router] = []
    read_to_insert = False
    patterns = {name: _read_predicate(out, name, predicate) for name, predicate in predicates.items()}
    for name in dict.fromkeys(names):
        kind = _transform_kind(out, name, settings.get(name, {}))
        if kind == READ_TO_INSERT:
            read_to_insert = True
        before = len(out.problems)
        values = _parse_settings(out, name, TRANSFORM_KINDS[kind], settings[name]) if kind else {}
        predicate = _transform_predicate(out, name, kind, settings.get(name, {}), patterns)
        if kind in _ROUTERS and len(out.problems) == before and (router := _ROUTERS[kind](out, name, values)):
            routers.append(replace(router, predicate=predicate))
    out.transforms = TopicTransforms(tuple(routers), read_to_insert)
    return out


def _transform_kind(out: ParsedTransforms, name: str, settings: Mapping[str, str]) -> str:
    kind = settings.get("type", "").strip()
    if kind in TRANSFORM_KINDS:
        return kind
    what = "not supported yet: it is Java code of Kafka Connect" if kind else "is missing"
    fix = (
        f"Remove {name} from transforms and all {PREFIX}{name}.*, and transform in the consumer; supported are "
        f"{', '.join(TRANSFORM_KINDS)}"
    )
    out.refuse(name, "type", what, fix, settings.get("type"))
    return ""


def _read_predicate(out: ParsedTransforms, name: str, settings: Mapping[str, str]) -> Expression | None:
    """Return the expression of a predicate; None if it cannot be used, which is one of the problems then."""

    def refuse(setting: str, what: str, fix: str) -> None:
        out.problems.append(Problem(f"{PREDICATE_PREFIX}{name}.{setting}", what, fix, settings.get(setting)))

    if settings.get("type", "").strip() != TOPIC_NAME_MATCHES:
        what = "not supported yet: it looks at single records" if settings.get("type") else "is missing"
        fix = f"Remove {name} from predicates, all {PREDICATE_PREFIX}{name}.*, and the transforms that name it; "
        refuse("type", what, f"{fix}supported is {TOPIC_NAME_MATCHES}")
        return None
    for setting in settings.keys() - {"type", "pattern"}:
        refuse(setting, "is no setting of this predicate", "Remove it; there is pattern")
    try:
        return _expression(_required_text(settings.get("pattern", "")))
    except ValueError as error:
        refuse("pattern", str(error), "Correct the value")
        return None


def _transform_predicate(
    out: ParsedTransforms,
    name: str,
    kind: str,
    settings: Mapping[str, str],
    patterns: Mapping[str, Expression | None],
) -> TopicPredicate | None:
    """Return which topics a transform applies to; None for all, and where it cannot be used."""
    predicate = settings.get("predicate", "").strip()
    negated = False
    try:
        negated = boolean(settings.get("negate", "false"))
    except ValueError as error:
        out.refuse(name, "negate", str(error), "Correct the value", settings["negate"])
    if not predicate:
        if negated:
            out.refuse(name, "negate", "has no predicate to negate", "Set predicate, or remove it", settings["negate"])
        return None
    if predicate not in patterns:
        out.refuse(name, "predicate", "is not listed in predicates", "Add it to predicates, or remove it", predicate)
        return None
    if kind and kind not in _ROUTERS:
        what = "not supported yet: this transform applies to all topics or to none"
        out.refuse(name, "predicate", what, "Remove it", predicate)
    pattern = patterns[predicate]
    return None if pattern is None else TopicPredicate(pattern, negated)


def _parse_settings(
    out: ParsedTransforms, name: str, kind: TransformKind, settings: Mapping[str, str]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for setting, text in settings.items():
        if setting in ("type", "predicate", "negate"):
            continue
        if setting in kind.no_effect:
            out.notes.append(f"{PREFIX}{name}.{setting} has no effect: {kind.no_effect[setting]}")
        elif setting not in kind.settings:
            supported = ", ".join(kind.settings) or "none"
            out.refuse(name, setting, "is no setting of this transform", f"Remove it; there is {supported}", text)
        else:
            try:
                values[setting] = kind.settings[setting].parse(text)
            except ValueError as e:
                out.refuse(name, setting, str(e), "Correct the value", text)
    for setting, declared in kind.settings.items():
        if declared.required and setting not in settings:
            out.refuse(name, setting, "is required and missing", f"Set it: {declared.doc}")
    return values


def _rewrite(out: ParsedTransforms, name: str, expression: Expression, text: str, setting: str) -> Rewrite | None:
    try:
        return Rewrite(expression, parse_replacement(text, expression))
    except ValueError as e:
        out.refuse(name, setting, str(e), "Correct the value", text)
        return None


def _regex_router(out: ParsedTransforms, name: str, values: Mapping[str, Any]) -> Router | None:
    rewrite = _rewrite(out, name, values["regex"], values["replacement"], "replacement")
    return None if rewrite is None else Router(rewrite)


def _logical_router(out: ParsedTransforms, name: str, values: Mapping[str, Any]) -> Router | None:
    rewrite = _rewrite(out, name, values["topic.regex"], values["topic.replacement"], "topic.replacement")
    expression: Expression | None = values.get("key.field.regex")
    text: str = values.get("key.field.replacement", "")
    identifier = None
    if expression is not None and not text.strip():
        what = "must not be empty when key.field.regex is set"
        out.refuse(name, "key.field.replacement", what, "Set it, or remove key.field.regex", text or None)
    elif expression is not None:
        identifier = _rewrite(out, name, expression, text, "key.field.replacement")
    if rewrite is None:
        return None
    key_field = values.get("key.field.name", KEY_FIELD) if values.get("key.enforce.uniqueness", True) else None
    mode = values.get("schema.name.adjustment.mode", "avro" if out.old_contract else "none")
    return Router(rewrite, LogicalTableOptions(key_field, identifier, str(mode), not out.old_contract))


_ROUTERS: dict[str, Callable[[ParsedTransforms, str, Mapping[str, Any]], Router | None]] = {
    REGEX_ROUTER: _regex_router,
    LOGICAL_ROUTER: _logical_router,
}
