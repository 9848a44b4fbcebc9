"""What the code of one column in Avro is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from struct import Struct
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_binary as binary
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import literal
from airflow_provider_mysql_cdc.cdc.model.table import Column

_DOUBLE = Struct("<d").pack
LONG = len(binary.LENGTHS)
"""The first number of bytes that has no place in a table."""


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """Say how a column's values are written.

    Args:
        column: The column.
        options: Modes.
        head: What stands before a value that is not null: the branch of a union, or nothing.
        of: Turns a value's JSON text (byte text) into its bytes (byte text).
    """

    column: Column
    options: DecoderOptions
    head: str
    of: Callable[[str], str]

    def body(self, text: str = "", *, size: str = "", most: int = LONG) -> str:
        """Return the f-string body of a value.

        Args:
            text: F-string body of its bytes.
            size: Expression of the number of bytes that stands before them, if one does.
            most: The largest such number that the column's type allows.
        """
        return literal(self.head) + (f"{{{length(size, most)}}}" if size else "") + text

    def bare(self) -> ColumnForm:
        """Return the form of values without what stands before them."""
        return replace(self, head="")

    def whole(self, name: str) -> str:
        """Return the expression of a value that is a whole number.

        Args:
            name: The name that holds it.
        """
        head = literal(self.head)
        other = f"'{head}' + " if head else ""
        text = f"{head}{{F[{name} & 63]}}{{M[{name} >> 6 & 127]}}{{L[{name} >> 13]}}"
        return (
            f"f'{text}' if 8191 < {name} < {binary.MIDDLE} "
            f"else {other}(large({name}) if {name} > 8191 else S[{name}] if {name} >= -8192 else varint({name}))"
        )

    def instant(self, name: str, unit: int) -> str:
        """Return the expression of a point in time.

        Args:
            name: The name that holds it.
            unit: Units a second: 1000 or 1000000.
        """
        # Numbers of 30 bits and less are quicker to work with.
        low, high = f"{name}_l", f"{name}_h"
        upper = f"{{L[{high}]}}" if unit == 1000 else f"{{M[{high} & 127]}}{{M[{high} >> 7 & 127]}}{{L[{high} >> 14]}}"
        text = f"{{F[{low} & 63]}}{{M[{low} >> 6 & 127]}}{{M[{low} >> 13 & 127]}}{{M[{low} >> 20]}}{upper}"
        head = literal(self.head)
        least, most = 1 << LOW_BITS[unit], 1 << LOW_BITS[unit] + 14
        text = text.replace(low, f"({low} := {name} & 134217727)", 1).replace(high, f"({high} := {name} >> 27)", 1)
        return f"f'{head}{text}' if {least} <= {name} < {most} else '{head}' + varint({name})"

    def unscaled(self, name: str) -> str:
        """Return the expression of a value that is the unscaled number of a decimal; money has three bytes mostly.

        Args:
            name: The name that holds it.
        """
        head = literal(self.head)
        return (
            f"f'{head}\\x06{{B[{name} >> 16]}}{{B[{name} >> 8 & 255]}}{{B[{name} & 255]}}' if 32767 < {name} < 8388608 "
            f"else '{head}' + unscaled({name})"
        )

    def zero(self, null: str, epoch: str) -> str:
        """Return what stands for MySQL's zero dates (TYPE-53).

        Args:
            null: What stands for NULL.
            epoch: JSON text of the epoch, which stands there where NULL is not allowed.
        """
        return null if self.column.nullable else self.of(epoch)


LOW_BITS = {1000: 27, 1_000_000: 41}
"""Bits of a point in time below those that its last one or two bytes hold in this century, by units a second."""


def length(expression: str, most: int = LONG) -> str:
    """Return the expression of a number of bytes.

    Args:
        expression: What gives it, cheap.
        most: The largest number that is allowed; where it is below 8192, a larger one is an error.
    """
    return f"Z[{expression}]" if most < LONG else f"S[{expression}] if {expression} < {LONG} else varint({expression})"


def utf8(text: str) -> str:
    """Return UTF-8 byte text as it is.

    Raises:
        UnicodeDecodeError: It is no UTF-8.
    """
    text.encode("latin-1").decode()
    return text


def finite(number: float) -> str:
    """Return a double.

    Raises:
        ValueError: It is none that MySQL stores.
    """
    if number - number != 0:
        raise ValueError(f"{number!r} is no number that MySQL stores")
    return _DOUBLE(number).decode("latin-1")


NAMES: Mapping[str, Any] = MappingProxyType(
    {
        "S": binary.SMALL,
        "Z": binary.LENGTHS,
        "F": binary.FIRST,
        "M": binary.MORE,
        "L": binary.LAST,
        "B": binary.BYTES,
        "varint": binary.varint,
        "large": binary.large,
        "unscaled": binary.unscaled,
        "utf8": utf8,
        "finite": finite,
        "double_of": _DOUBLE,
    }
)
"""What generated code sees: tables and functions of bytes."""
