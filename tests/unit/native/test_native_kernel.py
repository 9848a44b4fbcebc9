"""Which decoder there is: what the variable says, and a kernel that is damaged or only half there."""

from __future__ import annotations

import base64
import hashlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.fake_kernel import FakeKernel, installed

from airflow_provider_mysql_cdc.cdc.decode import native_kernel, native_rows
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import ENV_VARIABLE, FORM, MODULE, kernel

# An extension cannot be made here; what stands beside it is compared in the same way.
NAME, BYTES = f"{MODULE}.abi3.so", b"machine code"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKernel]:
    with installed(monkeypatch, native_rows, "NativeRowDecoder") as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a package of the kernel's name as pip does; return its folder."""
    package, about = tmp_path / MODULE, tmp_path / "airflow_provider_mysql_cdc_native-9.9.dist-info"
    package.mkdir()
    about.mkdir()
    (package / "__init__.py").write_text(f"FORM, __version__ = {FORM}, '9.9'\n")
    (package / NAME).write_bytes(BYTES)
    digest = base64.urlsafe_b64encode(hashlib.sha256(BYTES).digest()).decode().rstrip("=")
    (about / "METADATA").write_text("Name: airflow-provider-mysql-cdc-native\nVersion: 9.9\n")
    (about / "RECORD").write_text(f"{MODULE}/__init__.py,,\n{MODULE}/{NAME},sha256={digest},{len(BYTES)}\n")
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == MODULE}
    monkeypatch.delenv(ENV_VARIABLE, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    native_kernel._load_kernel.cache_clear()
    yield package
    sys.modules.pop(MODULE, None)
    sys.modules.update(kept)
    native_kernel._load_kernel.cache_clear()


@pytest.mark.parametrize("value", ["off", "OFF", " off ", "0", "false", "no"])
def test_words_that_forbid_the_kernel(value: str, fake: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_VARIABLE, value)
    assert kernel() == (None, f"Python ({ENV_VARIABLE}={value.strip()})")


@pytest.mark.parametrize("value", ["on", "1", "True", "", " "])
def test_words_that_allow_the_kernel(value: str, fake: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_VARIABLE, value)
    assert kernel().module is fake


def test_an_unknown_word_leaves_the_kernel_out_and_is_logged(fake: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_VARIABLE, "python")
    assert kernel() == (None, f"Python ({ENV_VARIABLE}=python, which is neither on nor off)")


def test_a_kernel_that_is_as_it_was_installed(folder: Path) -> None:
    assert kernel().text == "native kernel 9.9"


@pytest.mark.parametrize("left", [b"", BYTES[:5], b"machine c0de"])
def test_a_kernel_with_other_bytes_is_not_loaded(folder: Path, left: bytes) -> None:
    (folder / NAME).write_bytes(left)
    found = kernel()
    assert found.module is None and "the native kernel is damaged" in found.text and NAME in found.text
    assert MODULE not in sys.modules


def test_a_copy_of_which_nothing_is_written_down_is_loaded(folder: Path) -> None:
    for path in folder.parent.glob("*.dist-info/RECORD"):
        path.unlink()
    assert kernel().module is not None


@pytest.mark.parametrize("text", ["", "import nothing_such", "1 +", "raise OSError('no'"])
def test_a_package_that_is_half_there_is_not_used(folder: Path, text: str) -> None:
    (folder / "__init__.py").write_text(text)
    assert kernel().module is None and "the native kernel cannot be loaded" in kernel().text


def test_a_folder_that_was_left_behind_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in folder.iterdir():
        path.unlink()
    # A folder without __init__.py is a package only where no other of the name comes later on the path.
    monkeypatch.setattr(sys, "path", [str(folder.parent), *(p for p in sys.path if "site-packages" not in p)])
    found = kernel()
    assert found.module is None and "the native kernel cannot be loaded" in found.text
