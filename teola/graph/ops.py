"""What a primitive can do: the operations of the paper (section 3, table 2) and their parameters.

Each op has one frozen parameter class. `ITEM_INPUTS` names the inputs that are lists of
independent items, aligned with each other and with the op's list output, which is what
lets a pass or a queue cut a primitive into pieces and join the results in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from teola.graph.growth import Grower
from teola.graph.inquiry import ASK, WAIT_S, Wording


class Op(Enum):
    """One kind of operation. The value is the word that users see."""

    EMBEDDING = "embedding"
    INGESTION = "ingestion"
    SEARCHING = "searching"
    RERANKING = "reranking"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    PARTIAL_PREFILLING = "partial_prefilling"
    FULL_PREFILLING = "full_prefilling"
    PARTIAL_DECODING = "partial_decoding"
    CONDITION = "condition"
    AGGREGATE = "aggregate"
    WEB_SEARCH = "web_search"
    TOOL_CALL = "tool_call"
    SQL = "sql"
    GROW = "grow"
    WAIT = "wait"

    __hash__ = object.__hash__  # members are singletons; Enum's own hash is a Python-level call


PREFILLS: Final = frozenset({Op.PREFILLING, Op.PARTIAL_PREFILLING, Op.FULL_PREFILLING})
GROUP_HEADS: Final = frozenset({Op.PREFILLING, Op.FULL_PREFILLING})
DECODES: Final = frozenset({Op.DECODING, Op.PARTIAL_DECODING})
CONTROL: Final = frozenset({Op.CONDITION, Op.AGGREGATE, Op.GROW, Op.WAIT})
"""Run by the driver itself: no engine, no queue."""

SPECULATIVE: Final = frozenset(
    {Op.EMBEDDING, Op.SEARCHING, Op.RERANKING, Op.WEB_SEARCH, Op.SQL, Op.AGGREGATE}
)
"""May run before a Condition has decided, if the developer asks for it: no effects, no LLM."""

EFFECTS: Final = frozenset({Op.INGESTION})
"""Change something outside the query; retried only under an idempotency key."""
STORE_READS: Final = frozenset({Op.SEARCHING, Op.SQL})
"""Read what an effect at the same engine may have changed."""
DONE_ONCE: Final = frozenset({Op.EMBEDDING, Op.RERANKING, Op.WEB_SEARCH})
"""Without chance, and reading nothing that the query's own tenant may change meanwhile: of equal
ones that are under way at the same time, one is enough."""
EXTERNAL_READS: Final = frozenset({Op.WEB_SEARCH, Op.SQL})

ITEM_INPUTS: Final[dict[Op, tuple[str, ...]]] = {
    Op.EMBEDDING: ("texts",),
    Op.INGESTION: ("vectors", "chunks"),
    Op.SEARCHING: ("vectors",),
    Op.RERANKING: ("hits",),
    Op.WEB_SEARCH: ("queries",),
}


@dataclass(frozen=True, slots=True)
class EmbeddingParams:
    """`role` lets models that embed queries and documents differently do so."""

    role: str = "document"


@dataclass(frozen=True, slots=True)
class IngestionParams:
    """Stores (vector, chunk) pairs under the pending document each chunk names."""


@dataclass(frozen=True, slots=True)
class SearchParams:
    """`top_k` hits for each query vector: its nearest neighbours, or, given a `language`, those
    fused with what a full-text search in it finds for the input `question`. language: a text search
    configuration of PostgreSQL."""

    top_k: int
    language: str | None = None


@dataclass(frozen=True, slots=True)
class RerankParams:
    """Scores each hit against the question; keeping the best is an Aggregate's job."""


@dataclass(frozen=True, slots=True)
class PrefillParams:
    """The prompt is an input of the primitive."""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """Tools that a model may call, in a list of its own under a schema, or by its server's means.

    functions: as servers take them, in JSON. words: what the prompt says of how to call them;
    brief: what it says instead where the server knows. typed: an answer in place of calls is a
    JSON value. choice: `auto`, or what has to be called: `required` (any) or a tool's name.
    parallel: several may be called in one reply.
    """

    functions: str
    words: str
    brief: str = ""
    typed: bool = False
    choice: str = "auto"
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class DecodeParams:
    """What to generate.

    max_tokens: at most this many output tokens. items / parser: the output is a list of `items`
    elements, recognised by `parser` (`lines`, `numbered`, `json_list`). schema: JSON schema (as
    text) that the output must satisfy. item: which element a partial decoding delivers. seed: where
    chance decides, the same one decides alike, on engines that heed it. field: of a JSON answer,
    the string that is told as it comes. tools: what may be called, for servers that know calls.
    check: JSON schema (as text) that the output is held to in place of `schema`, where somebody
    else says what is wrong with the rest of it. bare: an output that is no JSON is the string
    `field`. keep_thoughts: the reasoning that an output begins with (<think>...</think>) is part
    of it. choices: texts of which the output is to be one; pattern: a regular expression that all
    of it is to match. Engines hold the output to these where they can (vLLM); others may not.
    """

    max_tokens: int = 256
    items: int | None = None
    parser: str | None = None
    schema: str | None = None
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    item: int | None = None
    seed: int | None = None
    field: str | None = None
    tools: OfferedTools | None = None
    check: str | None = None
    bare: bool = False
    keep_thoughts: bool = False
    choices: tuple[str, ...] | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ConditionParams:
    """`test(*inputs)` returns the branch to take; it must be quick and pure.

    prefer: the branch that is taken in estimates.
    """

    test: Callable[..., Any]
    branches: tuple[str, ...]
    prefer: str


class Aggregation(Enum):
    """How an Aggregate combines the parts that are present."""

    CONCAT = "concat"  # lists, in the order of the parts
    SEVERAL = "several"  # the same of two parts or more: one alone counts as none
    UNION = "union"  # lists of hits, flattened, duplicates dropped, best score kept
    NEW = "new"  # lists of hits: those of the last one that no other has
    TOP_K = "top_k"  # (hits, scores[, scored]): the k best, by score
    LAST = "last"  # the last part that is present
    MERGED = "merged"  # the last part, made of the others; without it, the only other one
    FIRST = "first"  # the first part that is present

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class AggregateParams:
    """lexical_weight (for TOP_K): what the best lexical score among the hits adds to a score; lower
    ones add less, in proportion."""

    mode: Aggregation
    k: int | None = None
    lexical_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class ByHand:
    """How a person takes over a call that was cut off.

    about: name and arguments of the tool that is called with these inputs. output: the call's only
    output, from its inputs and the JSON value that the person says it gave.
    """

    about: Callable[[Mapping[str, Any]], tuple[str, Mapping[str, Any]]]
    output: Callable[[Mapping[str, Any], Any], Any]


@dataclass(frozen=True, slots=True)
class ToolParams:
    """Calls `function` with the primitive's inputs by name.

    outputs: what it returns: one value, or a dict with these keys if there are several.
    item_inputs: lists that may be cut (the function returns one aligned list). optional: inputs the
    function can do without. pure: it may be called again after a failure. most: items of the list
    that it returns, if it may return one no longer than that. streams: it yields its only output, a
    text, in pieces. timeout: seconds that a call may take. retries: further calls after any
    failure; None: those of a pure function, after failures that another try may mend. asks: it is
    told who asks, as `asked` (teola.engine.AskedBy). repeatable: whether a call with these inputs
    may be made again, since it does nothing twice; None: none may. schemas: JSON schema of each
    output, which a person's value for it has to fit; (): any value. by_hand: see ByHand.
    """

    function: Callable[..., Any]
    outputs: tuple[str, ...] = ("out",)
    item_inputs: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    pure: bool = False
    most: int | None = None
    streams: bool = False
    timeout: float | None = None
    retries: int | None = None
    asks: bool = False
    repeatable: Callable[[Mapping[str, Any]], bool] | None = None
    schemas: tuple[Mapping[str, Any], ...] = ()
    by_hand: ByHand | None = None


@dataclass(frozen=True, slots=True)
class WebSearchParams:
    top_k: int = 4


class SqlWork(Enum):
    """What a database is asked for. QUERY, EXPLAIN: of the input `sql`. VALUES: texts of the
    database like the input `text`. SCHEMA: what it has. LINK: which of that the question `text` is
    about."""

    QUERY = "query"
    EXPLAIN = "explain"
    SCHEMA = "schema"
    VALUES = "values"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class SqlParams:
    """max_rows: most rows of a result. tell_errors: an error in a statement is a result, too, and a
    result without rows has the values that are like the statement's texts."""

    max_rows: int = 1000
    work: SqlWork = SqlWork.QUERY
    tell_errors: bool = False


@dataclass(frozen=True, slots=True)
class GrowParams:
    """Adds parts to the graph while it runs. optional: inputs that it can do without. feeds: a list
    that it can grow over while it is still being written ("": none)."""

    grower: Grower
    optional: tuple[str, ...] = ()
    feeds: str = ""


@dataclass(frozen=True, slots=True)
class WaitParams:
    """Asks a person what `words` makes of the inputs, by name, and waits for `wait_s` seconds at
    most. kind: see Inquiry. read: its output, from the answer and what it was told to be about;
    None: the answer."""

    words: Callable[[Mapping[str, Any]], Wording]
    kind: str = ASK
    wait_s: float = WAIT_S
    read: Callable[[Any, Any], Any] | None = None


Params = (
    EmbeddingParams
    | IngestionParams
    | SearchParams
    | RerankParams
    | PrefillParams
    | DecodeParams
    | ConditionParams
    | AggregateParams
    | ToolParams
    | WebSearchParams
    | SqlParams
    | GrowParams
    | WaitParams
)


def has_effect(op: Op, params: Params) -> bool:
    """Whether the op changes (or may change) something outside its query: ingestion does; a
    function that is not declared pure may, and so may a part with one of these."""
    if type(params) is GrowParams:
        return params.grower.effect
    return op in EFFECTS or (type(params) is ToolParams and not params.pure)


def retries(op: Op, params: Params) -> int:
    """Further tries that `op` may have after its first failure (docs/architecture.md, faults).

    Ingestion may be retried because it carries an idempotency key; an LLM call (named by the op of
    its prefilling) only until a token has left for the client, which its queue watches over.
    """
    if type(params) is ToolParams and params.retries is not None:
        return params.retries
    if op in EXTERNAL_READS:
        return 1
    if op in DECODES or op in CONTROL:
        return 0
    return 2 if op in EFFECTS or not has_effect(op, params) else 0
