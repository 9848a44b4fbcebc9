"""Properties that treat columns and have a free part in their name: truncation, masks, hashes, converters.

Source: ``ColumnMappers``, ``Key`` and ``TinyIntOneToBooleanConverter`` of Debezium 3.6.1.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.config.converters import (
    BOOLEAN_CONVERTERS,
    ConverterRefusedError,
    LoadedConverter,
    load_converter,
)
from airflow_provider_mysql_cdc.cdc.config.field import Problem
from airflow_provider_mysql_cdc.cdc.config.parse_value import Patterns, boolean, patterns
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnRule, RuleKind
from airflow_provider_mysql_cdc.cdc.model.secret import Secret

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
