"""Finding the native kernel: an extension of its own (``native/``), used where it is installed, never needed.

``MYSQL_CDC_NATIVE=off`` in a process's environment leaves it out.

A file of the kernel that was cut short ends the process that maps it (SIGBUS, no exception), and one with other bytes
decodes who knows what; so its bytes are compared with what the installer wrote down before it is loaded.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts

MODULE, ENV_VARIABLE = "mysql_cdc_native", "MYSQL_CDC_NATIVE"
DISTRIBUTION = "airflow-provider-mysql-cdc-native"
_OFF, _ON = ("off", "0", "false", "no"), ("", "on", "1", "true", "yes")
SWITCH_VALUES = dict.fromkeys(_OFF, False) | dict.fromkeys(_ON, True)
"""Values of the variable: whether they let the kernel decode. Others do not: whoever sets it wants something else."""
FORM = 7
"""What ``plan``, ``text_plan`` and ``Walker`` take and what records look like; ``native/src/lib.rs`` has the same."""
DECLINE_REASONS = ("value", "key_change", "incomplete_image", "call", "defect")
"""Why the kernel declines an event, by what it returns, that of -1 first."""
KEY_CHANGE, INCOMPLETE, PANIC = -2, -3, -5
"""Why the kernel left an event to Python: it changes a key, its images leave columns out, the kernel has a defect."""


AppendRecords = Callable[..., int]


class Tally:
    """Count what the decoders of a writer do.

    Args:
        native: The kernel's own counters.
    """

    def __init__(self, native: Any) -> None:
        self.native = native
        self._fallbacks: dict[str, int] = {}

    def count_fallback(self, reason: str) -> None:
        """Count a row event for which the kernel was not asked.

        Args:
            reason: Why.
        """
        self._fallbacks[reason] = self._fallbacks.get(reason, 0) + 1

    def counting_fallbacks(self, decode: AppendRecords, reason: str) -> AppendRecords:
        """Return a decoder's function that counts its calls as left to Python.

        Args:
            decode: The function.
            reason: Why.
        """

        def counted(*arguments: Any) -> int:
            self.count_fallback(reason)
            return decode(*arguments)

        return counted

    def counts(self) -> NativeCounts:
        """Return what was counted so far."""
        declined = {reason: n for reason, n in zip(DECLINE_REASONS, self.native.declined, strict=True) if n}
        return (
            NativeCounts(int(self.native.rows), {}).add(NativeCounts(0, declined)).add(NativeCounts(0, self._fallbacks))
        )


class Kernel(NamedTuple):
    """Say which decoder there is.

    Args:
        module: The extension; None when Python decodes everything.
        text: What the log says of it.
    """

    module: Any
    text: str

    def new_tally(self) -> Tally | None:
        """Return new counters of what the kernel decodes; None without a kernel."""
        return None if self.module is None else Tally(self.module.Tally())


def kernel() -> Kernel:
    """Return the kernel of this process."""
    setting = os.environ.get(ENV_VARIABLE, "").strip()
    enabled = SWITCH_VALUES.get(setting.lower())
    if not enabled:
        return Kernel(None, f"Python ({ENV_VARIABLE}={setting}{', which is neither on nor off' * (enabled is None)})")
    return _load_kernel()


@cache
def _load_kernel() -> Kernel:
    try:
        if damaged := _damaged_file():
            return Kernel(None, f"Python (the native kernel is damaged: {damaged}; install it again)")
        module = import_module(MODULE)
        plan_format = module.FORM
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == MODULE
        return Kernel(None, "Python" if missing else f"Python (the native kernel cannot be loaded: {error})")
    if plan_format != FORM:
        why = f"native kernel {module.__version__} is for another version of this package"
        return Kernel(None, f"Python ({why}: install the one that comes with it)")
    return Kernel(module, f"native kernel {module.__version__}")


def _damaged_file() -> str:
    """Return which file of the package that is to be imported is not as it was installed; empty where none is known."""
    spec = None if MODULE in sys.modules else find_spec(MODULE)
    if spec is None or spec.origin is None:
        return ""
    folder = Path(spec.origin).parent
    for distribution in metadata.distributions(name=DISTRIBUTION):
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            # A copy beside the installed one, such as one on PYTHONPATH, has no record.
            if file.hash is None or path.suffix != ".so" or not folder.exists() or not path.parent.samefile(folder):
                continue
            digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != file.hash.value:
                return f"{path} is not what was installed"
    return ""
