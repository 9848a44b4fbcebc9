"""scripts/bootstrap: pip's settings reach uv, nothing is done twice, a missing piece is one clear line."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from stacklib import bootstrap, settings


class TestUvEnvironment:
    def test_pip_settings_are_translated(self) -> None:
        config = (
            "global.index-url='https://user:secret@index.example/simple'\n"
            "global.cert='/etc/ssl/ca.pem'\n"
            ":env:.find-links='/opt/a /opt/b'\n"
            ":env:.disable-pip-version-check='1'\n"
        )
        assert bootstrap.uv_environment(config, {"PATH": "/bin"}) == {
            "UV_DEFAULT_INDEX": "https://user:secret@index.example/simple",
            "SSL_CERT_FILE": "/etc/ssl/ca.pem",
            "UV_FIND_LINKS": "/opt/a,/opt/b",
            "PATH": "/bin",
        }


class Recorded(bootstrap.Bootstrap):
    """A bootstrap whose slow steps only leave a note."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.steps: list[str] = []

    def _create(self) -> None:
        self.steps.append("create")
        (self._venv / "bin").mkdir(parents=True, exist_ok=True)
        Path(self._python).write_text("#!/bin/sh\n")
        Path(self._python).chmod(0o755)

    def _install_uv(self) -> dict[str, str]:
        return {}

    def _install(self, environment: Mapping[str, str]) -> None:
        self.steps.append("install")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MYSQL_CDC_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "requirements.lock").write_text("one==1\n")
    (root / "pyproject.toml").write_text("[project]\n")
    return root


class TestRepeat:
    def test_the_second_run_does_nothing(self, checkout: Path) -> None:
        assert Recorded(checkout).run() is True
        again = Recorded(checkout)
        assert again.run() is False
        assert again.steps == []

    @pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
    def test_a_changed_lock_or_project_installs_again(self, checkout: Path, name: str) -> None:
        Recorded(checkout).run()
        (checkout / name).write_text("changed\n")
        again = Recorded(checkout)
        assert again.run() is True
        assert again.steps == ["create", "install"]

    def test_an_interrupted_install_is_not_taken_as_done(self, checkout: Path) -> None:
        class Interrupted(Recorded):
            def _install(self, environment: Mapping[str, str]) -> None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Interrupted(checkout).run()
        assert Recorded(checkout).run() is True

    def test_an_environment_that_does_not_run_is_made_again(self, checkout: Path) -> None:
        Recorded(checkout).run()
        (checkout / ".venv" / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
        assert Recorded(checkout).run() is True


@pytest.mark.parametrize("script", ["stack", "bootstrap"])
def test_a_machine_without_python_gets_a_message(script: str, tmp_path: Path) -> None:
    """The shell part must explain a missing Python itself."""
    for tool in ("bash", "dirname"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "lib").symlink_to(settings.REPOSITORY / "scripts" / "lib")
    copy = tmp_path / "scripts" / script
    copy.write_bytes((settings.REPOSITORY / "scripts" / script).read_bytes())
    done = subprocess.run(
        ["/bin/bash", str(copy), "status"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "Python 3.11 or newer" in done.stderr
