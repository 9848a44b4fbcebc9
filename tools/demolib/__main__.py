"""``python -m demolib``: the demo."""

from __future__ import annotations

import sys

from demolib.main import main

sys.exit(main())
