"""Finding the native kernel: an extension of its own (``native/``), used where it is installed, never needed.

``MYSQL_CDC_NATIVE=off`` in a process's environment leaves it out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts

MODULE, VARIABLE = "mysql_cdc_native", "MYSQL_CDC_NATIVE"
FORM = 7
"""What ``plan``, ``text_plan`` and ``Walker`` take and what records look like; ``native/src/lib.rs`` has the same."""
REASONS = ("value", "key_change", "incomplete_image", "call", "defect")
"""Why the kernel declines an event, by what it returns, that of -1 first."""
KEY_CHANGE, INCOMPLETE, PANIC = -2, -3, -5
"""Why the kernel left an event to Python: it changes a key, its images leave columns out, the kernel has a defect."""


Decode = Callable[..., int]


class Tally:
    """Count what the decoders of a writer do.

    Args:
        native: The kernel's own counters.
    """

    def __init__(self, native: Any) -> None:
        self.native = native
        self._left: dict[str, int] = {}

    def left(self, reason: str) -> None:
        """Count a row event for which the kernel was not asked.

        Args:
            reason: Why.
        """
        self._left[reason] = self._left.get(reason, 0) + 1

    def counting(self, decode: Decode, reason: str) -> Decode:
        """Return a decoder's function that counts its calls as left to Python.

        Args:
            decode: The function.
            reason: Why.
        """

        def counted(*given: Any) -> int:
            self.left(reason)
            return decode(*given)

        return counted

    def counts(self) -> NativeCounts:
        """Return what was counted so far."""
        asked = {reason: n for reason, n in zip(REASONS, self.native.declined, strict=True) if n}
        return NativeCounts(int(self.native.rows), {}).add(NativeCounts(0, asked)).add(NativeCounts(0, self._left))


class Kernel(NamedTuple):
    """Say which decoder there is.

    Args:
        module: The extension; None when Python decodes everything.
        text: What the log says of it.
    """

    module: Any
    text: str

    def tally(self) -> Tally | None:
        """Return new counters of what the kernel decodes; None without a kernel."""
        return None if self.module is None else Tally(self.module.Tally())


def kernel() -> Kernel:
    """Return the kernel of this process."""
    if os.environ.get(VARIABLE, "").lower() == "off":
        return Kernel(None, f"Python ({VARIABLE}=off)")
    return _installed()


@cache
def _installed() -> Kernel:
    try:
        module = import_module(MODULE)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == MODULE
        return Kernel(None, "Python" if missing else f"Python (the native kernel cannot be loaded: {error})")
    if module.FORM != FORM:
        why = f"native kernel {module.__version__} is for another version of this package"
        return Kernel(None, f"Python ({why}: install the one that comes with it)")
    return Kernel(module, f"native kernel {module.__version__}")
