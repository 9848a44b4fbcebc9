"""What the code of one column in Avro is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from struct import Struct
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro import avro_binary
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import literal
from airflow_provider_mysql_cdc.cdc.model.table import Column

_DOUBLE = Struct("<d").pack
LENGTH_LIMIT = len(avro_binary.LENGTHS)
"""The first number of bytes that has no place in a table."""


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """Say how a column's values are written.

    Args:
        column: The column.
        options: Modes.
        branch: Text before a value that is not null: the branch of a union, or nothing.
        encode: Turns a value's JSON text (byte text) into its bytes (byte text).
    """

    column: Column
    options: DecoderOptions
    branch: str
    encode: Callable[[str], str]

    def body(self, text: str = "", *, size: str = "", max_size: int = LENGTH_LIMIT) -> str:
        """Return the f-string body of a value.

        Args:
            text: F-string body of its bytes.
            size: Expression of the number of bytes that precedes them, if there is one.
            max_size: The largest such number that the column's type allows.
        """
        return literal(self.branch) + (f"{{{length_code(size, max_size)}}}" if size else "") + text

    def without_branch(self) -> ColumnFormat:
        """Return the format of values without the branch of their union."""
        return replace(self, branch="")

    def integer(self, name: str) -> str:
        """Return the expression of a value that is a whole number.

        Args:
            name: The name that holds it.
        """
        branch = literal(self.branch)
        slow_branch = f"'{branch}' + " if branch else ""
        text = f"{branch}{{F[{name} & 63]}}{{M[{name} >> 6 & 127]}}{{L[{name} >> 13]}}"
        return (
            f"f'{text}' if 8191 < {name} < {avro_binary.FOUR_BYTE_LIMIT} "
            f"else {slow_branch}(large({name}) if {name} > 8191 else S[{name}] if {name} >= -8192 else varint({name}))"
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
        branch = literal(self.branch)
        least, limit = 1 << LOW_BITS[unit], 1 << LOW_BITS[unit] + 14
        text = text.replace(low, f"({low} := {name} & 134217727)", 1).replace(high, f"({high} := {name} >> 27)", 1)
        return f"f'{branch}{text}' if {least} <= {name} < {limit} else '{branch}' + varint({name})"

    def unscaled(self, name: str) -> str:
        """Return the expression of a value that is the unscaled number of a decimal; money has three bytes mostly.

        Args:
            name: The name that holds it.
        """
        branch = literal(self.branch)
        return (
            f"f'{branch}\\x06{{B[{name} >> 16]}}{{B[{name} >> 8 & 255]}}{{B[{name} & 255]}}' if 32767 < {name} < "
            "8388608 "
            f"else '{branch}' + unscaled({name})"
        )

    def zero_date(self, null: str, epoch: str) -> str:
        """Return the bytes of MySQL's zero dates (TYPE-53).

        Args:
            null: Bytes of NULL.
            epoch: JSON text of the epoch, which replaces them where NULL is not allowed.
        """
        return null if self.column.nullable else self.encode(epoch)


LOW_BITS = {1000: 27, 1_000_000: 41}
"""Bits of a point in time below those that its last one or two bytes hold in this century, by units a second."""


def length_code(expression: str, max_size: int = LENGTH_LIMIT) -> str:
    """Return the expression of a number of bytes.

    Args:
        expression: Its expression, cheap to compute.
        max_size: The largest number that is allowed; where it is below 8192, a larger one is an error.
    """
    return (
        f"Z[{expression}]"
        if max_size < LENGTH_LIMIT
        else f"S[{expression}] if {expression} < {LENGTH_LIMIT} else varint({expression})"
    )


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
        ValueError: It is not a number that MySQL stores.
    """
    if number - number != 0:
        raise ValueError(f"{number!r} is not a number that MySQL stores")
    return _DOUBLE(number).decode("latin-1")


CODE_NAMESPACE: Mapping[str, Any] = MappingProxyType(
    {
        "S": avro_binary.SMALL,
        "Z": avro_binary.LENGTHS,
        "F": avro_binary.FIRST,
        "M": avro_binary.CONTINUED,
        "L": avro_binary.LAST,
        "B": avro_binary.BYTES,
        "varint": avro_binary.varint,
        "large": avro_binary.large,
        "unscaled": avro_binary.unscaled,
        "utf8": utf8,
        "finite": finite,
        "double_of": _DOUBLE,
    }
)
"""What generated code sees: tables and functions of bytes."""
