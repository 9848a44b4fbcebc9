"""Generated functions by the bitmap of NULL columns they are for."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any

# What a malformed row, or one that contradicts the schema, raises in generated code.
ROW_ERRORS = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, struct.error)
# So many combinations of NULLs get code of their own; the function for all others is about a fifth slower.
MAX_BITMAPS = 64


@lru_cache(maxsize=512)
def compiled(source: str) -> CodeType:
    """Return Python source, generated from a table's structure, as code that defines ``run``."""
    return compile(source, "<decoder>", "exec")


def run_function(code: CodeType, namespace: dict[str, Any]) -> Any:
    """Return the function ``run`` that some code defines.

    Args:
        code: From ``compiled``.
        namespace: Names that the function sees; tables of one shape share it, also in several threads at once.
    """
    defined: dict[str, Any] = {}
    exec(code, namespace, defined)  # generated here from the table
    return defined["run"]


def run_code(code: CodeType) -> CodeType:
    """Return the code of the function ``run`` itself.

    Args:
        code: From ``compiled``.
    """
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == "run")


def run_source(lines: list[str], namespace: dict[str, Any]) -> Any:
    """Return the function ``run`` that these lines define.

    Args:
        lines: Python source, generated from the table.
        namespace: Names it sees.
    """
    return run_function(compiled("\n".join(lines)), namespace)


class NullBitmapFunctions(dict[bytes, Any]):
    """Make the function of a bitmap when it is first seen; beyond ``MAX_BITMAPS`` one function serves all bitmaps.

    Args:
        make: Makes the function of one bitmap, or with None that of any bitmap.
    """

    def __init__(self, make: Callable[[bytes | None], Any]) -> None:
        super().__init__()
        self._make = make
        self._general: Any = None

    def __missing__(self, bitmap: bytes) -> Any:
        if len(self) < MAX_BITMAPS:
            function = self[bitmap] = self._make(bitmap)
            return function
        if self._general is None:
            self._general = self._make(None)
        return self._general
