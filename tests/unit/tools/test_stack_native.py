"""Installing the native kernel into a checkout: which cargo, what is said without it, and that no failure ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stacklib import commands, native
from stacklib.errors import StackError


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


def built(root: Path) -> Path:
    return next((root / "cache").glob("native-*/*.whl"))


class Uv:
    """Install at once what uv would be asked to, and answer for the Python of ``.venv``.

    Args:
        monkeypatch: Puts it in the place of what runs commands.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[tuple[str, str]] = []
        self.decodes, self.installed, self.fails = "Python", "", False
        monkeypatch.setattr(commands, "run", self.run)

    def run(self, command: list[str], *_: Any, env: dict[str, str] | None = None) -> str:
        if env is None:
            return f"{self.decodes}\n"
        self.ran.append((command[-1], env["PATH"].split(":")[0]))
        if "build" in command:
            if self.fails:
                raise StackError("building the native kernel", "no network\nmore", "see above")
            Path(command[command.index("--out-dir") + 1], "kernel.whl").touch()
            return ""
        self.decodes = self.installed
        return ""


@pytest.fixture
def uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Uv:
    monkeypatch.setenv("MYSQL_CDC_CACHE", str(tmp_path / "cache"))
    return Uv(monkeypatch)


@pytest.mark.parametrize(
    ("decodes", "told"),
    [
        ("Python", "so there is no native kernel; Python decodes everything"),
        ("", "so the native kernel that is installed stays"),
        ("Python (too old)", "so rows are decoded by Python (too old)"),
    ],
)
def test_without_cargo_one_line_says_so(
    decodes: str, told: str, tmp_path: Path, uv: Uv, capsys: pytest.CaptureFixture[str]
) -> None:
    uv.decodes = decodes
    assert native.install(checkout(tmp_path), {"HOME": "/nowhere", "PATH": "/nowhere"}, "") is not bool(decodes)
    said = "".join(capsys.readouterr())
    assert said.count("\n") == 1 and told in said


def test_what_is_installed_is_built_again_when_its_source_changes(tmp_path: Path, uv: Uv) -> None:
    root = checkout(tmp_path / "here")
    environment = {"HOME": "/nowhere", "PATH": cargo(tmp_path / "bin")}
    for _ in range(2):
        assert native.install(root, environment, "")
    assert [command for command, _ in uv.ran] == [str(root / "native"), str(built(tmp_path))]
    assert uv.ran[0][1] == environment["PATH"]
    (root / "native" / "src" / "lib.rs").write_text("//")
    assert native.install(root, environment, "")
    assert len(uv.ran) == 4


def test_a_wheel_whose_kernel_does_not_decode_is_reported(
    tmp_path: Path, uv: Uv, capsys: pytest.CaptureFixture[str]
) -> None:
    root, wheel = checkout(tmp_path / "here"), tmp_path / "kernel.whl"
    wheel.touch()
    uv.installed = "Python (native kernel 0.5.0 is for another version of this package)"
    assert not native.install(root, {"PATH": ""}, str(wheel))
    said = "".join(capsys.readouterr())
    assert said.count("\n") == 1 and f"installed, but rows are decoded by {uv.installed}" in said


def bootstrap(root: Path, uv: Uv, environment: dict[str, str], *, quiet: bool = True) -> int:
    """Install as scripts/bootstrap does; return the number of commands that ran."""
    native.install_if_possible(root, environment, lambda: environment, quiet=quiet)
    return len(uv.ran)


def test_a_build_that_fails_ends_nothing_and_is_not_repeated(
    tmp_path: Path, uv: Uv, capsys: pytest.CaptureFixture[str]
) -> None:
    root, environment = checkout(tmp_path / "here"), {"HOME": "/nowhere", "PATH": cargo(tmp_path / "bin")}
    uv.fails = True
    assert bootstrap(root, uv, environment) == 1
    said = "".join(capsys.readouterr())
    assert said.splitlines()[-1].endswith("so Python decodes; scripts/bootstrap --native tries again and shows why")
    assert "no network" in said
    assert bootstrap(root, uv, environment) == 1
    with pytest.raises(StackError, match="no network"):
        native.install(root, environment, "")
    uv.fails = False
    assert native.install(root, environment, "")
    (root / "native" / "src" / "lib.rs").write_text("//")
    assert bootstrap(root, uv, environment) == 6
