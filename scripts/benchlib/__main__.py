"""``python -m benchlib``: the bench."""

from __future__ import annotations

import sys

from benchlib.cli import main

sys.exit(main())
