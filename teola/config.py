"""The configuration file of a server: TOML or YAML, every key checked before anything starts.

`${NAME}` in a text stands for an environment variable, so that keys need not stand in the file.
Long because every key stands here twice: with its type, and in the file that `config init` writes.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from teola.errors import InputError, UnknownName
from teola.extras import needs
from teola.policies.pairing import pair
from teola.price import Price
from teola.profile import load_profile
from teola.runtime.day_accounts import DayBudget
from teola.runtime.engines import (
    DATABASES,
    DEFAULTS,
    EMBEDDING,
    EngineConfig,
    fair_to_tenants,
    with_policies,
)
from teola.runtime.objectives import SLO_SCALE
from teola.runtime.observe.kept_values import KeepValues
from teola.runtime.tuning.live_tuning import check_tuner
from teola.tools.mcp_server import ToolServer
from teola.tools.offered import MOST_CHARACTERS, MOST_TOOLS
from teola.tools.tool_table import ToolTable

if TYPE_CHECKING:
    from teola.tables.sources import TableSource

HISTORY_CHARACTERS: Final = 16_000
URL_PORTS: Final = (80, 443)
PROMPT_TOKENS: Final = 65_536
OUTPUT_TOKENS: Final = 65_536
OVERRIDE_CHARACTERS: Final = 65_536
PRIMITIVES: Final = 512
INTERMEDIATE_BYTES: Final = 64 * 2**20
EVENTS: Final = 4_096
MOST_CLIENT_TOOLS: Final = MOST_TOOLS
CLIENT_TOOL_CHARACTERS: Final = MOST_CHARACTERS
OWN_CALLS_S: Final = 3600.0
OWN_CALL_TURNS: Final = 256
OWN_CALL_BYTES: Final = 16 * 2**20
SQL_CHARACTERS: Final = 10_000
SQL_QUESTIONS: Final = 100_000
SQL_ROWS: Final = 10_000
SQL_BYTES: Final = 16 * 2**20
SQL_QUERIES: Final = 4
"""Defaults that hold also where a server is started without a file."""

_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerTable(_Table):
    """Where to listen, and how much to take."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8080, ge=0, le=65535, description="Port; 0 takes a free one.")
    max_queries: int = Field(default=1024, ge=1, description="Queries at once; more are refused.")
    max_queries_per_tenant: int | None = Field(
        default=None, ge=1, description="Queries at once of one tenant; else as many as in all."
    )
    max_wait_s: float | None = Field(
        default=None,
        gt=0,
        description="A query that would wait longer for an engine is refused; else: longer than "
        "ten queries like it take there, 0.5 to 30 s.",
    )
    max_rate_per_tenant: float | None = Field(
        default=None, gt=0, description="Queries a second of one tenant, over ten seconds."
    )
    tenant_weights: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default_factory=dict,
        description="Shares of the engines, by tenant, where several want them; 1 if not named.",
    )
    max_prompt_tokens: int = Field(
        default=PROMPT_TOKENS,
        ge=1,
        description="Of the texts of one query, at four characters each, where an LLM reads them.",
    )
    max_output_tokens: int = Field(
        default=OUTPUT_TOKENS, ge=1, description="That a query may want of one call of an LLM."
    )
    max_override_characters: int = Field(
        default=OVERRIDE_CHARACTERS, ge=2, description="Of one query's overrides, as JSON."
    )
    max_primitives: int = Field(
        default=PRIMITIVES,
        ge=1,
        description="In the p-graph of one query, and at once in the parts that it grows.",
    )
    max_intermediate_bytes: int = Field(
        default=INTERMEDIATE_BYTES,
        ge=1,
        description="Of texts and vectors that engines have computed for one query and that are "
        "still to be read.",
    )
    max_events: int = Field(
        default=EVENTS,
        ge=16,
        description="Events of one query that are held for its clients, besides its tokens; of "
        "older ones it is said how many they were.",
    )
    max_client_tools: int = Field(
        default=MOST_CLIENT_TOOLS, ge=1, description="That a client may bring along to one query."
    )
    max_client_tool_characters: int = Field(
        default=CLIENT_TOOL_CHARACTERS,
        ge=2,
        description="Of all tools that a client brings along to one query, as JSON.",
    )
    keep_values: KeepValues = Field(
        default="small",
        description="How much of what primitives read and gave is kept with a query, in memory: "
        "off; small, 2 KiB of each value; all, 64 KiB; 8 MiB a query.",
    )
    log_provider_messages: bool = Field(
        default=False,
        description="Whether the log of a query that failed has what a model's server said of it "
        "in words, which may quote prompts.",
    )
    own_calls_s: float = Field(
        default=OWN_CALLS_S,
        gt=0,
        description="Seconds since its last use for which a server keeps what an agent did beside "
        "the calls that it left to its client.",
    )
    max_own_call_turns_per_tenant: int = Field(
        default=OWN_CALL_TURNS, ge=1, description="Answers of one tenant for which that is kept."
    )
    max_own_call_bytes_per_tenant: int = Field(
        default=OWN_CALL_BYTES, ge=1, description="Of all that is kept so for one tenant."
    )
    keys: str | None = Field(
        default=None, description="File of API keys (`teola keys`); then every request needs one."
    )
    drain_s: float = Field(
        default=30.0, ge=0, description="Seconds that queries get to end on SIGTERM."
    )
    documents_by_url: bool = Field(
        default=False,
        description="Fetch documents that a query names by URL, from public addresses.",
    )
    url_hosts: list[str] = Field(
        default_factory=list,
        description='Hosts that documents come from, ".x.org" being all below it; none: any.',
    )
    url_ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(
        default=list(URL_PORTS), description="Ports that documents are fetched from."
    )
    history_characters: int = Field(
        default=HISTORY_CHARACTERS,
        ge=0,
        description="Characters of a conversation, its end, that go into prompts at most; 0: none.",
    )
    max_sql_characters: int = Field(
        default=SQL_CHARACTERS, ge=1, le=SQL_CHARACTERS, description="Of a query over tables."
    )
    max_sql_questions: int = Field(
        default=SQL_QUESTIONS,
        ge=1,
        description="That one call of a query over tables may have to ask; more is refused before "
        "the first is asked. Also the most that a client may give as most_calls.",
    )
    max_sql_rows: int = Field(
        default=SQL_ROWS, ge=1, description="Of the result of a query over tables."
    )
    max_sql_bytes: int = Field(
        default=SQL_BYTES, ge=1, description="Of the rows of such a result, as JSON."
    )
    max_sql_queries: int = Field(
        default=SQL_QUERIES, ge=1, description="Queries over tables at once; others wait."
    )
    answers: bool | str = Field(
        default=True,
        description="Where answers of queries over tables are kept: true, in the folder `answers` "
        "with the server's data; postgresql://..., in that database, which several servers share; "
        "another text, in that folder; false, nowhere, so that a query that is interrupted begins "
        "anew.",
    )
    share_answers: bool = Field(
        default=False,
        description="Whether tenants share these answers. Then one may see by the time and the "
        "price of a query whether another has asked the same.",
    )
    journal: bool | str = Field(
        default=True,
        description="Where background queries are kept, so that they survive a restart: true, in "
        "the PostgreSQL of the engine vectorstore; a DSN, in another; false, nowhere.",
    )
    journal_days: float = Field(
        default=7.0, gt=0, description="Days that background queries are kept after their end."
    )
    journal_key: str | None = Field(
        default=None,
        description="Secret with which the journal encrypts what queries that have not ended have "
        "computed and asked; all servers that share one need it. None: it lies there as it is.",
    )


class PoliciesTable(_Table):
    """Of all engines that name none of their own."""

    batching: str | None = Field(default=None, description="Batching policy.")
    routing: str | None = Field(default=None, description="Routing policy.")
    profile: str | None = Field(
        default=None,
        description="Latency profile: a name or a file; else what engines declare, "
        "until it is learned.",
    )
    slo_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=SLO_SCALE,
        description="Objective of queries that have none, in times what their primitives take one "
        "after another.",
    )
    learn: bool | str = Field(
        default=True,
        description="Whether to learn how long engines take and how much components write. true "
        "keeps it in the folder `learned` with the server's data, a text in that folder.",
    )


class EngineTable(_Table):
    """One engine, by the name that applications use."""

    type: str = Field(description="An installed engine type; `teola engines` lists them.")
    options: dict[str, Any] = Field(default_factory=dict, description="Its own options.")
    instances: int | None = Field(
        default=None, ge=1, description="How many to run; else as many as `pool` lists, or 1."
    )
    pool: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Unequal instances: the options of each, over `options`. `resources` among "
        "them goes over `resources`; `profile`, a name, a file or an engine's part of one, is the "
        "instance's own, and so is `price`, as in `prices`.",
    )
    alike: str | None = Field(
        default=None,
        description="What instances of a pool have in common: tokens, one model; text (language "
        "models only), that any of them may answer.",
    )
    host: str | None = Field(default=None, description="Where: local, process or ray.")
    resources: dict[str, float] = Field(
        default_factory=dict, description="What each asks of a Ray node: num_cpus, num_gpus, ..."
    )
    batching: str | None = Field(default=None, description="Its batching policy.")
    batching_options: dict[str, Any] = Field(
        default_factory=dict, description="Options of that policy."
    )
    routing: str | None = Field(default=None, description="Its routing policy.")
    routing_options: dict[str, Any] = Field(
        default_factory=dict, description="Options of that policy."
    )
    tuner: dict[str, Any] | bool | None = Field(
        default=None,
        description="Whether an option of its policies is tuned by replaying what came lately: "
        "true, or options of the tuner (docs/scheduling.md).",
    )
    probe: bool | None = Field(
        default=None,
        description="Whether it is measured when it starts, if nothing is remembered of it; else "
        "only if it runs on this machine, since calls of servers by URL cost money.",
    )
    overdue: float | None = Field(
        default=None,
        description="Of language models: a call without a first token is ended there and goes "
        "elsewhere after so many times what was expected; else 8, and once 50 have come twice "
        "what one in a hundred needs.",
    )
    overdue_s: float | None = Field(
        default=None,
        description="Not before so many seconds; else 5, or 60 where no time is known.",
    )
    hedge: float | None = Field(
        default=None,
        description="Of language models: a call without a first token when 95 of 100 have had "
        "theirs runs a second time on an idle instance, and the first token wins; at most so many "
        "more calls, as a part of all. Else none does.",
    )


class DatabaseTable(_Table):
    """One SQL database, by the name that applications use: an engine of the type sql."""

    path: str | None = Field(default=None, description="File of SQLite or DuckDB.")
    secret: str | None = Field(
        default=None, description="Environment variable that has a path or a DSN of PostgreSQL."
    )
    dialect: str | None = Field(
        default=None, description="That it has to be: sqlite, postgres or duckdb; else as found."
    )
    hints: str | None = Field(
        default=None, description="File (YAML) with what people know of it; see text-to-sql."
    )
    examples: bool | None = Field(
        default=None,
        description="Look for questions that were kept for it; else once one was kept here.",
    )
    private: list[str] = Field(
        default_factory=list, description="Columns that are never read, as table.column."
    )
    tenants: list[str] = Field(
        default_factory=list, description="Who may ask; none: everybody with a key."
    )
    set_local: dict[str, str] = Field(
        default_factory=dict,
        description="PostgreSQL's settings for each statement; {tenant} stands for the query's.",
    )
    trust_role: bool = Field(
        default=False, description="Log in also with a role that may do more than read."
    )
    max_plan_cost: float | None = Field(
        default=None, gt=0, description="Of a statement's plan, in the database's unit; else any."
    )
    embeddings: bool | None = Field(
        default=None,
        description="Find values by meaning, too, with the engine `embedding`; else where "
        "[engines.embedding] is configured.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Other options of the engine: seconds, rows, ..."
    )

    def engine(self) -> EngineConfig:
        """The engine that reads it. Raises InputError."""
        return EngineConfig("sql", self.engine_options)

    @property
    def engine_options(self) -> dict[str, Any]:
        """Options of that engine."""
        own = {
            key: value for key, value in self if key != "options" and value not in (None, [], {})
        }
        return {**own, **self.options}


class NamedTable(_Table):
    """One table that clients may ask over by SQL, by the name that queries have for it."""

    path: str | None = Field(
        default=None,
        description="File: .parquet, .csv, .tsv or .jsonl, or a database of DuckDB or SQLite.",
    )
    secret: str | None = Field(
        default=None, description="Environment variable that has a DSN of PostgreSQL."
    )
    table: str | None = Field(default=None, description="Of a database: which of its tables.")
    tenants: list[str] = Field(
        default_factory=list, description="Who may ask; none: everybody with a key."
    )

    def source(self) -> TableSource:
        """Where its rows are. Raises InputError; a database's server is not asked."""
        from teola.tables.sources import source_of

        if (self.path is None) == (self.secret is None):
            raise InputError("give a path (a file), or a secret (the DSN of a PostgreSQL)")
        if self.secret is None:
            return source_of(self.path, self.table)
        dsn = os.environ.get(self.secret, "")
        if not dsn:
            raise InputError(f"the environment variable {self.secret} is not set")
        if not dsn.startswith(("postgresql://", "postgres://")):
            raise InputError(
                f"the environment variable {self.secret} must be a DSN such as "
                "postgresql://user@host/db"
            )
        if self.table is None:
            raise InputError("say by `table` which table of the database is meant")
        return source_of(dsn, self.table)


class PriceTable(_Table):
    """What a model's tokens cost, for a million of them, in any currency."""

    prompt: float = Field(ge=0, allow_inf_nan=False, description="Of prompts.")
    answer: float = Field(ge=0, allow_inf_nan=False, description="Of what is generated.")
    cached: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Of tokens of prompts that its server had in its cache; else as `prompt`.",
    )


class BudgetTable(_Table):
    """What one application may take in a day, over all of its queries."""

    tokens_a_day: int | None = Field(default=None, ge=1, description="Of prompts and answers.")
    cost_a_day: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="In money, by `prices`."
    )


class Configuration(_Table):
    """The whole file."""

    apps: list[str] = Field(
        default_factory=list,
        description="Applications: installed ones or path/to/file.py:variable; none: all.",
    )
    ray: bool | str = Field(
        default=False,
        description='true starts Ray on this machine, "auto" or an address joins a cluster.',
    )
    server: ServerTable = ServerTable()
    policies: PoliciesTable = PoliciesTable()
    engines: dict[str, EngineTable] = Field(default_factory=dict)
    databases: dict[str, DatabaseTable] = Field(default_factory=dict)
    tables: dict[str, NamedTable] = Field(default_factory=dict)
    tools: dict[str, ToolTable] = Field(default_factory=dict)
    objectives: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default_factory=dict,
        description="By application, seconds by which answers are wanted; none is given up then.",
    )
    prices: dict[str, PriceTable] = Field(
        default_factory=dict,
        description="Of models, by the names that their servers have for them.",
    )
    budgets: dict[str, BudgetTable] = Field(
        default_factory=dict, description="Of applications, by their names."
    )

    def model_prices(self) -> dict[str, Price]:
        """All prices, by model."""
        return {
            name: Price(table.prompt, table.answer, table.cached)
            for name, table in self.prices.items()
        }

    def day_budgets(self) -> dict[str, DayBudget]:
        """All budgets, by application."""
        return {
            name: DayBudget(table.tokens_a_day, table.cost_a_day)
            for name, table in self.budgets.items()
        }

    @cached_property
    def table_sources(self) -> dict[str, TableSource]:
        """Where the rows of all tables are. Raises InputError, also for a file that cannot be
        read."""
        if not self.tables:
            return {}
        with needs("tables", "`[tables.NAME]` of the configuration"):
            from teola.tables.workspace import checked_tables, read_columns
        found: dict[str, TableSource] = {}
        for name, table in self.tables.items():
            try:
                found[name] = table.source()
            except InputError as error:
                raise InputError(f"table {name!r}: {error}") from None
        checked_tables(found)
        for name, source in found.items():
            if self.tables[name].secret is None:
                read_columns(name, source)
        return found

    def tool_servers(self) -> dict[str, ToolServer]:
        """All of them. Raises InputError."""
        return {name: table.server(name) for name, table in self.tools.items()}

    def engine_configs(
        self, base: Mapping[str, EngineConfig] = DEFAULTS
    ) -> dict[str, EngineConfig]:
        """All engines, those of `base` included. Raises UnknownName, InputError."""
        configs = {}
        for name, table in self.engines.items():
            values = {key: value for key, value in table if key != "type" and value is not None}
            defaults = {
                key: value
                for key in ("batching", "routing")
                if key not in values and (value := getattr(self.policies, key)) is not None
            }
            try:
                configs[name] = EngineConfig(table.type, **{**defaults, **values})
            except InputError as error:
                if isinstance(error, UnknownName):
                    raise
                raise InputError(f"engine {name!r}: {error}") from None
        databases_by_name = self.databases
        if EMBEDDING in self.engines:  # though it may be configured as it is by default
            databases_by_name = {
                name: table.model_copy(update={"embeddings": table.embeddings is not False})
                for name, table in databases_by_name.items()
            }
        for name, database in databases_by_name.items():
            if name in configs or name in base:
                raise InputError(f"database {name!r} has the name of an engine: rename it")
            try:
                configs[name] = database.engine()
            except InputError as error:
                raise InputError(f"database {name!r}: {error}") from None
        rest = {name: config for name, config in base.items() if name not in configs}
        if self.databases and (databases := rest.get(DATABASES)) is not None:
            named = {name: table.engine_options for name, table in databases_by_name.items()}
            rest[DATABASES] = replace(databases, options={**databases.options, "named": named})
        policies = self.policies
        return {**with_policies(rest, policies.batching, policies.routing), **configs}

    def check(self) -> None:
        """Check all that can be checked without starting anything. Raises UnknownName,
        InputError."""
        if self.policies.profile:
            load_profile(self.policies.profile)
        self.tool_servers()
        _ = self.table_sources
        configs = self.engine_configs()
        if self.server.keys:
            configs = fair_to_tenants(configs, self.server.tenant_weights)
        for name, config in configs.items():
            pair(config.batching, config.batching_options, config.routing, config.routing_options)
            config.check(name)
            config.check_prices(name, self.model_prices())
            check_tuner(name, config)


def read(path: Path) -> Configuration:
    """The configuration in a file. Raises InputError that names the key that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InputError(f"cannot read the configuration {str(path)!r}: {reason}") from None
    try:
        return Configuration.model_validate(_expanded(_parsed(path, text), path))
    except ValidationError as error:
        errors = error.errors(include_url=False)
        unknown = [entry for entry in errors if entry["type"] == "extra_forbidden"]
        first = [*unknown, *errors][0]  # a misspelt key is missing as well
        where = ".".join(str(part) for part in first["loc"])
        if unknown:
            message = f"unknown key {where!r}{_hint(first['loc'])}"
        elif first["type"] == "missing":
            message = f"{where} is missing"
        else:
            message = f"{where}: {first['msg']} (got {first['input']!r})"
        raise InputError(f"{path}: {message}") from None


def _parsed(path: Path, text: str) -> Any:
    if path.suffix.lower() in (".yaml", ".yml"):
        import yaml

        try:
            return yaml.safe_load(text) or {}
        except yaml.YAMLError as error:
            message = " ".join(str(error).split())
            raise InputError(f"{path} is not YAML: {message}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}") from None


def _expanded(value: Any, path: Path) -> Any:
    """With the environment's variables in place. Raises InputError for one that is not set."""
    if isinstance(value, str):
        for name in _VARIABLE.findall(value):
            if name not in os.environ:
                raise InputError(f"{path}: the environment variable {name} is not set")
        return _VARIABLE.sub(lambda match: os.environ[match[1]], value)
    if isinstance(value, Mapping):
        return {str(key): _expanded(item, path) for key, item in value.items()}
    if isinstance(value, list):
        return [_expanded(item, path) for item in value]
    return value


_NAMED: Final[Mapping[str, type[BaseModel]]] = {
    "engines": EngineTable,
    "databases": DatabaseTable,
    "tables": NamedTable,
    "tools": ToolTable,
    "prices": PriceTable,
    "budgets": BudgetTable,
}
"""Of which there is a table for each name."""


def _hint(loc: tuple[int | str, ...]) -> str:
    """The nearest key that would be right, and all of them."""
    table: Any = Configuration
    for part in loc[:-1]:
        fields = getattr(table, "model_fields", None)
        if fields and part in fields:
            table = _NAMED.get(str(part), fields[str(part)].annotation)
    valid = sorted(getattr(table, "model_fields", {}))
    near = get_close_matches(str(loc[-1]), valid, n=1)
    return f"{f'; did you mean {near[0]!r}?' if near else ''} (valid: {', '.join(valid)})"


TEMPLATE: Final = """\
# Configuration of `teola serve --config FILE`; `teola config check FILE` looks it over.
# Everything is optional: what stands here are the defaults.

# Applications to serve: installed ones (`teola apps`) or "path/to/file.py:variable"; none: all.
apps = []

# true starts Ray on this machine, "auto" or an address joins a cluster.
ray = false

[server]
host = "127.0.0.1"
port = 8080
# Queries at once; more are refused with 429.
max_queries = 1024
# max_queries_per_tenant = 100
# A query that would have to wait longer than this is refused with 429; without it: longer than ten
# queries like it take at the engine, 0.5 to 30 s.
# max_wait_s = 5
# max_rate_per_tenant = 10
# tenant_weights = { shop = 2 }
# Of one query: tokens of its texts, and of one answer of an LLM, characters of its overrides,
# primitives of its graph, and what is computed for it and not read yet; tools that a client brings
# along, and characters of these as JSON.
max_prompt_tokens = 65536
max_output_tokens = 65536
max_override_characters = 65536
max_primitives = 512
max_intermediate_bytes = 67108864
# Events that are held for its clients, besides its tokens.
max_events = 4096
max_client_tools = 128
max_client_tool_characters = 65536
# How much of what primitives read and gave is kept in memory with a query, for people who look at
# it later: "off", "small" (2 KiB of each value) or "all" (64 KiB); 8 MiB a query.
keep_values = "small"
# What model servers say in words is told to whoever asked, and not logged: it may quote prompts.
log_provider_messages = false
# What agents did beside calls that they left to their clients is kept so long, in seconds since its
# last use; of one tenant for so many answers, with so many bytes in all.
own_calls_s = 3600
max_own_call_turns_per_tenant = 256
max_own_call_bytes_per_tenant = 16777216
# API keys (`teola keys create`): then every request needs one. Without keys, only 127.0.0.1.
# keys = "teola-keys.json"
# Seconds that queries get to end on SIGTERM.
drain_s = 30
# Fetch documents that a query names by URL, from public addresses only: from any, or these hosts.
documents_by_url = false
# url_hosts = ["docs.example.org", ".wiki.example.org"]
url_ports = [80, 443]
# Characters of a conversation, its end, that go into prompts at most.
history_characters = 16000
# Background queries survive a restart: true, in the PostgreSQL of the engine vectorstore; a DSN, in
# another; false, not at all. They are forgotten so many days after their end.
journal = true
journal_days = 7
# Of a query over tables: characters, questions of one call, rows of its result and bytes of these;
# such queries at once. Answers are kept in the folder "answers" with the server's data (true), in
# another (a text) or not (false), for each tenant apart unless they are shared.
max_sql_characters = 10000
max_sql_questions = 100000
max_sql_rows = 10000
max_sql_bytes = 16777216
max_sql_queries = 4
answers = true
share_answers = false
# What queries that have not ended have computed and asked lies there encrypted with this secret.
# journal_key = "${TEOLA_JOURNAL_KEY}"

# Of all engines that name none of their own.
[policies]
# batching = "critical_path"
# routing = "least_loaded"
# profile = "paper-13b"
# When answers are wanted of queries that do not say so: in times what their primitives take.
slo_scale = 5
# How long engines take and how much components write is learned, and kept in the folder "learned"
# with the data of the embedded server; false: not at all; a text: in that folder.
learn = true

# One table for each engine, by the name that applications use: documents, embedding, rerank,
# vectorstore, llm, proxy, judge, websearch. `teola engines` lists the types.
#
# [engines.llm]
# type = "vllm"
# options = { url = "http://localhost:8000/v1", api_key = "${LLM_KEY}" }
# probe = true  # measure it by a few calls when it starts and nothing is remembered of it
# (Several servers of one model are one engine with unequal instances, each with options of its own:
# pool = [{ url = "http://one:8000/v1" }, { url = "http://two:8000/v1", max_sequences = 64 }]
# They have to agree in model, tokenizer, chat template and block size; otherwise they are two
# engines, unless `alike` says that any of them may answer. Entries may have prices, and the cheaper
# may come first: docs/servers.md.)
#
# [engines.embedding]
# type = "embedding"
# instances = 2
# host = "process"
# (One behind POST /v1/embeddings has the type "openai-embedding", and a url and an api_key among
# its options.)
#
# [engines.vectorstore]
# type = "vectorstore"
# options = { dsn = "${DATABASE_URL}" }
#
# One table for each SQL database, which is only read: SQLite or DuckDB by its path, PostgreSQL by
# the environment variable that has its DSN. Applications use it by its name, as an engine.
#
# [databases.harbour]
# path = "harbour.db"
# private = ["crew.email"]
#
# One table for each table that clients may ask over by SQL (POST /v1/sql): a file, or a table of a
# database; PostgreSQL by the environment variable that has its DSN.
#
# [tables.reviews]
# path = "reviews.parquet"
#
# [tables.orders]
# secret = "SHOP_DSN"
# table = "orders"
# tenants = ["shop"]
#
# By application, seconds by which answers are wanted; nothing is given up then.
#
# [objectives]
# advanced-rag = 20

# One table for each server of tools (MCP), by the name under which agents ask for it. Its tools are
# taken to change the world but for those that are called pure.
#
# [tools.time]
# command = ["mcp-server-time"]
# pure = ["get_current_time", "convert_time"]
#
# [tools.tickets]
# url = "https://tickets.example.org/mcp"
# headers = { Authorization = "Bearer ${TICKETS_KEY}" }
# approval = ["delete_ticket"]
#
# What a million tokens of a model cost, in any currency, by the name that its server has for it (of
# a model without a name: by its engine). No prices are shipped. Without `cached`, tokens of prompts
# that the server had in its cache cost as much as others.
#
# [prices."gpt-4o-mini"]
# prompt = 0.15
# cached = 0.075
# answer = 0.6
#
# What an application may take in a day (of UTC), over all of its queries. Keys have budgets, too:
# `teola keys create NAME --tokens-a-day N`.
#
# [budgets.advanced-rag]
# tokens_a_day = 5000000
# cost_a_day = 10
"""
