"""What clients send to ask a query: JSON, or a form with files."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from teola.app import App
from teola.engine import NAME_CHARACTERS
from teola.errors import InputError
from teola.query.spec import DEADLINE_S, QuerySpec
from teola.runtime.objectives import checked_objective
from teola.serve.intake.bodies import check_text, parsed
from teola.serve.intake.bounds import is_form
from teola.serve.intake.listed_documents import Intake
from teola.serve.intake.uploads import Upload
from teola.workflow.kinds import Kind

M = TypeVar("M", bound=BaseModel)

MOST_DEADLINE_S: Final = 3600.0
REQUEST: Final = "request"
"""The field of a form that holds what would else be the JSON body."""


class QueryRequest(BaseModel):
    """The body of `POST /v1/apps/{app}/queries`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    inputs: dict[str, Any] = Field(
        default_factory=dict,
        description='Inputs of the application. Documents are `{"name", "text"}`, or a list.',
    )
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description='Parameters of components for this query, `{"search.top_k": 4}`.',
    )
    passes: str | None = Field(None, description="`all`, `none`, or names with commas.")
    deadline_s: float = Field(
        DEADLINE_S, gt=0, le=MOST_DEADLINE_S, description="Seconds until it is given up."
    )
    finish_by_s: float | None = Field(
        None,
        gt=0,
        le=MOST_DEADLINE_S,
        description="Seconds by which its answer is wanted, at most `deadline_s`; nothing is given "
        "up then.",
    )
    session: str | None = Field(
        None,
        min_length=1,
        max_length=NAME_CHARACTERS,
        description="A name of yours for what this query is a turn of, such as a conversation: its "
        "calls go where the earlier ones left their prefixes.",
    )
    most_tokens: int | None = Field(
        None,
        ge=1,
        description="Tokens of prompts and answers that all its calls of LLMs may take together.",
    )
    most_cost: float | None = Field(
        None, gt=0, description="The same in money, by the prices of the configuration."
    )
    mode: Literal["sync", "stream", "background"] = Field(
        "sync",
        description="`sync` answers with the result, `stream` with events, `background` at once.",
    )

    def ask(self, tenant: str) -> QuerySpec:
        """The query as `tenant`'s."""
        return QuerySpec(
            self.inputs,
            self.overrides,
            self.passes,
            self.deadline_s,
            tenant,
            session=self.session,
            finish_by_s=self.finish_by_s,
            most_tokens=self.most_tokens,
            most_cost=self.most_cost,
        )


async def asked(request: Request, app: App, upload: Upload, intake: Intake) -> QueryRequest:
    """The query that `request` asks, its files stored by `upload`. Raises InputError."""
    if is_form(request.headers):
        async with form_of(request) as form:
            query = await _of_form(form, app, upload)
    else:
        query = checked(QueryRequest, await parsed(await request.body()))
    checked_objective(query.finish_by_s, query.deadline_s)
    began = time.monotonic()
    query.inputs = await intake.documents(
        app, query.inputs, upload, request.receive, query.deadline_s
    )
    query.deadline_s = max(query.deadline_s - (time.monotonic() - began), 0.001)
    if query.finish_by_s is not None:
        query.finish_by_s = min(query.finish_by_s, query.deadline_s)
    return query


@asynccontextmanager
async def form_of(request: Request) -> AsyncIterator[FormData]:
    """The form that is a request's body, closed afterwards. Raises InputError."""
    _, options = parse_options_header(request.headers["content-type"])
    charset = options.get(b"charset", b"utf-8").decode("latin-1")
    if charset.lower() not in ("utf-8", "utf8"):
        raise InputError(f"the form's charset is {charset[:40]!r}; send UTF-8")
    try:
        form = await request.form(max_files=100, max_fields=100)
    except HTTPException as error:
        raise InputError(f"the form cannot be read: {error.detail}") from None
    try:
        yield form
    finally:
        await form.close()


async def json_in(form: FormData, model: type[M]) -> M:
    """The field `request` of a form, which holds what would else be the body. Raises InputError."""
    fields = form.getlist(REQUEST) or ["{}"]
    if len(fields) > 1:
        raise InputError(f"the form field {REQUEST!r} stands there twice")
    if not isinstance(fields[0], str):
        raise InputError(f"the form field {REQUEST!r} must be a text, not a file")
    return checked(model, await parsed(fields[0]))


async def _of_form(form: FormData, app: App, upload: Upload) -> QueryRequest:
    """`request` is the JSON; every other field is an input, a file a document."""
    query = await json_in(form, QueryRequest)
    inputs = dict(query.inputs)
    for name, value in form.multi_items():
        if name == REQUEST:
            continue
        if isinstance(value, UploadFile):
            if app.inputs.get(name) is not Kind.DOCUMENTS:
                raise InputError(f"the form field {name[:80]!r} is a file, but takes no documents")
            inputs[name] = [*as_list(inputs.get(name)), await upload.keep(value)]
        else:
            _put_text(app, inputs, name, value)
    query.inputs = inputs
    return query


def _put_text(app: App, inputs: dict[str, Any], name: str, value: str) -> None:
    """A form's field that is no file becomes an input. Raises InputError."""
    kind = app.inputs.get(name)
    check_text("the form", name + value)
    if kind is Kind.DOCUMENTS:
        raise InputError(f"the form field {name!r} must be a file")
    if kind is Kind.TEXTS:
        inputs[name] = [*as_list(inputs.get(name)), value]
    elif name in inputs:
        raise InputError(f"the input {name[:80]!r} is given twice")
    else:
        inputs[name] = value


def as_list(value: Any) -> list[Any]:
    """An input that may be one value or a list of them, as a list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def checked(model: type[M], value: Any) -> M:
    """`value` as `model`. Raises InputError that names the first thing wrong."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{where + ': ' if where else ''}{first['msg']}") from None
