"""``python -m soaklib``: the soak."""

from __future__ import annotations

import sys

from soaklib.cli import main

sys.exit(main())
