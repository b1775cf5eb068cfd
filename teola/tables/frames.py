"""`df.teola.llm(...)`: calls over a pandas or Polars frame, as a column.

import teola.tables.frames
df["tone"] = df.teola.llm("Tone?", "text", choices=["good", "bad"], at=URL)
"""

from __future__ import annotations

from typing import Any

from teola.errors import InputError
from teola.tables.expressions import llm
from teola.tables.llm_call import OPTIONS
from teola.tables.relation import Relation


class FrameCalls:
    """Calls over a frame."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def llm(self, instruction: str, *columns: str, **options: Any) -> Any:
        """A column of answers, one for each row, in the frame's order.

        columns: names; without any, all of the frame's. options: of a call (choices, pattern,
        schema, type, model, max_tokens, temperature, fixed_order, shared), and of a run, where the
        model is `at` (a URL, several, or a folder), such as `at=URL, answers=False`. Raises
        InputError.
        """
        call = {name: options.pop(name) for name in OPTIONS if name in options}
        if "at" in options:
            options["llm"] = options.pop("at")
        relation = self._relation()
        names = columns or tuple(column.name for column in relation.columns)
        fields = [relation[name] for name in names]
        done = relation.select(llm=llm(instruction, *fields, **call)).run(**options)
        if done.row_count != len(self._frame):
            raise InputError(
                f"{done.row_count:,} of {len(self._frame):,} rows were answered: {done.reason}"
            )
        return self._column(done)

    def _relation(self) -> Relation:
        from teola.tables import table

        return table(self._frame)

    def _column(self, done: Any) -> Any:
        raise NotImplementedError


class PandasCalls(FrameCalls):
    """Calls over a pandas frame."""

    def _relation(self) -> Relation:
        from teola.tables import table

        return table(self._frame.reset_index(drop=True))

    def _column(self, done: Any) -> Any:
        answers = done.pandas()["llm"]
        answers.index = self._frame.index
        return answers


class PolarsCalls(FrameCalls):
    """Calls over a Polars frame."""

    def _column(self, done: Any) -> Any:
        return done.polars()["llm"]


def register() -> tuple[str, ...]:
    """Register the accessor `teola` for pandas and Polars, where they are installed. Returns for
    which."""
    frames = []
    try:
        import pandas as pd
    except ModuleNotFoundError:
        pass
    else:
        pd.api.extensions.register_dataframe_accessor("teola")(PandasCalls)
        frames.append("pandas")
    try:
        import polars as pl
    except ModuleNotFoundError:
        pass
    else:
        pl.api.register_dataframe_namespace("teola")(PolarsCalls)
        frames.append("polars")
    return tuple(frames)


REGISTERED = register()
