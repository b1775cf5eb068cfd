"""The other end of the process that replays: one for a runtime, started when it is first needed."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from typing import Final

from teola.errors import EngineError
from teola.runtime.observe.noting import note
from teola.runtime.tuning.case_json import written_case
from teola.runtime.tuning.replay_case import ReplayCase

log = logging.getLogger(__name__)
LONGEST_LINE: Final = 2**20
GRACE_S: Final = 2.0


class TunerProcess:
    """pid: of the process (None: there is none)."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def tuned(self, case: ReplayCase, kind: str, option: str, grid: Sequence[float]) -> float:
        """The best value of an option. Raises EngineError where there is none."""
        question = {"kind": kind, "option": option, "grid": [*grid]}
        line = await asyncio.to_thread(lambda: json.dumps({"case": written_case(case), **question}))
        async with self._turn:
            process = await self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(line.encode() + b"\n")
                await process.stdin.drain()
                answer = await process.stdout.readline()
            except ConnectionError:
                answer = b""
        if not answer:
            self._process = None
            raise EngineError("the process that tunes has died")
        reply = json.loads(answer)
        if "error" in reply:
            raise EngineError(f"nothing could be tuned: {reply['error']}")
        return float(reply["value"])

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "teola.runtime.tuning",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LONGEST_LINE,
            )
            note(log, logging.INFO, "tuner_started", "the process that tunes policies runs")
        return self._process

    async def close(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), GRACE_S)
        except TimeoutError:
            process.kill()
            await process.wait()
