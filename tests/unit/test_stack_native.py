"""Installing the native kernel into a checkout: which cargo, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stacklib import commands, native


def cargo(folder: Path) -> str:
    folder.mkdir(parents=True)
    (folder / "cargo").write_text("#!/bin/sh\n")
    (folder / "cargo").chmod(0o755)
    return str(folder)


def checkout(root: Path) -> Path:
    (root / "native" / "src").mkdir(parents=True)
    (root / "native" / "Cargo.toml").write_text("[package]")
    (root / ".venv").mkdir()
    return root


def test_the_cargo_on_path_comes_before_that_of_rustup(tmp_path: Path) -> None:
    own, other = cargo(tmp_path / ".cargo" / "bin"), cargo(tmp_path / "bin")
    home = {"HOME": str(tmp_path)}
    assert native.cargo_folder({**home, "PATH": other}) == other
    assert native.cargo_folder({**home, "PATH": "/nowhere"}) == own
    assert native.cargo_folder({"HOME": "/nowhere", "PATH": "/nowhere"}) is None


def test_without_cargo_one_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = checkout(tmp_path)
    assert native.install(root, {"HOME": "/nowhere", "PATH": "/nowhere"}, "") is False
    said = "".join(capsys.readouterr())
    assert said.count("\n") == 1 and "no native kernel; Python decodes everything" in said


def test_what_is_installed_is_built_again_when_its_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, ran = checkout(tmp_path / "here"), list[Any]()
    folder = root / ".venv" / "lib" / "python3.11" / "site-packages" / "mysql_cdc_native"

    def run(command: list[str], *_: Any, env: dict[str, str]) -> None:
        ran.append((command[-1], env["PATH"].split(":")[0]))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "mysql_cdc_native.abi3.so").touch()

    monkeypatch.setattr(commands, "run", run)
    environment = {"HOME": "/nowhere", "PATH": cargo(tmp_path / "bin")}
    for _ in range(2):
        assert native.install(root, environment, "")
    assert ran == [(str(root / "native"), environment["PATH"])]
    (root / "native" / "src" / "lib.rs").write_text("//")
    native.install(root, environment, "")
    (folder / "mysql_cdc_native.abi3.so").unlink()
    native.install(root, environment, "")
    assert len(ran) == 3
