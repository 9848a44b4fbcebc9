"""What a configuration asks to be done with a column, and what that means for its values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from airflow_provider_mysql_cdc.cdc.model.secret import Secret


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
