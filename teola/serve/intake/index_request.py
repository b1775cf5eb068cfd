"""What clients send to index documents: JSON, or a form whose files are the documents."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from teola.app import App
from teola.engine import Source, check_metadata
from teola.errors import InputError
from teola.serve.intake.bodies import check_text, parsed
from teola.serve.intake.bounds import is_form
from teola.serve.intake.listed_documents import Intake, check_label
from teola.serve.intake.query_request import (
    MOST_DEADLINE_S,
    REQUEST,
    QueryRequest,
    as_list,
    checked,
    form_of,
    json_in,
)
from teola.serve.intake.uploads import Upload

DOCUMENTS: Final = "documents"
"""The field of a form that holds files, and the name of the input."""


class IndexRequest(BaseModel):
    """The body of `POST /v1/collections/{name}/documents`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    documents: Any = Field(None, description='`{"name", "text"}` or a list, as for a query.')
    metadata: dict[str, Any] = Field(
        default_factory=dict,
        description="Of every document; what a document says itself goes before it.",
    )
    overrides: dict[str, Any] = Field(
        default_factory=dict, description='How documents are split, `{"index.chunk_size": 128}`.'
    )
    deadline_s: float = Field(
        MOST_DEADLINE_S, gt=0, le=MOST_DEADLINE_S, description="Seconds until it is given up."
    )


async def to_index(
    request: Request, app: App, collection: str, upload: Upload, intake: Intake
) -> QueryRequest:
    """The query of `app` that indexes what `request` brings, its files stored by `upload`. Raises
    InputError, and what Intake raises."""
    check_text("the name of the collection", collection)
    check_label("the name of a collection", collection)
    if is_form(request.headers):
        async with form_of(request) as form:
            body, documents = await _of_form(form, upload)
    else:
        body = checked(IndexRequest, await parsed(await request.body()))
        documents = as_list(body.documents)
    if not documents:
        raise InputError("there is nothing to index; send documents")
    if body.metadata:
        documents = [_with(document, body.metadata) for document in documents]
    began = time.monotonic()
    inputs = {DOCUMENTS: documents}
    inputs = await intake.documents(app, inputs, upload, request.receive, body.deadline_s)
    left_s = max(body.deadline_s - (time.monotonic() - began), 0.001)
    return QueryRequest(
        inputs={**inputs, "collection": collection},
        overrides=body.overrides,
        passes=None,
        deadline_s=left_s,
        finish_by_s=None,
        most_tokens=None,
        most_cost=None,
        session=None,
        mode="background",
    )


async def _of_form(form: FormData, upload: Upload) -> tuple[IndexRequest, list[Any]]:
    body = await json_in(form, IndexRequest)
    documents = as_list(body.documents)
    for name, value in form.multi_items():
        if name == REQUEST:
            continue
        if name != DOCUMENTS or not isinstance(value, UploadFile):
            raise InputError(
                f"a form to index has files called {DOCUMENTS!r} and the field {REQUEST!r}, not "
                f"{name[:80]!r}"
            )
        documents = [*documents, await upload.keep(value)]
    return body, documents


def _with(document: Any, metadata: Mapping[str, Any]) -> Any:
    """A document with metadata besides its own; what is no document is for Intake to refuse."""
    if isinstance(document, Source):
        check_metadata(metadata)
        return replace(document, metadata={**metadata, **document.metadata})
    if not isinstance(document, dict):
        return document
    own = document.get("metadata")
    if own is None:  # as one who says nothing of it
        own = {}
    if not isinstance(own, dict):
        return document
    return {**document, "metadata": {**metadata, **own}}
