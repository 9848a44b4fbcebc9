"""Properties that treat columns and have a free part in their name, and converters that a property names (TYPE-62 to
TYPE-65).

Properties that treat columns and have a free part in their name: truncation, masks, hashes, converters.

Source: ``ColumnMappers``, ``Key`` and ``TinyIntOneToBooleanConverter`` of Debezium 3.6.1.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.field import Problem
from airflow_provider_mysql_cdc.cdc.config.parse_value import Patterns, boolean, patterns
from airflow_provider_mysql_cdc.cdc.config.property_names import scrub
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnRule, RuleKind
from airflow_provider_mysql_cdc.cdc.model.connection import Secret

BOOLEAN_CONVERTERS = (
    "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter",
    "io.debezium.connector.binlog.converters.TinyIntOneToBooleanConverter",
)
JAVA_PACKAGES = ("io.debezium.", "io.confluent.", "org.apache.kafka.", "java.", "javax.")
"""Packages of Java that no Python module is looked for in."""

IMPORTABLE_HINT = (
    "its module must be importable by the Airflow worker and by the Spark driver and executors "
    "(spark-submit --py-files, or installed there)"
)
_CLASS_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_REQUIRED_METHODS = ("configure", "converter_for")


class ConverterRefusedError(ValueError):
    """Say why a class cannot be used.

    Args:
        what: The reason.
        fix: What to do.
    """

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


@dataclass(frozen=True, slots=True, eq=False)
class LoadedConverter:
    """Hold a converter of one's own.

    Args:
        name: Its name in ``converters``.
        path: ``module.Class``.
        instance: The object (``convert.custom.CustomConverter``).
    """

    name: str
    path: str
    instance: Any


def custom_classes(properties: Mapping[str, object]) -> dict[str, str]:
    """Return the paths of Python classes that converters name, by property.

    Args:
        properties: Property values by name, as given.
    """
    names = (name.strip() for name in str(properties.get("converters") or "").split(","))
    paths = {f"{name}.type": str(properties.get(f"{name}.type") or "").strip() for name in names if name}
    return {name: path for name, path in paths.items() if path and not path.startswith(JAVA_PACKAGES)}


def load_converter(name: str, settings: Mapping[str, str]) -> LoadedConverter:
    """Return a converter, made and configured.

    Args:
        name: Its name in ``converters``.
        settings: Its properties, by name without ``<name>.``; ``type`` is the path of its class.

    Raises:
        ConverterRefusedError: It cannot be used.
    """
    path = settings.get("type", "").strip()
    if not path or path.startswith(JAVA_PACKAGES):
        what = f"is not a converter that exists here; there is {BOOLEAN_CONVERTERS[0]}" if path else "is missing"
        fix = "Remove the converter, or name that one, or one written in Python (docs/custom-converters.md)"
        raise ConverterRefusedError(what, fix)
    converter_class = _load_class(path)
    try:
        instance = converter_class()
        instance.configure({k: v for k, v in settings.items() if k != "type"})
    except Exception as error:
        raise ConverterRefusedError(
            f"the converter cannot be configured: {type(error).__name__}: {scrub(str(error), settings)}",
            f"Correct the {name}.* properties, or the converter",
        ) from None
    return LoadedConverter(name, path, instance)


def _load_class(path: str) -> type[Any]:
    fix = f"Name a class as package.module.Class; {IMPORTABLE_HINT}"
    if not _CLASS_PATH.fullmatch(path):
        raise ConverterRefusedError("is not a dotted path of a Python class", fix)
    module, _, name = path.rpartition(".")
    try:
        candidate = getattr(importlib.import_module(module), name, None)
    except Exception as error:
        why = f"module {module} cannot be imported: {type(error).__name__}: {error}"
        raise ConverterRefusedError(why, f"{fix}; a class of Java cannot be used: write it in Python") from error
    if candidate is None:
        raise ConverterRefusedError(f"module {module} has no class {name}", fix)
    missing = [m for m in _REQUIRED_METHODS if not callable(getattr(candidate, m, None))]
    if not isinstance(candidate, type) or missing:
        lacks = f": it lacks {' and '.join(missing)}" if missing else ""
        raise ConverterRefusedError(f"is not a class of a converter{lacks}", f"See docs/custom-converters.md; {fix}")
    return candidate


TRUNCATE_PREFIX = "column.truncate.to."
MASK_PREFIX = "column.mask.with."
HASH_V2_PREFIX = "column.mask.hash.v2."
HASH_PREFIX = "column.mask.hash."
PREFIXES = (TRUNCATE_PREFIX, MASK_PREFIX, HASH_V2_PREFIX, HASH_PREFIX)
"""Family prefixes; a longer one stands before its own prefix."""

_LENGTH_SUFFIX = re.compile(r"(\d+)\.chars")
_HASH_SUFFIX = re.compile(r"([^.]+)\.with\.salt\.(.+)", re.DOTALL)

ALGORITHMS: dict[str, str] = {
    "MD5": "md5",
    **dict.fromkeys(("SHA", "SHA1", "SHA-1"), "sha1"),
    **dict.fromkeys(("SHA224", "SHA-224"), "sha224"),
    **dict.fromkeys(("SHA256", "SHA-256"), "sha256"),
    **dict.fromkeys(("SHA384", "SHA-384"), "sha384"),
    **dict.fromkeys(("SHA512", "SHA-512"), "sha512"),
    **dict.fromkeys(("SHA512/224", "SHA-512/224"), "sha512_224"),
    **dict.fromkeys(("SHA512/256", "SHA-512/256"), "sha512_256"),
    **{f"SHA3-{bits}": f"sha3_{bits}" for bits in (224, 256, 384, 512)},
}
"""Java's ``MessageDigest`` names (upper case; Java ignores case) and those of ``hashlib`` (COL-06)."""


@dataclass(frozen=True, slots=True)
class BooleanConverter:
    """Choose TINYINT columns that become booleans (TYPE-62 to TYPE-64).

    Args:
        selector: ``selector``: which columns by ``database.table.column``; an empty list means all.
        check_length: ``length.checker``: only columns declared as TINYINT(1).
    """

    selector: Patterns = field(default_factory=Patterns)
    check_length: bool = True

    def selects(self, column: str, datatype: str, length: int | None) -> bool:
        """Say whether a column becomes a boolean.

        Args:
            column: ``database.table.column``.
            datatype: Type word with UNSIGNED and ZEROFILL.
            length: Display width as declared, or None.
        """
        if datatype.upper() not in ("TINYINT", "TINYINT UNSIGNED") or (self.check_length and length != 1):
            return False
        return not self.selector or self.selector.matches(column)


@dataclass(slots=True)
class ColumnFamilies:
    """Hold what the column families of a configuration say.

    Args:
        rules: Rules and the columns they are for, in the order in which the first match counts.
        converters: Converters in the order in which the first that takes a column counts.
        problems: What cannot be used.
    """

    rules: tuple[tuple[ColumnRule, Patterns], ...] = ()
    converters: tuple[BooleanConverter | LoadedConverter, ...] = ()
    problems: list[Problem] = field(default_factory=list)


def read_column_rules(members: Mapping[str, Mapping[str, str]]) -> ColumnFamilies:
    """Read the families of truncation, masks and hashes.

    Args:
        members: Property text by family prefix and by name without it.
    """
    out = ColumnFamilies()
    out.rules = tuple(
        rule
        for prefix in (TRUNCATE_PREFIX, MASK_PREFIX, HASH_PREFIX, HASH_V2_PREFIX)
        for rest, text in members.get(prefix, {}).items()
        for rule in _parse_rule(out, prefix, rest, text)
    )
    return out


def _parse_rule(out: ColumnFamilies, prefix: str, suffix: str, text: str) -> Iterator[tuple[ColumnRule, Patterns]]:
    try:
        columns = patterns(text)
        if not columns:
            raise ValueError("must name columns")
        yield _PARSERS[prefix](suffix), columns
    except ValueError as e:
        out.problems.append(Problem(prefix + suffix, str(e), "Correct the property", text))


def _length_parser(kind: RuleKind, minimum: int) -> Callable[[str], ColumnRule]:
    def parse(suffix: str) -> ColumnRule:
        match = _LENGTH_SUFFIX.fullmatch(suffix)
        if match is None:
            raise ValueError("the name must end in a number and .chars, as in 10.chars")
        if int(match[1]) < minimum:
            raise ValueError(f"the number must be at least {minimum}")
        return ColumnRule(kind, int(match[1]))

    return parse


def _hash_parser(kind: RuleKind) -> Callable[[str], ColumnRule]:
    def parse(suffix: str) -> ColumnRule:
        match = _HASH_SUFFIX.fullmatch(suffix)
        if match is None:
            raise ValueError("the name must end in an algorithm and a salt, as in SHA-256.with.salt.SALT")
        algorithm = ALGORITHMS.get(match[1].upper())
        if algorithm is None or algorithm not in hashlib.algorithms_available:
            raise ValueError(f"there is no algorithm {match[1]}; there are {', '.join(sorted(set(ALGORITHMS)))}")
        return ColumnRule(kind, algorithm=algorithm, salt=Secret(match[2]))

    return parse


_PARSERS: dict[str, Callable[[str], ColumnRule]] = {
    TRUNCATE_PREFIX: _length_parser(RuleKind.TRUNCATE, 0),
    MASK_PREFIX: _length_parser(RuleKind.MASK, 0),
    HASH_PREFIX: _hash_parser(RuleKind.HASH),
    HASH_V2_PREFIX: _hash_parser(RuleKind.HASH_V2),
}


def read_converters(out: ColumnFamilies, settings_by_name: Mapping[str, Mapping[str, str]]) -> None:
    """Read the converters.

    Args:
        out: Gets converters and problems.
        settings_by_name: Per name in ``converters``, its settings by name.
    """
    converters: list[BooleanConverter | LoadedConverter] = []
    for name, settings in settings_by_name.items():
        if settings.get("type", "").strip() in BOOLEAN_CONVERTERS:
            converters.append(_boolean_converter(out, name, settings))
            continue
        try:
            converters.append(load_converter(name, settings))
        except ConverterRefusedError as e:
            out.problems.append(Problem(f"{name}.type", str(e), e.fix, settings.get("type")))
    out.converters = tuple(converters)


def _boolean_converter(out: ColumnFamilies, name: str, settings: Mapping[str, str]) -> BooleanConverter:
    converter = BooleanConverter()
    for setting, text in settings.items():
        try:
            if setting == "selector":
                converter = BooleanConverter(patterns(text), converter.check_length)
            elif setting == "length.checker":
                converter = BooleanConverter(converter.selector, boolean(text) if text.strip() else True)
            elif setting != "type":
                raise ValueError("is not a setting of this converter; there are selector and length.checker")
        except ValueError as e:
            out.problems.append(Problem(f"{name}.{setting}", str(e), "Correct the value, or remove it", text))
    return converter
