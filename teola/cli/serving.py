"""`teola serve`: applications over HTTP."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teola.cli import options as o

if TYPE_CHECKING:
    from teola.config import Configuration, ServerTable

SERVE_EXAMPLES = o.examples(
    "teola serve",
    "teola serve advanced-rag --llm http://localhost:8000/v1 --port 9000",
    "teola serve --llm http://one:8000/v1 --llm http://two:8000/v1",
    "teola serve mine.py:app",
    "teola serve --config teola.toml",
)


log = logging.getLogger(__name__)


class LogFormat(StrEnum):
    """Forms of log lines."""

    JSON = "json"
    TEXT = "text"


def part(name: str) -> Any:
    """A module that comes with the server. Raises MissingExtra."""
    from teola.extras import needs

    with needs("server", "`teola serve`"):
        return import_module(f"teola.{name}")


def intake(where: ServerTable) -> Any:
    """What clients may send, by the configuration."""
    fetcher = None
    if where.documents_by_url:
        hosts, ports = tuple(map(str.lower, where.url_hosts)), tuple(where.url_ports)
        policy = part("serve.intake.fetch_policy").FetchPolicy(hosts=hosts, ports=ports)
        fetcher = part("serve.intake.fetching").Fetcher(policy)
    own_calls = part("serve.intake.limits").OwnCallLimits(
        where.own_calls_s, where.max_own_call_turns_per_tenant, where.max_own_call_bytes_per_tenant
    )
    intake_class = part("serve.intake.listed_documents").Intake
    return intake_class(fetcher, where.history_characters, own_calls)


def registered(configuration: Configuration, data_dir: Any) -> Any:
    """The tables that clients may ask over; None: there are none. data_dir: with the server's data
    (None: the default). Raises InputError."""
    sources = configuration.table_sources
    if not sources:
        return None
    where, module = configuration.server, part("serve.table_queries.registered_tables")
    tenants = {name: frozenset(one.tenants) for name, one in configuration.tables.items()}
    limits = module.TableLimits(
        where.max_sql_characters,
        where.max_sql_questions,
        where.max_sql_rows,
        where.max_sql_bytes,
        where.max_sql_queries,
    )
    home = module.answers_home(where.answers, data_dir)
    answers = module.AnswersByTenant(home, where.share_answers)
    return module.RegisteredTables(sources, tenants, limits, answers)


def serve(
    apps: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[APP]...",
            show_default=False,
            help="Applications, installed ones or path/to/file.py:variable; by default all that "
            "are installed.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="A configuration, TOML or YAML (`teola config init` writes one); options here "
            "go before it.",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(show_default=False, help="Address to listen on; else 127.0.0.1."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, show_default=False, help="Port, 0 for a free one; else 8080."
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="API keys (`teola keys create`); then every request needs one. Without keys only "
            "this machine is served.",
        ),
    ] = None,
    profile: o.ProfileName = None,
    learn: o.Learn = None,
    batching: o.Batching = None,
    llm: o.Llm = None,
    embedding: o.EmbeddingOption = None,
    dimensions: o.Dimensions = None,
    web_search: o.WebSearchOption = None,
    ray: o.OnRay = None,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    dtype: o.Precision = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            show_default=False,
            rich_help_panel=o.OUTPUT,
            help="Of what is logged on standard error: by default text on a terminal, else JSON, "
            "one object a line.",
        ),
    ] = None,
    debug: o.Debug = False,
) -> int:
    """Serve applications over HTTP, in our own form and in OpenAI's.

    Prints the URL, serves until Ctrl-C or SIGTERM, and lets queries that run end.
    """
    from teola.catalogue import installed, load_app
    from teola.cli.given import Engines, check_budgets
    from teola.config import Configuration, read
    from teola.errors import InputError
    from teola.runtime.engines import fair_to_tenants
    from teola.runtime.observe.noting import note

    server = part("serve.server")
    logs = part("serve.observe.logs")
    configuration = read(config) if config else Configuration()
    where = configuration.server
    chosen = [load_app(name) for name in apps or configuration.apps]
    configuration.check()  # by now the files of applications have registered what they bring
    served = {app.name: app for app in chosen or [x.app for x in installed() if x.app]}
    if len(served) < len(chosen):
        raise InputError("two applications have the same name; rename one")
    check_budgets(configuration, served.values())
    engines = Engines(
        llm=llm,
        dsn=dsn,
        data_dir=data_dir,
        dtype=dtype,
        batching=batching,
        profile=profile,
        debug=debug,
        web_search=web_search,
        ray=ray,
        embedding=embedding,
        dimensions=dimensions,
        learn=learn,
    )
    keys = keys or (Path(where.keys) if where.keys else None)
    address = (host or where.host, where.port if port is None else port)
    with (
        logs.logging_to(sys.stderr, log_format.value if log_format else None),
        server.listen(*address, keys=keys) as listener,
        engines.configured(configuration, served.values()) as runtime,
    ):
        for app in served.values():
            app.runtime = runtime
        runtime.fitting.look(runtime.configs)
        if keys is not None:
            runtime.configs = fair_to_tenants(runtime.configs, where.tenant_weights)
        name, number = listener.getsockname()[:2]
        typer.echo(f"http://{f'[{name}]' if ':' in name else name}:{number}")
        data = runtime.configs["vectorstore"].options.get("data_dir")
        tables = registered(configuration, data)
        message = "serving %(apps)s; starting engines ..."
        note(log, logging.INFO, "start", message, apps=", ".join(served))
        ready = lambda: note(log, logging.INFO, "ready", "ready; Ctrl-C stops")  # noqa: E731
        limits = server.ServerLimits(
            where.max_queries,
            where.max_queries_per_tenant,
            drain_s=where.drain_s,
            events=where.max_events,
            logs_said=where.log_provider_messages,
            max_wait_s=where.max_wait_s,
            shares=server.Shares(where.tenant_weights, where.max_rate_per_tenant),
            query=server.QueryLimits(
                where.max_prompt_tokens,
                where.max_output_tokens,
                where.max_override_characters,
                where.max_primitives,
                where.max_intermediate_bytes,
                where.max_client_tools,
                where.max_client_tool_characters,
            ),
        )
        how = where.journal, where.journal_days, where.journal_key
        journal = part("query.journal.journal").journal_of(runtime, *how)
        server.serve(
            runtime,
            served,
            listener,
            keys=keys,
            limits=limits,
            journal=journal,
            intake=intake(where),
            tables=tables,
            started=ready,
        )
    return 0
