"""What clients send to ask over tables."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from teola.errors import InputError
from teola.serve.intake.query_request import QueryRequest
from teola.serve.table_queries.registered_tables import TableLimits

DEADLINE_S: Final = 3600.0
MOST_DEADLINE_S: Final = 7 * 86_400.0
Mode = Literal["sync", "stream", "background"]


class SqlRequest(BaseModel):
    """The body of `POST /v1/sql`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: str = Field(min_length=1, description="SQL, with LLM(...) in it or not.")
    on_error: Literal["null", "fail"] = Field(
        "null", description="What a row's error is: no value, or the end of the query."
    )
    max_errors: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="Rows with errors that it may have: a number, or a share below 1; else 1 %, at "
        "least 10.",
    )
    most_calls: int | None = Field(None, ge=0, description="Prompts that are sent.")
    most_cost: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="What they may take in money, by the prices of the configuration.",
    )
    deadline_s: float = Field(
        DEADLINE_S, gt=0, le=MOST_DEADLINE_S, description="Seconds until it is given up."
    )
    background: bool = Field(
        False, description="Answer at once; the query is followed by its id and outlives servers."
    )
    stream: bool = Field(
        False, description="Answer with events, as the header `Accept: text/event-stream` does."
    )

    def ask(self, mode: Mode, limits: TableLimits) -> QueryRequest:
        """The query of the server's own application that this asks for. Raises InputError."""
        if self.most_calls is not None and self.most_calls > limits.questions:
            raise InputError(
                f"most_calls is {self.most_calls:,}, more than the {limits.questions:,} that are "
                "taken: give less"
            )
        options: dict[str, Any] = {"on_error": self.on_error}
        for name in ("max_errors", "most_calls"):
            if (value := getattr(self, name)) is not None:
                options[name] = value
        return QueryRequest.model_construct(  # whose deadline may not be as long
            inputs={"query": self.query, "options": options},
            overrides={},
            passes=None,
            deadline_s=self.deadline_s,
            finish_by_s=None,
            session=None,
            most_tokens=None,
            most_cost=self.most_cost,
            mode=mode,
        )
