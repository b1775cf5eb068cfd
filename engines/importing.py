"""One thread at a time imports the model libraries.

Engines start side by side, and several begin by importing torch and transformers. These import one
another in circles: where two threads come from different ends, Python breaks the deadlock by
showing one of them a half-imported package, which fails with "cannot import name".
"""

from threading import RLock
from typing import Final

importing: Final = RLock()
"""Hold it while you import torch, transformers, sentence-transformers or the hub's client."""
