"""The number by which Python knows its kernel is the hash of what both exchange: of plans, calls and records."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import test_fuzz_native
import test_fuzz_native_avro
import test_fuzz_native_avro_text
import test_fuzz_native_text
import test_fuzz_native_ticdc
import test_fuzz_native_transactions

from airflow_provider_mysql_cdc.cdc.decode import native_kernel

pytestmark = [pytest.mark.quick, pytest.mark.native]
RUNS: tuple[Callable[[int], None], ...] = (
    test_fuzz_native.run,
    test_fuzz_native_avro.run,
    test_fuzz_native_ticdc.run,
    test_fuzz_native_transactions.run,
    test_fuzz_native_text.many,
    test_fuzz_native_avro_text.many,
)
SEEDS = 25
PLAIN = (bytes, str, int, float, list, tuple, type(None))


class Recorded:
    """An object of the kernel, or the kernel, which notes the calls of its functions and what they give."""

    def __init__(self, real: Any, found: Any) -> None:
        self.real, self.found = real, found

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.real, name)
        if not callable(function) or name == "Tally":
            return function

        def call(*given: Any) -> Any:
            result = function(*(value.real if isinstance(value, Recorded) else value for value in given))
            told = [value for value in (*given, result) if isinstance(value, PLAIN)]
            if name == "decode_transactions":
                told[-1] = [*result[:3], [some[1:] for some in result[3]], *result[4:]]
            self.found.update(f"{name}{told}".encode())
            return result if isinstance(result, PLAIN) else Recorded(result, self.found)

        return call


def test_the_form_is_the_hash_of_what_is_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever changes a value, a text or an argument has another form, so an older kernel or package is told."""
    found = hashlib.sha256()
    monkeypatch.setattr(time, "time_ns", lambda: 1_795_246_498_881_590_461)
    monkeypatch.setitem(sys.modules, native_kernel.MODULE, Recorded(native_kernel.kernel().module, found))
    native_kernel._load_kernel.cache_clear()
    try:
        for run in RUNS:
            for seed in range(SEEDS):
                run(seed)
    finally:
        native_kernel._load_kernel.cache_clear()
    form = int(found.hexdigest()[:8], 16)
    assert form == native_kernel.FORM, f"FORM in native/src/lib.rs and native_kernel.py has to be {form:#010x}"
