"""What a child process that reads strangers' files is allowed: limits that it sets itself before it
looks at anything, and no secrets of its parent's environment.

It imports nothing of ours, and runs also where it is loaded by its path alone.
"""

from __future__ import annotations

import os
import re
from typing import Final

_PASSED: Final = re.compile(
    "PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_ALL|LC_CTYPE|TZ|TMPDIR|TEMP|TMP|SYSTEMROOT|"
    "LD_LIBRARY_PATH|DYLD_LIBRARY_PATH|XDG_CACHE_HOME|"
    "PYTHON(?:PATH|HOME|UTF8|DONTWRITEBYTECODE|PYCACHEPREFIX)|LLAMA_INDEX_CACHE_DIR|NLTK_DATA|"
    "TIKTOKEN_CACHE_DIR"
)
"""Where programs, libraries and temporary files are, and which language and time zone is meant."""


def environment(**more: str) -> dict[str, str]:
    """The environment of such a process: what is known to be harmless, and `more`, which goes
    before it. The rest may hold keys of services, passwords and tokens."""
    return {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)} | more


def confine(
    *,
    address_bytes: int | None = None,
    data_bytes: int | None = None,
    file_bytes: int | None = None,
    cpu_s: int | None = None,
) -> None:
    """Limit this process for good: its address space, its own memory, each file that it writes, and
    its time on a processor (SIGXCPU, and SIGKILL 2 s later). It leaves no core behind. A lower
    limit that holds already stays. Windows has no such limits."""
    try:
        import resource
    except ImportError:
        return
    for what, most, grace in (
        (resource.RLIMIT_AS, address_bytes, 0),
        (resource.RLIMIT_DATA, data_bytes, 0),
        (resource.RLIMIT_FSIZE, file_bytes, 0),
        (resource.RLIMIT_CPU, cpu_s, 2),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        if most is None:
            continue
        soft, hard = (
            new if old == resource.RLIM_INFINITY else min(new, old)
            for new, old in zip((most, most + grace), resource.getrlimit(what), strict=True)
        )
        resource.setrlimit(what, (soft, hard))
