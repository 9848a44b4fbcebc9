"""Kinds of explained differences: conditions on two values that a path alone cannot state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prooflib.differ import Difference

Kind = Callable[["Difference"], bool]

KINDS: dict[str, Kind] = {"any": lambda _: True}
