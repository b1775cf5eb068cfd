"""Writes the table of docs/servers.md: `python -m tests.servers`."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from experiments.common.scripted.kinds import KINDS
from tests.servers.behaviours import column
from tests.servers.page import written

PAGE = Path(__file__).parents[2] / "docs" / "servers.md"


async def main() -> None:
    logging.disable()
    columns = {kind: await column(kind) for kind in KINDS}
    PAGE.write_text(written(PAGE.read_text(), columns))


if __name__ == "__main__":
    asyncio.run(main())
