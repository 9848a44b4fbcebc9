"""What a converter of one's own said of a column (TYPE-65)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
