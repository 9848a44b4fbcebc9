"""Cases of one test in one item: an item costs some milliseconds before it does anything, most cases less than one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def case(*values: object) -> Iterator[None]:
    """Add the values of a case to an error in it."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(str, values))}")
        raise


def for_each(
    names: str | Sequence[str], cases: Iterable[Any], ids: Callable[[Any], Any] | Sequence[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a test try all cases itself, and fail with the errors of all that failed; called as ``parametrize`` is.

    A case has a ``monkeypatch`` and a ``tmp_path`` of its own; cases share other fixtures.
    """
    names = names.replace(" ", "").split(",") if isinstance(names, str) else names
    given = [_values(case, len(names)) for case in cases]
    assert given, f"no cases of {names}"

    def label(number: int, values: Sequence[Any]) -> str:
        if ids is None:
            return ", ".join(f"{name}={value!r}" for name, value in zip(names, values, strict=True))
        return ", ".join(str(ids(value)) for value in values) if callable(ids) else ids[number]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def tries_each(*args: Any, **fixtures: Any) -> None:
            failed = list[Exception]()
            for number, values in enumerate(given):
                with pytest.MonkeyPatch.context() as patch:
                    own = fixtures | dict(zip(names, values, strict=True))
                    if "monkeypatch" in own:
                        own["monkeypatch"] = patch
                    if "tmp_path" in own:
                        own["tmp_path"] = own["tmp_path"] / str(number)
                        own["tmp_path"].mkdir()
                    try:
                        with case(number, label(number, values)):
                            test(*args, **own)
                    except Exception as error:
                        failed.append(error)
            if len(failed) == 1:
                raise failed[0]
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(given)} cases failed", failed)

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in names]
        assert len(left) + len(names) == len(signature.parameters), f"{test.__name__} does not take all of {names}"
        tries_each.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return tries_each

    return decorate


def _values(case: Any, count: int) -> Sequence[Any]:
    if hasattr(case, "marks"):  # pytest.param
        assert not case.marks
        case = case.values if count > 1 else case.values[0]
    return (case,) if count == 1 else tuple(case)
