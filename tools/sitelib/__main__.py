"""Build the documentation as a site; standard library only, its packages are installed here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from stacklib.bootstrap import Bootstrap
from stacklib.errors import StackError
from stacklib.settings import REPOSITORY

ENVIRONMENT, LOCK = ".venv-docs", "requirements-docs.lock"
SITE = REPOSITORY / "dist" / "site"
_LOADED = re.compile(r"""(?:<link[^>]*rel="?stylesheet"?[^>]*href=|\bsrc=)"?(https?://[^\s">]+)""")


def main() -> int:
    """Install what the site is built with, build it, and return the exit code."""
    try:
        Bootstrap(REPOSITORY, ENVIRONMENT, LOCK, with_project=False).run()
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    mkdocs = [str(REPOSITORY / ENVIRONMENT / "bin" / "python"), "-m", "mkdocs"]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # the theme's advertisement of its successor
    built = subprocess.run([*mkdocs, "build", "--strict", "--clean"], cwd=REPOSITORY, env=env, check=False).returncode
    if built != 0:
        return built
    if loads := loaded_from_elsewhere(SITE):
        print(f"error: pages load what a reader without a network cannot have: {', '.join(loads)}", file=sys.stderr)
        return 1
    print(f"[docs] {SITE / 'index.html'}; with the search: python3 -m http.server --bind 127.0.0.1 --directory {SITE}")
    return 0


def loaded_from_elsewhere(site: Path) -> list[str]:
    """Return the addresses of scripts, styles and pictures that pages load from other hosts.

    Args:
        site: Folder of the built site.
    """
    pages = (page.read_text(encoding="utf-8") for page in sorted(site.rglob("*.html")))
    return sorted({address for page in pages for address in _LOADED.findall(page)})


if __name__ == "__main__":
    sys.exit(main())
