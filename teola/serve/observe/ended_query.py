"""EndedQuery: a query that has ended, as what tells OpenTelemetry of it is given it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from teola.query.result import Result
from teola.serve.board import Entry


class EndedQuery(NamedTuple):
    """What spans are made of. offset_ns: from the loop's clock to the wall's. parent: headers."""

    entry: Entry
    result: Result
    offset_ns: int
    parent: Mapping[str, str] | None
