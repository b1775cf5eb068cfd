"""The published document, made particular: which applications there are, what each takes, and which
queries exist. A generator that only knows that `inputs` is an object seldom asks anything."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import httpx

ASK = "/v1/apps/{app}/queries"
INDEX = "/v1/collections/{name}/documents"


def particular(client: httpx.Client) -> dict[str, Any]:
    """/openapi.json of a server, with what it serves in place of what could be served."""
    document = client.get("/openapi.json").json()
    apps = [app["name"] for app in client.get("/v1/apps").json()["apps"]]
    paths, schemas = document["paths"], document["components"]["schemas"]
    general = paths[ASK]["post"]
    for name in apps:
        paths[ASK.replace("{app}", name)] = {"post": _asking(client, name, general)}
    ids = [query["query_id"] for query in client.get("/v1/queries").json()["queries"]]
    for path, operations in paths.items():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path" and "/queries/" in path:
                    _known(parameter, ids)
                elif parameter["in"] == "path" and parameter["name"] in ("app", "model"):
                    _known(parameter, apps)
                elif parameter["in"] == "path" and "/collections/" in path:
                    _known(parameter, ["papers", "boats"])
    described = client.get("/v1/apps/naive-rag").json()["inputs"]["properties"]["documents"]
    _body(paths[INDEX]["post"])["properties"]["documents"] = described
    _chat(paths["/v1/chat/completions"]["post"], schemas, apps)
    for path, name in (("/v1/embeddings", "embedding"), ("/v1/rerank", "rerank")):
        _body(paths[path]["post"])["properties"]["model"] = {"enum": [name]}
    return document


def _known(parameter: dict[str, Any], values: Iterable[str]) -> None:
    known = {"type": "string", "enum": list(values)}
    parameter["schema"] = {"anyOf": [known, {"type": "string", "minLength": 1}]}


def _asking(client: httpx.Client, name: str, general: dict[str, Any]) -> dict[str, Any]:
    """Asking one application: its inputs and parameters, by its own description."""
    found, described = deepcopy(general), client.get(f"/v1/apps/{name}").json()
    del found["parameters"]
    found["operationId"] = f"ask_{name}"
    inputs = described["inputs"]
    body = _body(found)
    body["properties"] |= {"inputs": inputs, "overrides": _few(described["parameters"])}
    body["required"] = ["inputs"]
    texts = [key for key, of in inputs["properties"].items() if of == inputs_text(of)]
    form = found["requestBody"]["content"]["multipart/form-data"]["schema"]
    form["properties"] |= {key: {"type": "string"} for key in texts}
    if "documents" not in inputs["properties"]:
        del form["properties"]["documents"]
    form["required"] = texts
    return found


def inputs_text(of: dict[str, Any]) -> dict[str, Any] | None:
    """`of` if it is the schema of a text."""
    return of if of.get("type") == "string" else None


def _few(parameters: dict[str, Any]) -> dict[str, Any]:
    """A query seldom sets more than two parameters; and some make it long."""
    slow = ("max_tokens", "chunk_size", "overlap", "top_k")
    properties = {key: of for key, of in parameters["properties"].items() if not key.endswith(slow)}
    return {**parameters, "properties": properties, "maxProperties": 2}


def _chat(operation: dict[str, Any], schemas: dict[str, Any], apps: list[str]) -> None:
    body = _body(operation)
    body["properties"]["model"] = {"enum": apps}
    body["properties"]["overrides"] = {"type": "object", "maxProperties": 0}
    assert "Message" in schemas


def _body(operation: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = operation["requestBody"]["content"]["application/json"]["schema"]
    return found
