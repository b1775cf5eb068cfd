"""What clients send to ask a query: JSON or a form with files, and where its files go meanwhile."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from teola.app import DEADLINE_S, App
from teola.engine import Source
from teola.errors import InputError
from teola.serve.problems import TooLarge
from teola.workflow.component import Kind

M = TypeVar("M", bound=BaseModel)

MOST_DEADLINE_S: Final = 3600.0
FILE_BYTES: Final = 50 * 2**20
NAME_CHARACTERS: Final = 120
REQUEST: Final = "request"
"""The field of a form that holds what would else be the JSON body."""


class QueryRequest(BaseModel):
    """The body of `POST /v1/apps/{app}/queries`."""

    model_config = ConfigDict(extra="forbid")

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
    mode: Literal["sync", "stream", "background"] = Field(
        "sync",
        description="`sync` answers with the result, `stream` with events, `background` at once.",
    )


class Upload:
    """Files of one query in a folder of their own, which `remove` deletes."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    async def keep(self, file: UploadFile) -> Source:
        """Store a file under a name of ours. Raises TooLarge."""
        if file.size is not None and file.size > FILE_BYTES:
            raise TooLarge(f"a document may have {FILE_BYTES // 2**20} MiB; split this one")
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="teola-upload-"))
        name = shown(file.filename or "document")
        suffix = Path(name).suffix.lower()
        known = re.fullmatch(r"\.[a-z0-9]{1,10}", suffix)  # it says what is in the file
        path = self.folder / f"{uuid4().hex}{suffix if known else ''}"
        with path.open("wb") as out:
            await run_in_threadpool(shutil.copyfileobj, file.file, out)
        return Source(name, path=path)

    def remove(self) -> None:
        """Delete what was kept."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def shown(name: str) -> str:
    """A client's file name as a label: no folders, nothing invisible, not too long."""
    last = name.replace("\\", "/").rpartition("/")[2]
    clean = "".join(c for c in last if c.isprintable()).strip(" .")
    return clean[-NAME_CHARACTERS:] or "document"


async def asked(request: Request, app: App, upload: Upload) -> QueryRequest:
    """The query that `request` asks, its files stored by `upload`. Raises InputError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        try:
            form = await request.form(max_files=100, max_fields=100)
        except HTTPException as error:
            raise InputError(f"the form cannot be read: {error.detail}") from None
        try:
            return await _of_form(form, app, upload)
        finally:
            await form.close()
    body = await request.body()
    found = checked(QueryRequest, as_json(body))
    found.inputs = inline_documents(app, found.inputs)
    return found


async def _of_form(form: FormData, app: App, upload: Upload) -> QueryRequest:
    """`request` is the JSON; every other field is an input, a file a document."""
    told = form.get(REQUEST, "{}")
    if not isinstance(told, str):
        raise InputError(f"the form field {REQUEST!r} must be a text, not a file")
    found = checked(QueryRequest, as_json(told))
    inputs = inline_documents(app, found.inputs)
    for name, value in form.multi_items():
        if name == REQUEST:
            continue
        kind = app.inputs.get(name)
        if isinstance(value, UploadFile):
            if kind is not Kind.DOCUMENTS:
                raise InputError(f"the form field {name!r} is a file, but takes no documents")
            listed = inputs.setdefault(name, [])
            inputs[name] = [*(listed if isinstance(listed, list) else [listed])]
            inputs[name].append(await upload.keep(value))
        elif kind is Kind.DOCUMENTS:
            raise InputError(f"the form field {name!r} must be a file")
        elif kind is Kind.TEXTS:
            inputs.setdefault(name, []).append(value)
        else:
            inputs[name] = value
    found.inputs = inputs
    return found


def inline_documents(app: App, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """`inputs`, checked that every document comes along: a client may not name our files."""
    for name, kind in app.inputs.items():
        given = inputs.get(name)
        if kind is not Kind.DOCUMENTS or given is None:
            continue
        listed = given if isinstance(given, list) else [given]
        for document in listed:
            if not isinstance(document, dict) or not all(
                isinstance(document.get(key), str) for key in ("name", "text")
            ):
                raise InputError(
                    f'input {name!r}: a document is {{"name": "...", "text": "..."}} here; send '
                    "files as multipart/form-data"
                )
    return dict(inputs)


def as_json(text: str | bytes) -> Any:
    """Parsed. Raises InputError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not JSON: {error}") from None


def checked(model: type[M], value: Any) -> M:
    """`value` as `model`. Raises InputError that names the first thing wrong."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{where + ': ' if where else ''}{first['msg']}") from None
