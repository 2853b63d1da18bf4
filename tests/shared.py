"""Where the files lie that are too large for the repository."""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path(os.environ.get("SPEC_CLI_SHARED", Path(__file__).parents[2] / "shared"))
