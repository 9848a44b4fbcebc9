"""A native kernel made up for tests of the seam to it: it answers what it is told to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.decode import native_kernel


class FakeKernel:
    """A kernel that adds a record with each row it says it has decoded."""

    FORM, __version__ = native_kernel.FORM, "9.9"

    def __init__(self) -> None:
        self.answer, self.known, self.many = 1, True, 0
        self.plans: list[Any] = []
        self.asked: list[tuple[Any, ...]] = []

    def Tally(self) -> Any:
        return SimpleNamespace(rows=0, declined=[0] * 5)

    def plan(self, *given: Any) -> Any:
        self.plans.append(given)
        decode = self._decode
        return SimpleNamespace(write=decode, update=decode, delete=decode) if self.known else None

    def flat_plan(self, *given: Any) -> Any:
        return self.plan(*given)

    def TransactionDecoder(self, tally: Any, by_event: bool) -> Any:
        return SimpleNamespace()

    def text_plan(self, *given: Any) -> Any:
        self.plans.append(given)
        return SimpleNamespace(row=self._decode, rows=self._many) if self.known else None

    def _many(self, data: bytes, at: int, *asked: Any) -> tuple[int, int]:
        self.asked.append((data, at, *asked[:-1]))
        return self.many, at

    def _decode(self, *asked: Any) -> int:
        self.asked.append(asked[:-1])
        asked[-1].extend([("natively",)] * max(self.answer, 0))
        return self.answer


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> Iterator[FakeKernel]:
    """Put a made-up kernel in the place of the real one.

    Where the real kernel is installed, the suite compares it with Python (native_identity); inside, the class of the
    seam is itself.

    Args:
        monkeypatch: Takes it back.
        module: The module of the class.
        name: The class.
    """
    made = FakeKernel()
    plain = next(c for c in getattr(module, name).__mro__ if c.__module__ == module.__name__)
    monkeypatch.setattr(module, name, plain)
    monkeypatch.delenv(native_kernel.ENV_VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, native_kernel.MODULE, made)  # type: ignore[arg-type]
    native_kernel._load_kernel.cache_clear()
    yield made
    native_kernel._load_kernel.cache_clear()
