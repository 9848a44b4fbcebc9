"""``python -m mutatelib``: the mutation run."""

from __future__ import annotations

import sys

from mutatelib.cli import main

sys.exit(main())
