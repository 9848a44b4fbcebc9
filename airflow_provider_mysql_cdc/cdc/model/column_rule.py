"""What a configuration or a converter of one's own asks to be done with a column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_provider_mysql_cdc.cdc.model.connection import Secret


class RuleKind(StrEnum):
    """Kinds of column rules, in the order in which the first match counts (``ColumnMappers`` of Debezium 3.6.1)."""

    TRUNCATE = "truncate"
    MASK = "mask"
    SOURCE_TYPE = "source_type"
    HASH = "hash"
    HASH_V2 = "hash_v2"


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """Hold one rule as configured.

    Args:
        kind: What is to be done.
        length: Characters to keep, or asterisks to write.
        algorithm: Name of the hash for ``hashlib``.
        salt: Salt of the hash.
    """

    kind: RuleKind
    length: int = 0
    algorithm: str = ""
    salt: Secret = field(default_factory=lambda: Secret(""))


class ValueChangeKind(StrEnum):
    """Ways in which a value is changed."""

    CONSTANT = "constant"
    TRUNCATE_TEXT = "cut_text"
    TRUNCATE_BYTES = "cut_bytes"
    HASH = "hash"
    HASH_V2 = "hash_v2"


@dataclass(frozen=True, slots=True)
class ValueChange:
    """Say how the value of a column is changed in row images; keys are never changed.

    Args:
        kind: The way.
        length: Characters or bytes that are kept at most; None keeps all.
        text: The text that stands in place of every value, NULL too.
        algorithm: Name of the hash for ``hashlib``.
        salt: Salt of the hash.
    """

    kind: ValueChangeKind
    length: int | None = None
    text: str = ""
    algorithm: str = ""
    salt: Secret = field(default_factory=lambda: Secret(""))


@dataclass(frozen=True, slots=True)
class ColumnTreatment:
    """Hold what a rule means for one column.

    Args:
        parameters: Parameters that the column's schema gets, in order.
        change: How its values are changed, or None.
    """

    parameters: tuple[tuple[str, str], ...] = ()
    change: ValueChange | None = None


CONVERTER_REMEDY = (
    "correct the converter, or leave the column to its default mapping (converter_for returns None for it); "
    "docs/custom-converters.md describes the arguments and results of a converter"
)


class ConverterError(ValueError):
    """Say that a converter could not convert a value.

    Args:
        column: Name of the column.
        why: The cause, with the converter.
    """

    def __init__(self, column: str, why: str) -> None:
        super().__init__(why)
        self.column = column

    def __reduce__(self) -> tuple[type[ConverterError], tuple[str, str]]:
        return type(self), (self.column, str(self))


@dataclass(frozen=True, slots=True, eq=False)
class CustomColumn:
    """Hold a checked conversion.

    Args:
        column: Name of the column.
        label: The converter for messages, ``converter isbn (package.module.Class)``.
        convert: From the plain value, or None for NULL, to a value of the declared type.
        type: Literal type of Connect.
        name: Semantic type, or None.
        version: Its version, or None.
        parameters: Schema parameters in order.
        doc: Documentation in the schema, or None.
        optional: Whether null is allowed.
    """

    column: str
    label: str
    convert: Callable[[object], object]
    type: str
    name: str | None = None
    version: int | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    doc: str | None = None
    optional: bool = False
