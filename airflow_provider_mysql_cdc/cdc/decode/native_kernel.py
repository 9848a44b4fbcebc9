"""Find the native kernel: a separate extension (``native/``) that is used where it is installed and is never required.

``MYSQL_CDC_NATIVE=off`` in a process's environment disables it.

A truncated kernel file ends the process that maps it (SIGBUS, no exception), and a damaged one may decode wrong values;
so the file is compared with the hash that the installer recorded before it is loaded.
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
"""Whether a value of the variable enables the kernel; any other value disables it."""
FORM = 0x41BEB856
"""Hash of the arguments of the kernel's functions and of records, as in ``native/src/lib.rs``."""
DECLINE_REASONS = ("value", "key_change", "incomplete_image", "call", "defect")
"""Why the kernel declines an event, by its negative result, that of -1 first."""
KEY_CHANGE, INCOMPLETE, PANIC = -2, -3, -5
"""Results of events that Python decodes: a changed key that headers show in a way that the kernel does not know, images
that leave columns out, or a defect of the kernel."""


AppendRecords = Callable[..., int]


class Tally:
    """Count the rows and events of a writer's decoders.

    Args:
        native: The kernel's own counters.
    """

    def __init__(self, native: Any) -> None:
        self.native = native
        self._fallbacks: dict[str, int] = {}

    def count_fallback(self, reason: str) -> None:
        """Count a row event that Python decoded without the kernel.

        Args:
            reason: Why.
        """
        self._fallbacks[reason] = self._fallbacks.get(reason, 0) + 1

    def counting_fallbacks(self, decode: AppendRecords, reason: str) -> AppendRecords:
        """Return a decoder's function that counts its calls as decoded in Python.

        Args:
            decode: The function.
            reason: Why.
        """

        def counted(*arguments: Any) -> int:
            self.count_fallback(reason)
            return decode(*arguments)

        return counted

    def counts(self) -> NativeCounts:
        """Return the counts so far."""
        declined = {reason: n for reason, n in zip(DECLINE_REASONS, self.native.declined, strict=True) if n}
        return (
            NativeCounts(int(self.native.rows), {}).add(NativeCounts(0, declined)).add(NativeCounts(0, self._fallbacks))
        )


class Kernel(NamedTuple):
    """Describe the kernel of a process.

    Args:
        module: The extension; None when Python decodes everything.
        text: Its description for the log.
    """

    module: Any
    text: str

    def new_tally(self) -> Tally | None:
        """Return new counters; None without a kernel."""
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
    """Return which file of the package differs from the installed one; empty where none is known to."""
    spec = None if MODULE in sys.modules else find_spec(MODULE)
    if spec is None or spec.origin is None:
        return ""
    folder = Path(spec.origin).parent
    for distribution in metadata.distributions(name=DISTRIBUTION):
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            # A second copy, such as one on PYTHONPATH, has no recorded hash.
            if file.hash is None or path.suffix != ".so" or not folder.exists() or not path.parent.samefile(folder):
                continue
            digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != file.hash.value:
                return f"{path} is not what was installed"
    return ""
