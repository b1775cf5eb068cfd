"""What an engine is: the one protocol that everything runnable implements, and what some have
besides.

Long because engines may import nothing else that tells them what is asked of them.

An engine serves operations of one kind. It knows nothing of graphs, queries in flight, batching
or Teola's event loop; a *host* calls it. Three shapes exist, told apart by `EngineSpec.kind`:

* batch engines (`BatchEngine`): `execute` a list of requests of one op at a time;
* language models (`LanguageModel`): `prefill` a prefix, `generate` a stream;
* the document loader (`Loader`), used in the step before the graph.

Any method may be sync (the host runs it in a worker thread) or async (the host awaits it), apart
from `LanguageModel.generate`, which is an async generator. `__init__` must be quick and touch
nothing outside; models are loaded and connections opened in `start`.
"""

from __future__ import annotations

import json
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

from teola.citation import cited
from teola.errors import InputError, OutputError
from teola.graph.ops import CONTROL, DecodeParams, Op, Params
from teola.graph.prompt import Role
from teola.moved import renamed
from teola.run_secrets import OF_NONE

EngineResult = Mapping[str, Any]
"""Outputs by port name. A batchable op's list port is aligned with its item inputs."""
if not TYPE_CHECKING:  # or else a type checker would believe that any name is here
    __getattr__ = renamed(__name__, {"Result": "EngineResult"})
ChunkPlace = Mapping[str, str | int]
"""Where a passage begins in its document: `page`, `slide` (from 1), `sheet` or `section`; and
`pages` or `slides`, such as "12-13", where it ends on another one."""


class EngineKind(Enum):
    """What an engine is for; profiles fall back from an engine's name to its kind."""

    LLM = "llm"
    EMBEDDING = "embedding"
    RERANK = "rerank"
    VECTORSTORE = "vectorstore"
    WEBSEARCH = "websearch"
    TOOL = "tool"
    SQL = "sql"
    DOCUMENTS = "documents"


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What schedulers and passes need to know of an engine, without starting it.

    max_batch: items of one batch (an LLM: prompt tokens in flight on one instance). max_sequences:
    primitives (an LLM: calls) that one instance holds at once. concurrency: batches that one
    instance runs at once. prefix_reuse: a partial prefilling makes the later full one cheaper.
    keeps_prefixes: what was computed of a prompt, whoever's query it was (of the same tenant), is
    found by later ones that begin alike. block_tokens: prefixes shorter than one KV block save
    nothing. kv_blocks: what an instance's cache holds, where that is known. window: tokens of a
    prompt and its answer together, where that is known. notice: of a language model, what whoever
    reads its answers has to know of them. looks_ahead: its cache wants to know when what a call
    leaves there is read again (`Call.reads`). full_text: of a vector store, whether it searches by
    words, too (`SearchParams.language`). independent: of a language model, whether its calls do not
    hold one another up, as behind an API with many machines: none waits there for others' prompts.
    """

    name: str
    kind: EngineKind
    ops: frozenset[Op]
    max_batch: int = 64
    max_sequences: int = 1024
    concurrency: int = 1
    prefix_reuse: bool = False
    keeps_prefixes: bool = False
    block_tokens: int = 16
    kv_blocks: int | None = None
    window: int | None = None
    description: str = ""
    notice: str = ""
    looks_ahead: bool = False
    full_text: bool = False
    independent: bool = False

    def __post_init__(self) -> None:
        """Raises InputError, which says what is wrong with the declaration."""
        called = f"engine {self.name!r}: EngineSpec"
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"{called}: name must be a text, not {self.name!r}")
        if not isinstance(self.kind, EngineKind):
            kinds = ", ".join(kind.name for kind in EngineKind)
            raise InputError(f"{called}: kind must be an EngineKind ({kinds}), not {self.kind!r}")
        ops: Any = self.ops
        none = self.kind is EngineKind.DOCUMENTS  # these serve the step before the graph
        if not isinstance(ops, (set, frozenset)) or not (ops or none):
            raise InputError(f"{called}: ops must be a set such as {{Op.EMBEDDING}}, not {ops!r}")
        for op in ops:
            if not isinstance(op, Op):
                valid = ", ".join(known.name for known in Op if known not in CONTROL)
                raise InputError(
                    f"{called}: ops must be members of teola.graph.Op ({valid}), not {op!r}"
                )
        for limit in ("max_batch", "max_sequences", "concurrency", "block_tokens"):
            value = getattr(self, limit)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{called}: {limit} must be a whole number from 1, not {value!r}")


class Life:
    """over: whether a query has ended. An engine that works for long may look between two pieces of
    its work, and raise QueryCancelled if nobody is left who wants it; in another process than the
    query's it never changes."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False


@dataclass(frozen=True, slots=True)
class QueryContext:
    """What travels with every request: identity, tenant, and the time that is left.

    deadline: on the monotonic clock, in seconds. part_of: a program that it belongs to, such as a
    session or the query around it ("": it is one by itself).
    """

    query_id: str
    tenant: str = "default"
    deadline: float = float("inf")
    life: Life = field(default_factory=Life, compare=False, repr=False)
    part_of: str = ""

    @property
    def program(self) -> str:
        """Whose calls its own are; see docs/routing.md."""
        return self.part_of or self.query_id

    @property
    def whole_id(self) -> str:
        """Id of the whole query, of which this may be a part, such as a turn of a loop."""
        return self.query_id.partition("/")[0]


class Request(NamedTuple):
    """One slice of one primitive, with its inputs resolved to values.

    key: idempotency key, equal for every try of the same work. keep: outputs that only engines
    read, which may stay where they are made (for hosts; engines need not look).
    """

    op: Op
    params: Params
    inputs: Mapping[str, Any]
    context: QueryContext
    key: str
    keep: frozenset[str] = frozenset()


class AskedBy(NamedTuple):
    """Who asks for a call. query_id: of the query, whatever part of it asks. key: the same for each
    try of the call, and of no other one. tools: by name, of where it runs. secrets: of its run."""

    query_id: str
    tenant: str
    key: str
    tools: Any = None
    secrets: Mapping[str, str] = OF_NONE


def any_wanted(requests: Iterable[Request]) -> bool:
    """Whether any of their queries still goes on."""
    return any(not request.context.life.over for request in requests)


@dataclass(frozen=True, slots=True)
class TextPart:
    """A prompt part with its text filled in."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class SequenceHandle:
    """A sequence that an engine has (partly) computed: everything before the next part.

    instance: index of the instance that holds it. token_ids: where the engine works on ids.
    state: private to an in-process engine.
    """

    engine: str
    instance: int
    parts: tuple[TextPart, ...]
    token_ids: tuple[int, ...] = ()
    state: Any = None


class NextRead(NamedTuple):
    """A stretch of a prompt, from the end of the one before it to `until`, and in how many seconds
    after the end of its call it is read again (inf: never by its query; None: nobody knows).
    Counted in the prompt's parts, or in a cache's blocks."""

    until: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Call:
    """One LLM call (or, for `prefill`, its beginning).

    parts: what follows `prefix`. priority: larger is more urgent. category: (app, component), for
    cache policies. reads: when `all_parts` are read again, for engines that look ahead. expects:
    tokens that it will generate, by its component's habits (0: nobody knows).
    """

    context: QueryContext
    parts: tuple[TextPart, ...]
    decode: DecodeParams
    prefix: SequenceHandle | None = None
    priority: int = 0
    category: tuple[str, str] = ("", "")
    reads: tuple[NextRead, ...] = ()
    expects: int = 0

    @property
    def all_parts(self) -> tuple[TextPart, ...]:
        """The whole prompt, prefix included."""
        return (self.prefix.parts if self.prefix else ()) + self.parts


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one call; `cached_tokens` of the prompt came from a prefix cache."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


LONGEST_ANSWER: Final = 1 << 24
"""Characters of one answer. The longest that models write are 128,000 tokens, about half a million
characters; what writes so much more does not end, and would fill the memory."""
LONGEST_ITEM: Final = 1 << 20
"""Characters of one item of a list, and of the arguments of all calls of one answer: they are read
in one turn of the event loop."""


def check_length(writer: str, what: str, characters: int, most: int) -> None:
    """Raises OutputError where a model has written more characters than it may; what: of which."""
    if characters > most:
        raise OutputError(
            f"{writer} writes {what} of more than {most:,} characters: ask for less, or set "
            "max_tokens"
        )


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a stream. The last one carries usage and `finish_reason`: "stop", "length" (the
    text was cut at max_tokens) or "refusal" (the text says that the model will not answer)."""

    text: str
    finish_reason: str | None = None
    usage: Usage | None = None


class Reading(NamedTuple):
    """Digests of what makes token ids of a prompt: equal where any prompt has the same ids."""

    tokenizer: str
    template: str


class Engine(Protocol):
    """Common to all engines; what only some have are the capabilities below."""

    @property
    def spec(self) -> EngineSpec: ...

    def start(self) -> Awaitable[None] | None:
        """Load models, open connections. Raises EngineUnavailable with what to do."""
        ...

    def close(self) -> Awaitable[None] | None:
        """Free everything; called once, also after a failed start."""
        ...


@runtime_checkable
class BatchEngine(Engine, Protocol):
    """Executes a batch of requests of one op, possibly from many queries."""

    def execute(
        self, requests: Sequence[Request]
    ) -> Sequence[EngineResult | Exception] | Awaitable[Sequence[EngineResult | Exception]]:
        """One result (or the exception that befell it) per request, in order."""
        ...


@runtime_checkable
class LanguageModel(Engine, Protocol):
    """Generates text; calls run concurrently."""

    def prefill(self, call: Call) -> Awaitable[SequenceHandle]:
        """Compute `call.parts` after `call.prefix`, to be continued later."""
        ...

    def generate(self, call: Call) -> AsyncIterator[Delta]:
        """Stream the answer; the first Delta marks the end of prefilling. Closing it aborts."""
        ...

    def count_tokens(self, text: str) -> int:
        """Exact or estimated number of tokens; must be quick."""
        ...


# --- capabilities ---------------------------------------------------------------------------
#
# What an engine may have besides. It need not name the protocol: it has the capability if its class
# has the attribute, or `__init__` gives it. Hosts look once, before the engine is started.


@runtime_checkable
class Interruptible(Protocol):
    """Says whether cancelling `execute` stops the work; of others, it does where `execute` is
    async."""

    interruptible: bool


@runtime_checkable
class WarmsUp(Protocol):
    """Has more to prepare than `start` does, for a first use that takes no longer than later ones:
    a server warms it before it says that it is ready."""

    def warm(self) -> Awaitable[None] | None:
        """Do once, for nobody, what a first use would have to do. Raises TeolaError."""
        ...


@runtime_checkable
class KeepsOutputs(Protocol):
    """Says whether large outputs may stay where the engine is, and inputs come from there."""

    keeps: bool


@runtime_checkable
class TellsMemory(Protocol):
    """A language model that tells how much more it can take."""

    async def capacity(self) -> int | None:
        """Tokens of KV memory that are free now; None if it does not know."""
        ...


@runtime_checkable
class KeepsSequences(Protocol):
    """A language model that keeps something for the handles that its `prefill` gives."""

    def release(self, handle: SequenceHandle) -> None:
        """Nobody will continue it, and no call reads it: what was kept for it may go. Called on the
        event loop, so it must be quick; harmless if repeated, or if the instance that kept it is
        gone."""
        ...


@runtime_checkable
class Travels(Protocol):
    """Has attributes that are known after `start`, and needed where no running engine is at hand
    (such as a tokenizer): hosts copy those that `travels` names."""

    travels: Sequence[str]


@runtime_checkable
class StandsFor(Protocol):
    """Stands for an engine that runs elsewhere. near: one of the same kind here, not started, which
    has what travelled."""

    near: Engine


@runtime_checkable
class HasDimensions(Protocol):
    """Makes or stores vectors. dimensions: of one; 0 while it is not known."""

    dimensions: int


class TextVectors(Protocol):
    """The runtime's engine `embedding`, for an engine that finds texts by meaning. Texts become
    requests in that engine's queue, so they share batches with those of queries."""

    @property
    def configured(self) -> bool:
        """Whether somebody has said what that engine is."""
        ...

    @property
    def identity(self) -> str:
        """The same as long as the engine is configured alike: vectors of before are comparable."""
        ...

    def __call__(
        self,
        texts: Sequence[str],
        role: Literal["query", "document"],
        *,
        tenant: str,
        wanted: Callable[[], bool],
    ) -> Sequence[Any]:
        """A unit vector for each text, [dimensions] in float32. Waits for them, so it may not be
        called on an event loop. wanted: asked now and then; when it says no, QueryCancelled is
        raised. Raises TeolaError."""
        ...


@runtime_checkable
class FindsByMeaning(Protocol):
    """Finds more where texts can be embedded."""

    def find_by_meaning(self, vectors: TextVectors) -> None:
        """Called before `start`, of an engine in the runtime's own process."""
        ...


@runtime_checkable
class Tokenizes(Protocol):
    """Has a tokenizer at hand."""

    def encode(self, text: str) -> Sequence[int]:
        """Token ids of `text`, without special tokens; must be quick."""
        ...


@runtime_checkable
class EstimatesTokens(Protocol):
    """Says whether its `encode` only estimates, the tokenizer being elsewhere."""

    estimates: bool


class Keys(NamedTuple):
    """How long a prompt is, and what a prefix cache may find of it.

    tokens: of the whole prompt. blocks: a key for each of its full blocks, chained and salted: two
    prompts have equal keys as far as one server could use the same KV for both.
    """

    tokens: int
    blocks: tuple[Hashable, ...]


@runtime_checkable
class MakesKeys(Protocol):
    """A language model that tells what a prefix cache would find a call by. block_tokens: tokens of
    one block; certain once started."""

    @property
    def block_tokens(self) -> int: ...

    def keys(self, call: Call, *, complete: bool = True) -> Keys:
        """Keys of the call's whole prompt; not `complete`: of one that goes on after these parts.

        May take long, and may ask a server: to be called from worker threads only, from several
        at once if need be. Never fails: a prompt that cannot be tokenised gets keys of its text.
        """
        ...


class PrefixChange(NamedTuple):
    """What became of a prefix cache, in keys as in `Keys.blocks`.

    cleared: nothing of what was told before holds; `evicted` and `stored` come after that.
    """

    stored: tuple[Hashable, ...] = ()
    evicted: tuple[Hashable, ...] = ()
    cleared: bool = False


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """What a server that others run takes. account: equal for all that draw from one budget, such
    as one API key at one url. requests_per_minute, tokens_per_minute: None where nobody said."""

    account: str
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class LeftOfMinute(NamedTuple):
    """What a server says is left of its budgets, in how many seconds each is whole again, and how
    much that is then. None: it does not say. ago_s: how many seconds before that its question was
    sent."""

    requests: float | None
    tokens: float | None
    requests_reset_s: float = 0.0
    tokens_reset_s: float = 0.0
    ago_s: float = 0.0
    requests_limit: float | None = None
    tokens_limit: float | None = None


@runtime_checkable
class CallsServer(Protocol):
    """Calls a server that others run, and that takes only so much."""

    account_limits: AccountLimits

    def on_left(self, told: Callable[[LeftOfMinute], None]) -> None:
        """From now on `told` is called with what answers say is left. Called on the event loop."""
        ...


@runtime_checkable
class RetriesEmpty(Protocol):
    """A language model whose empty answers may be no answers."""

    retries_empty: bool
    """Whether one is asked for once more."""


@runtime_checkable
class TellsPrefixes(Protocol):
    """A language model that tells what its prefix cache keeps."""

    def prefix_changes(self) -> AsyncIterator[PrefixChange]:
        """What changes from now on, in order, until the engine is closed; starts with a clearing.

        Ends at once where nothing is told. What the cache held before may not be told.
        """
        ...


@runtime_checkable
class NamesModel(Protocol):
    """Says which model answers, for traces. model: None while it is not known."""

    @property
    def model(self) -> str | None: ...


@runtime_checkable
class ReadsPrompts(Protocol):
    """A language model that tells how it reads prompts. reading: None while it is not known."""

    @property
    def reading(self) -> Reading | None: ...


@runtime_checkable
class HasIdentity(Protocol):
    """Makes vectors. identity: changes whenever they would; "" while it is not known."""

    identity: str


@runtime_checkable
class DigestsWeights(Protocol):
    """Makes vectors. digests: whether its `identity` is a digest of all that makes them, so that
    engines of one identity make the same; names may lie. pooling: how a text's vector is made of
    its tokens' ("": unknown)."""

    digests: bool
    pooling: str


@runtime_checkable
class HasDatabase(Protocol):
    """Keeps its tables in PostgreSQL, where others may keep theirs."""

    def database(self) -> DatabaseServer:
        """A use of that server; called on an engine that was not started."""
        ...


@runtime_checkable
class Reindexes(Protocol):
    """A DocumentStore that can embed a collection anew."""

    async def reindexing(
        self, tenant: str, collection: str, embedder: EmbedderIdentity
    ) -> tuple[Reindexing, bool]:
        """Begin for `embedder`, with its `sentence`, or go on where somebody stopped; False if the
        collection is this embedder's already. Whoever calls closes it. Raises UnknownName, and
        InputError if another one is at it."""
        ...


def near(engine: Engine) -> Engine:
    """The engine, or what stands here for one that runs elsewhere and can be asked at once."""
    return engine.near if isinstance(engine, StandsFor) else engine


# --- documents ------------------------------------------------------------------------------


UNNAMED: Final = "documents"
"""Collection of documents that were given without one. Names are nothing in it: a document is what
its content is. In any other collection, a name is one document."""
METADATA_BYTES: Final = 16 * 2**10
"""Of one document, as JSON: it comes along with every hit."""
NAME_CHARACTERS: Final = 255
"""Of a collection, a tenant or a session; of a document that comes over HTTP."""


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Raise InputError if it is longer than `METADATA_BYTES`."""
    size = len(json.dumps(metadata, ensure_ascii=False, default=str).encode("utf-8", "replace"))
    if size > METADATA_BYTES:
        raise InputError(
            f"the metadata of a document has {size} bytes of JSON, more than the {METADATA_BYTES} "
            "that are kept; put what is long into its text"
        )


@dataclass(frozen=True, slots=True)
class Source:
    """A document as given: a file, or text with a name. metadata: at most `METADATA_BYTES`.
    origin, replace: see DocumentKey."""

    name: str
    path: Path | None = None
    text: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    origin: str | None = None
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document. `document` is the store's id, `name` what the user calls it."""

    document: str
    index: int
    text: str
    name: str
    place: ChunkPlace | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk (or web result) that was found. Higher scores are better.

    metadata: the document's, and the place of the chunk (`ChunkPlace`). lexical: how well its words
    fit the question, from 0, comparable within one search only; None where no search asked.
    """

    id: str
    document: str
    text: str
    score: float
    metadata: Mapping[str, Any] = field(default_factory=dict)
    lexical: float | None = None

    @property
    def citation(self) -> str:
        """The document, and where in it as far as that is known: `report.pdf, p. 12`."""
        return cited(self.document, self.metadata)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a query may search: its tenant's collection, some documents of it (None: all).

    number: the store's, of the collection that admitted the query's embedder; a search where the
    name has come to mean another one is refused.
    """

    tenant: str
    collection: str
    documents: tuple[str, ...] | None = None
    filters: Mapping[str, Any] = field(default_factory=dict)
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Splitting:
    """How documents are cut: sizes in tokens of the embedder, which may only be `estimated`."""

    chunk_size: int = 254
    overlap: int = 30
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Identity of a document's content, and its size in bytes. reading: names how the bytes are
    read, where that is not the same for all documents, such as by a file's suffix."""

    sha256: str
    size: int
    reading: str = ""


class Passages(list[str]):
    """The texts of a document's chunks. hidden: how many texts that a reader of the document does
    not see were left out of them. places: of each chunk; of none, if nothing is given.

    Raises InputError for another number of places than texts.
    """

    def __init__(
        self, texts: Iterable[str], hidden: int = 0, places: Iterable[ChunkPlace | None] = ()
    ) -> None:
        super().__init__(texts)
        self.hidden = hidden
        self.places = list(places) or [None] * len(self)
        if len(self.places) != len(self):
            raise InputError(f"{len(self)} texts have {len(self.places)} places: give one for each")


class Loader(Engine, Protocol):
    """Reads and splits documents."""

    def pipeline(self, splitting: Splitting) -> str:
        """What the chunks depend on, besides a document's bytes and the embedder's tokenizer."""
        ...

    def fingerprint(self, source: Source) -> Awaitable[Fingerprint] | Fingerprint:
        """Digest of the bytes. Raises DocumentError (missing, too large, not a document)."""
        ...

    def split(
        self, source: Source, splitting: Splitting, encode: Callable[[str], list[int]]
    ) -> Awaitable[Sequence[str]] | Sequence[str]:
        """The chunks' texts; as `Passages` if texts were left out or places are known. `encode`:
        the embedder's tokenizer. Raises DocumentError."""
        ...


class Embedder(BatchEngine, Protocol):
    """A batch engine for EMBEDDING that also tells how it reads text."""

    identity: str
    """Changes whenever its vectors would: model digest, dtype."""
    dimensions: int
    max_tokens: int

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without special tokens and without truncation."""
        ...


@dataclass(frozen=True, slots=True)
class DocumentKey:
    """What makes a version of a document, besides tenant and collection.

    reading: see Fingerprint. origin: path of the file that it comes from, None for a text. replace:
    whether it may take the place of a file of this name from elsewhere. These two make no other
    version.
    """

    sha256: str
    pipeline: str
    name: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    reading: str = ""
    origin: str | None = None
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """The answer to one DocumentKey.

    owned: the caller must index it, nobody else will. taken: it was stored just now, with the
    chunks of another document or version that has its content. replaces: another version of its
    name is there, and goes once this one is stored.
    """

    document: str
    owned: bool
    taken: bool = False
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """What tells embedders apart, as a collection remembers it of the one it was indexed with.

    identity: changes whenever its vectors would. digests: see DigestsWeights. sentence: its vector
    of one fixed sentence, [dimensions], float32; None while nobody has asked for it.
    """

    identity: str
    dimensions: int
    model: str = ""
    pooling: str = ""
    digests: bool = False
    sentence: Any = None


class EmbedderAdmission(NamedTuple):
    """What a store says to an embedder that wants to search a collection. collection: the store's
    number of it, None if there is none of that name. notice: what whoever searches has to know.
    unsure: `sentence` is needed to tell."""

    collection: int | None
    notice: str = ""
    unsure: bool = False


class DocumentStore(BatchEngine, Protocol):
    """A batch engine for INGESTION and SEARCHING that also keeps collections.

    The ingestion of one document is exactly once: see docs/architecture.md, collections. In a
    collection other than `UNNAMED`, a name is one document: what is stored under a name takes the
    place of what was there, in one transaction, unless that was asked for later.

    A query (`QueryContext.whole_id`) sees one version of a collection from its first search in it
    to its end, which `release` tells.
    """

    async def admit(
        self, tenant: str, collection: str, embedder: EmbedderIdentity, *, remember: bool = True
    ) -> EmbedderAdmission:
        """What the embedder has to know that wants to search the collection. remember: whether the
        collection's embedder may be written down, if it is not yet. Raises InputError, with what to
        do, if the collection was indexed with another one."""
        ...

    async def claim(
        self,
        tenant: str,
        collection: str,
        keys: Sequence[DocumentKey],
        owner: str,
        asked: float | None = None,
        embedder: EmbedderIdentity | None = None,
    ) -> list[Claim]:
        """For each key: the document that is there already, or a pending one owned by `owner`.

        Waits while another owner indexes one of them and takes over if that owner is gone. asked:
        when it was asked for, in seconds since 1970; None: now. embedder: of the documents' chunks,
        with `sentence`, which the collection remembers with its first document; None: that is not
        looked at. Raises DocumentError for a file whose name belongs to a file from elsewhere,
        unless the key may replace it, and InputError for two documents of one name, and for a
        collection of another embedder.
        """
        ...

    async def expect(self, owner: str, sizes: Mapping[str, int]) -> None:
        """Number of chunks of each owned document; a document becomes visible, in the transaction
        that stores its last chunk, once it has them all."""
        ...

    async def release(self, owner: str) -> None:
        """End of the owner's query, however it ended: what is still pending is deleted, and what
        only it could see."""
        ...

    def unpin(self, owner: str) -> None:
        """The owner's next search sees the newest version of its collection. Called on the event
        loop, so it must be quick; may be repeated."""
        ...

    async def collections(self, tenant: str) -> list[dict[str, Any]]:
        """`name`, `documents`, `chunks` of each collection."""
        ...

    async def documents(self, tenant: str, collection: str) -> list[dict[str, Any]]:
        """`id`, `name`, `chunks`, `created_at`, `metadata`, `origin` of each visible document, the
        oldest first."""
        ...

    async def delete(self, tenant: str, collection: str, documents: Sequence[str] | None) -> int:
        """Delete documents by id (None: the whole collection); the number of documents deleted.
        Queries that have searched before still see them."""
        ...


class ReindexingPart(Protocol):
    """Chunks that are embedded at once, for a `Reindexing`. size: how many, at most."""

    @property
    def size(self) -> int: ...


class Reindexing(Protocol):
    """A collection that is embedded anew, beside itself: what is searched stays until `finish`.

    documents, chunks: of the collection as it was found.
    """

    documents: int
    chunks: int

    async def batches(self) -> Sequence[Any]:
        """What is still to be done, as a ReindexingPart each."""
        ...

    async def texts(self, batch: Any) -> Sequence[Chunk]:
        """The chunks of a part that have no new vector yet."""
        ...

    async def store(self, batch: Any, texts: Sequence[Chunk], vectors: Sequence[Any]) -> None:
        """Keep the vectors of these chunks. May be repeated, and called side by side."""
        ...

    async def finish(self) -> bool:
        """Let the new set take the place of the old one, at once. False if documents changed
        meanwhile, or others are at work on the collection: look at `batches` again."""
        ...

    async def close(self) -> None:
        """Nobody works on it any more; what was stored is there for the next one. Repeatable."""
        ...


class DatabaseServer(Protocol):
    """A use of a PostgreSQL server, for who keeps tables of his own beside an engine's
    (`HasDatabase`)."""

    def start(self) -> str:
        """Make sure that it runs, again if it was lost; the DSN of a role that may make a schema.

        Blocks. Raises EngineUnavailable.
        """
        ...

    def close(self) -> None:
        """End this use. Blocks; may be repeated."""
        ...
