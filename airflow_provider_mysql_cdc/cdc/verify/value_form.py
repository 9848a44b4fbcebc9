"""How the values of a column are written: what a record's schema says of their type.

An event that was written before an ALTER TABLE has the forms of the earlier structure; with them its values can be
compared with those of the table (``value_meaning``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class ValueForm(NamedTuple):
    """Describe how values of a column are written.

    Args:
        type: Literal type of Connect; in TiCDC's protocol ``tidb``.
        name: Semantic type of Connect, or TiDB's type; empty for none.
        scale: Scale of a decimal that is written as unscaled bytes; -1 for all other values.
        others: Other forms that the value may have, where it is not known under which structure it was written.
        altered: Whether the column may have been declared otherwise then, so that a value may have become another one.
    """

    type: str
    name: str = ""
    scale: int = -1
    others: tuple[ValueForm, ...] = ()
    altered: bool = True

    def to_json(self) -> list[Any]:
        """Return plain JSON."""
        return [self.type, self.name, self.scale, [other.to_json() for other in self.others], self.altered]

    @classmethod
    def from_json(cls, form: Sequence[Any]) -> ValueForm:
        """Read what ``to_json`` wrote."""
        type_, name, scale, others, altered = form
        return cls(type_, name, scale, tuple(map(cls.from_json, others)), altered)


Forms = Mapping[str, ValueForm]
"""Forms by field."""
UNWRITTEN = ValueForm("unwritten")
"""Stands for the form of a value that a record lacks although its table had the column."""


class SchemaForms(dict[str, ValueForm]):
    """Hold the forms of fields with the Connect schema in JSON that says them.

    Args:
        forms: The forms.
        schema: The schema.
    """

    def __init__(self, forms: Forms, schema: Mapping[str, Any]) -> None:
        super().__init__(forms)
        self.schema = schema


DECIMAL = "org.apache.kafka.connect.data.Decimal"
TIDB = "tidb"
NUMBER_TEXT = "number"
"""Name of the form of a number that is written as text, which its schema does not say."""


def connect_form(schema: Mapping[str, Any]) -> ValueForm:
    """Return the form of values of a Connect schema.

    Args:
        schema: The schema as JsonConverter writes it.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    name = str(schema.get("name") or "")
    scale = int(schema["parameters"]["scale"]) if name == DECIMAL else -1
    return ValueForm(str(schema["type"]), name, scale)


def struct_forms(schema: Mapping[str, Any]) -> Forms:
    """Return the forms of the fields of a struct, as the key is one.

    Args:
        schema: Its Connect schema; errors as for ``connect_form``.
    """
    return {str(field["field"]): connect_form(field) for field in schema["fields"]}


def row_forms(schema: Mapping[str, Any]) -> Forms:
    """Return the forms of the columns in an envelope; empty for a schema that is none.

    Args:
        schema: Its Connect schema; errors as for ``connect_form``.
    """
    for field in schema["fields"]:
        if field["field"] == "after":
            return struct_forms(field)
    return {}
