"""What a program that an engine starts gets of this process's environment: no secrets.

The environment holds keys of services, passwords and tokens. PostgreSQL and the parser need none of
them, and one reads files that strangers wrote.
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
    """What is known to be harmless, and `more`, which goes before it."""
    return {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)} | more
