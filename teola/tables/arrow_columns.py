"""Arrow columns of Python values, made from their bytes.

`pyarrow.array` does the same for any list, and imports pandas when it is called first, to see
whether the list is one of its columns: a third of a second and 50 MB of a process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


def text_column(values: Sequence[str | None]) -> pa.Array:
    """Texts, of any length together. Raises UnicodeEncodeError for half a surrogate pair."""
    import pyarrow as pa

    encoded = [b"" if value is None else value.encode() for value in values]
    ends = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=ends[1:])
    buffers = [_valid(values), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers)


def int_column(values: Sequence[int | None]) -> pa.Array:
    """Whole numbers of 64 bits. Raises OverflowError."""
    import pyarrow as pa

    valid = _valid(values)
    numbers = np.array(values if valid is None else [value or 0 for value in values], np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [valid, pa.py_buffer(numbers)])


def _valid(values: Sequence[object]) -> pa.Buffer | None:
    """A bit for each value, 0 for None; None where there is no None."""
    import pyarrow as pa

    if None not in values:
        return None
    bits = np.array([value is not None for value in values])
    return pa.py_buffer(np.packbits(bits, bitorder="little"))
