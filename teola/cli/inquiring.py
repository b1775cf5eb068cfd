"""`teola waiting` and `teola answer`: what queries of a server ask people, and the answers."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from teola.cli import options as o
from teola.cli import reaching as reach

if TYPE_CHECKING:
    import httpx

WAITING_EXAMPLES = o.examples(
    "teola waiting",
    "teola waiting --app mail --json",
    "teola waiting --url https://teola.example:8080",
)
ANSWER_EXAMPLES = o.examples(
    "teola answer 3f2a9c1b yes",
    "teola answer 3f2a9c1b approve",
    'teola answer 3f2a9c1b approve --arguments \'{"to": "Mara"}\'',
    'teola answer 3f2a9c1b reject --reason "not on Sundays"',
    "teola answer 3f2a9c1b 42 --ask each/item/0/ask.ask",
)
SOON_S: Final = 0.5
"""By then a query that was answered waits for the rest of what it asks."""


def waiting(
    app: reach.OfApp = None,
    url: reach.Url = reach.URL,
    key: reach.KeyOption = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """List the queries of a server that wait for people, and what they ask."""
    from teola.cli.showing import console, print_json

    with reach.reaching(url, key) as client:
        queries = _waiting(client, app)
    if as_json:
        print_json({"queries": queries})
    elif queries:
        _show(queries)
    else:
        console().print("no query waits for people", style="dim")
    return 0


def answer(
    query: Annotated[
        str,
        typer.Argument(metavar="QUERY", show_default=False, help="Its id, or the beginning of it."),
    ],
    typed: Annotated[
        str | None,
        typer.Argument(
            metavar="ANSWER",
            show_default=False,
            help="A text or JSON, whichever fits the question. To a call of a tool: approve or "
            "reject. To what was cut off: repeat, take or fail. Without it you are asked.",
        ),
    ] = None,
    ask: Annotated[
        str | None,
        typer.Option(
            metavar="ID", show_default=False, help="The question, if the query asks several."
        ),
    ] = None,
    arguments: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", show_default=False, help="With approve: call it with these instead."
        ),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(metavar="TEXT", show_default=False, help="With reject: why, for the model."),
    ] = None,
    result: Annotated[
        str | None,
        typer.Option(metavar="VALUE", show_default=False, help="With take: what it gave."),
    ] = None,
    url: reach.Url = reach.URL,
    key: reach.KeyOption = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Answer what a query of a server waits for.

    The first answer to a question counts.
    """
    from teola.cli.replies import Extras, reply
    from teola.cli.showing import console, print_json

    with reach.reaching(url, key) as client:
        entry = _found(client, query)
        question = _chosen(entry, ask)
        extras = Extras(arguments, reason, result)
        if typed is None:
            value = _prompted(entry, question, extras)
        else:
            value = reply(question["kind"], question["schema"], typed, extras)
        path = f"{reach.query_path(entry['query_id'])}/answers"
        now = reach.told(client.post(path, json={"ask": question["ask"], "answer": value}))
    if as_json:
        print_json(now)
    else:
        left = len(entry["asks"]) - 1
        more = f", which asks {left} more" if left else ""
        console().print(f"answered {question['ask']} of {entry['app']} {entry['query_id']}{more}")
    return 0


def _waiting(client: httpx.Client, app: str | None = None) -> list[dict[str, Any]]:
    """The queries that ask something, the one that asked first at the top."""
    params: dict[str, str | int] = {"state": "waiting", "limit": reach.MOST}
    if app is not None:
        params["app"] = app
    listed = reach.told(client.get("/v1/queries", params=params))["queries"]
    return [entry for entry in reversed(listed) if entry.get("asks")]


def _found(client: httpx.Client, beginning: str) -> dict[str, Any]:
    """The waiting query whose id begins so; it may be just about to wait. Raises InputError."""
    from teola.errors import InputError

    until = monotonic() + SOON_S
    while True:
        waits = _waiting(client)
        matches = [entry for entry in waits if entry["query_id"].startswith(beginning)]
        if matches or monotonic() >= until:
            break
        sleep(SOON_S / 10)
    if len(matches) == 1:
        return matches[0]
    if len(matches) > 1:
        ids = ", ".join(entry["query_id"] for entry in matches)
        raise InputError(f"{beginning!r} is the beginning of several queries: {ids}")
    response = client.get(reach.query_path(beginning))
    if not response.is_success:
        raise InputError(
            f"no query that waits begins with {beginning!r}: `teola waiting` lists all"
        )
    entry = reach.told(response)
    if not entry.get("asks"):
        raise InputError(f"query {beginning} waits for no answer: it is {entry['state']}")
    return entry


def _chosen(query: dict[str, Any], ask: str | None) -> dict[str, Any]:
    """The question that is answered. Raises InputError, UnknownName."""
    from teola.errors import InputError, UnknownName

    asks: dict[str, dict[str, Any]] = {question["ask"]: question for question in query["asks"]}
    if ask is None:
        if len(asks) > 1:
            named = ", ".join(asks)
            raise InputError(f"it asks {len(asks)} questions: say which with --ask, of {named}")
        return next(iter(asks.values()))
    if ask not in asks:
        raise UnknownName("question", ask, asks)
    return asks[ask]


def _prompted(query: dict[str, Any], question: dict[str, Any], extras: Any) -> Any:
    """What is typed at the terminal. Raises InputError without one."""
    from teola.cli.prompting import Prompter, at_a_terminal
    from teola.errors import InputError
    from teola.graph import Inquiry

    if not at_a_terminal() or any(extras):
        raise InputError("say what to answer: teola answer QUERY ANSWER")
    named = ("ask", "kind", "component", "question", "schema", "about")
    id, *rest = (question.get(name) for name in named)
    return Prompter()(Inquiry(str(id), query["query_id"], *rest))  # type: ignore[arg-type]


def _show(queries: list[dict[str, Any]]) -> None:
    from teola.cli.replies import question_lines
    from teola.cli.showing import console, show_table

    whole = None if not console().is_terminal else reach.SHORT_ID
    rows = []
    for entry in queries:
        several = len(entry["asks"]) > 1
        head = (entry["query_id"][:whole], entry["app"], reach.span(entry["running_s"]))
        for ask in entry["asks"]:
            named = f"--ask {ask['ask']}\n" if several else ""
            rows.append((*head, f"{named}{question_lines(ask)}"))
    show_table(("query", "app", "since", "asks"), rows)
