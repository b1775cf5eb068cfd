"""The process that replays what came, so that the one that serves need not.

    parent ── a line of JSON: a case, the kind of policy, an option, its grid ──▶ stdin
    parent ◀── a line of JSON: {"value": 0.2}, or {"error": "..."} ───────────── stdout

It ends at once when its stdin does, whatever it is doing: with the process that serves, also when
that is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from queue import SimpleQueue
from typing import Any

from teola.errors import reason_of
from teola.runtime.tuning.case_json import read_case
from teola.runtime.tuning.replay_case import tuned

NICE = 10
"""It is never urgent."""


def answered(line: str) -> dict[str, Any]:
    """The best value, or why there is none."""
    try:
        told = json.loads(line)
        case = read_case(told["case"])
        return {"value": tuned(case, told["kind"], told["option"], told["grid"])}
    except Exception as error:  # noqa: BLE001 - the process's edge: told to the other side
        return {"error": reason_of(error)}


def main() -> None:
    """Answer until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.nice(NICE)
    lines = SimpleQueue[str]()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, name="parent", daemon=True).start()
    while True:
        print(json.dumps(answered(lines.get())), flush=True)


if __name__ == "__main__":
    main()
