"""A local Hugging Face model in this process: the reference, and what a GPU without vLLM runs.

A thread runs it step by step (`model_loop`), as a StepServer plans: continuous batching, with KV
blocks that sequences with the same beginning share. Prefilling a prefix computes it and keeps its
blocks; the call that continues it finds them there, or computes them again if they had to go.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from teola.engine import (
    Call,
    Delta,
    EngineKind,
    EngineSpec,
    Keys,
    NextRead,
    PrefixChange,
    Reading,
    SequenceHandle,
)
from teola.errors import EngineError, EngineUnavailable, InputError, OutputError, UnknownName
from teola.extras import needs
from teola.graph.ops import DECODES, PREFILLS, DecodeParams
from teola.instance import StepServer, TokenSequence
from teola.kv import Access, BlockCache, looks_ahead, policies, token_keys
from teola.stops import Stops

from ..embedding.weights import quiet
from ..importing import importing
from . import local_keys
from .local_tokens import LocalTokens, load_tokenizer
from .model_loop import CacheListener, KeptPrefix, ModelJob, ModelLoop

if TYPE_CHECKING:
    from .paged_model import PagedModel

DTYPES: Final = ("auto", "float32", "bfloat16", "float16")
GIB: Final = 2**30
CPU_KV_GIB: Final = 2.0
GPU_KV_SHARE: Final = 0.5


class TransformersModel:
    """Any causal language model with full attention that transformers loads.

    model: a folder, or an id where hubs can be reached. dtype: "auto" is float32 on a CPU and
    bfloat16 on a GPU. device: None is a GPU if there is one. max_batch: prompt tokens of one
    step. kv_memory_gib: for KV blocks; None is 2 GiB on a CPU and half of what the model
    leaves free on a GPU. kv_blocks: no more of them than these. host_memory_gib: for blocks that
    were evicted there, in the memory of the host; they are copied back when they are found.
    eviction: policy for cached blocks, with its options. prefix_cache: find KV again that was
    computed before. cuda_graphs: on a GPU, replay steps as CUDA graphs, where the model
    allows it. chat: use the chat template, if there is one. seed: of sampling, along with the
    query's id and the prompt. Raises UnknownName (dtype, eviction), InputError (a number that is
    none).
    """

    def __init__(
        self,
        name: str = "llm",
        *,
        model: str | Path,
        dtype: str = "auto",
        device: str | None = None,
        max_batch: int = 2048,
        max_sequences: int = 32,
        block_tokens: int = 16,
        kv_memory_gib: float | None = None,
        kv_blocks: int | None = None,
        host_memory_gib: float = 0.0,
        eviction: str = policies.DEFAULT,
        eviction_options: Mapping[str, Any] | None = None,
        prefix_cache: bool = True,
        cuda_graphs: bool = True,
        threads: int | None = None,
        chat: bool = True,
        seed: int = 0,
    ) -> None:
        if dtype not in DTYPES:
            raise UnknownName("dtype", dtype, DTYPES, f"engine {name!r}")
        self._name, self._model, self._dtype, self._device = name, str(model), dtype, device
        self._max_batch, self._max_sequences = max_batch, max_sequences
        self._block_tokens, self._kv_memory_gib = block_tokens, kv_memory_gib
        if kv_blocks is not None and kv_blocks < 1:
            raise InputError(f"engine {name!r}: kv_blocks must be at least 1, got {kv_blocks!r}")
        self._kv_blocks = kv_blocks
        if not host_memory_gib >= 0:
            raise InputError(
                f"engine {name!r}: host_memory_gib must be a number from 0 on, "
                f"got {host_memory_gib!r}"
            )
        self._host_memory_gib = host_memory_gib
        self._policy = policies.make_policy(eviction, **(eviction_options or {}))
        self._prefix_cache, self._cuda_graphs = prefix_cache, cuda_graphs
        self._threads, self._chat, self._seed = threads, chat, seed
        self._window = 0
        self._ids = itertools.count()
        self._tokens: LocalTokens | None = None
        self._loop: ModelLoop | None = None

    @property
    def spec(self) -> EngineSpec:
        """`window` and `kv_blocks` are known after `start`, which may find that the chat template
        cannot be cut: then `prefix_reuse` is false."""
        return EngineSpec(
            name=self._name,
            kind=EngineKind.LLM,
            ops=PREFILLS | DECODES,
            max_batch=self._max_batch,
            max_sequences=self._max_sequences,
            prefix_reuse=self._prefix_cache
            and (self._tokens is None or self._tokens.prompts.splittable),
            keeps_prefixes=self._prefix_cache,
            block_tokens=self._block_tokens,
            kv_blocks=self.kv.blocks if self.kv else None,
            window=self._window or None,
            looks_ahead=looks_ahead(self._policy),
            description=f"{self._model} in this process, {self._dtype}",
        )

    @property
    def reading(self) -> Reading | None:
        """How prompts become ids; None before `start`."""
        return self._tokens.prompts.reading if self._tokens else None

    @property
    def kv(self) -> BlockCache | None:
        """The block cache, once started; to be read only."""
        return self._loop.server.cache if self._loop else None

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the model. Raises MissingExtra, EngineUnavailable (none that we can run)."""
        if self._loop is not None:
            return
        self._tokens = load_tokenizer(self._model, self._name, chat=self._chat)
        paged = self._load()
        cache = BlockCache(
            paged.blocks, self._block_tokens, self._policy, noting=True, host=paged.host_blocks
        )
        self._window = min(self._window, paged.blocks * self._block_tokens)
        server = StepServer(self._max_batch, self._max_sequences, cache)
        eos = paged.model.generation_config.eos_token_id
        ends = frozenset(eos if isinstance(eos, list) else [] if eos is None else [eos])
        self._loop = ModelLoop(self._name, paged, server, ends, self._threads)
        self._loop.start()

    def _load(self) -> PagedModel:
        with needs("local", f"engine {self._name!r}"), importing:
            from . import paged_model

        try:
            with quiet():
                model = paged_model.load(self._model, self._torch_dtype(), self._torch_device())
        except NotImplementedError as error:
            raise EngineUnavailable(
                f"{self._name}: {self._model} has {error}, which this engine cannot run; use vLLM",
                retryable=False,
            ) from None
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise EngineUnavailable(
                f"{self._name}: cannot load the model {self._model!r}: {reason}", retryable=False
            ) from error
        config = model.config.get_text_config()
        self._window = getattr(config, "max_position_embeddings", None) or 2**20
        most = self._max_sequences * self._window
        if self._kv_blocks is not None:
            most = min(most, self._kv_blocks * self._block_tokens)
        host = int(self._host_memory_gib * GIB)
        return paged_model.PagedModel(
            model, self._block_tokens, self._kv_bytes(), most, host, graphs=self._cuda_graphs
        )

    def _torch_device(self) -> str:
        import torch

        return self._device or ("cuda" if torch.cuda.is_available() else "cpu")

    def _torch_dtype(self) -> str:
        if self._dtype == "auto":
            return "float32" if self._torch_device() == "cpu" else "bfloat16"
        return self._dtype

    def _kv_bytes(self) -> int:
        if self._kv_memory_gib is not None:
            return int(self._kv_memory_gib * GIB)
        device = self._torch_device()
        if not device.startswith("cuda"):
            return int(CPU_KV_GIB * GIB)
        import torch

        return int(torch.cuda.mem_get_info(device)[0] * GPU_KV_SHARE)

    def close(self) -> None:
        """Free the model; calls that are not done fail."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop()

    # --- tokens -------------------------------------------------------------------------------

    def count_tokens(self, text: str) -> int:
        """Exact once started, an estimate before."""
        return self._tokens.count(text) if self._tokens else len(text) // 4 + 1

    @property
    def block_tokens(self) -> int:
        """Of one block of KV."""
        return self._block_tokens

    def keys(self, call: Call, *, complete: bool = True) -> Keys:
        """Those that `kv` finds blocks by, once started; keys of the text before."""
        tenant, size = call.context.tenant, self._block_tokens
        return local_keys.of_call(self._tokens, self._name, call, size, tenant, complete=complete)

    async def prefix_changes(self) -> AsyncIterator[PrefixChange]:
        """What `kv` finds, and what becomes of it until the engine is closed; nothing before it is
        started."""
        loop = self._loop
        if loop is None:
            return
        listener = CacheListener(asyncio.get_running_loop())
        loop.listen(listener)
        try:
            while (change := await listener.changes.get()) is not None:
                yield change
        finally:
            loop.leave(listener)

    # --- calls --------------------------------------------------------------------------------

    async def prefill(self, call: Call) -> SequenceHandle:
        """Compute the parts and keep their KV until the handle is released, or garbage.

        Raises EngineError: the prefix is longer than the model's window.
        """
        parts = call.all_parts
        ids = self._call_ids(call, complete=False)
        if len(ids) < self._block_tokens:  # nothing that could be found again
            return SequenceHandle(self._name, 0, parts, tuple(ids))
        job = self._job(call, ids, None)
        await self._finish(job)
        return SequenceHandle(self._name, 0, parts, job.ids, KeptPrefix(self._started(), job.id))

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """Stream the answer. Closing the generator frees its blocks before the next step.

        Raises EngineError (empty prompt, or longer than the window), OutputError (a schema).
        """
        if call.decode.schema is not None:
            raise OutputError(f"{self._name} cannot hold its output to a JSON schema; use vLLM")
        if not any(part.text for part in call.all_parts):
            raise EngineError(f"the prompt for {self._name} is empty")
        job = self._job(call, self._call_ids(call, complete=True), call.decode)
        loop, done = self._started(), False
        loop.submit(job)
        try:
            while not done:
                outcome = await job.queue.get()
                done = isinstance(outcome, EngineError) or outcome.finish_reason is not None
                if isinstance(outcome, EngineError):
                    raise outcome
                yield outcome
        finally:
            if not done:
                loop.abort(job)

    def release(self, handle: SequenceHandle) -> None:
        """Give up the KV that a handle keeps; may be repeated."""
        if isinstance(handle.state, KeptPrefix):
            handle.state.release()

    async def _finish(self, job: ModelJob) -> None:
        loop = self._started()
        loop.submit(job)
        try:
            outcome = await job.queue.get()
        except asyncio.CancelledError:
            loop.abort(job)
            raise
        if isinstance(outcome, EngineError):
            raise outcome

    def _started(self) -> ModelLoop:
        if self._loop is None:
            raise EngineError(f"{self._name} is not started")
        return self._loop

    def _call_ids(self, call: Call, *, complete: bool) -> list[int]:
        self._started()
        assert self._tokens is not None
        before = call.prefix
        if before is not None and before.token_ids and call.parts:
            rest = self._tokens.ids(call.parts, complete=complete, after=before.parts)
            return [*before.token_ids, *rest]
        return self._tokens.ids(call.all_parts, complete=complete)

    def _job(self, call: Call, ids: list[int], decode: DecodeParams | None) -> ModelJob:
        room = self._window - len(ids)
        if room < (decode is not None):
            raise EngineError(
                f"the prompt for {self._name} has {len(ids)} tokens and the window {self._window}; "
                "shorten the prompt"
            )
        tenant = call.context.tenant
        id, produced = next(self._ids), list[int]()

        def grown(tokens: int) -> tuple[bytes, ...]:
            return token_keys([*ids, *produced][:tokens], self._block_tokens, tenant)

        sequence = TokenSequence(
            id,
            prompt=len(ids),
            output=min(max(1, decode.max_tokens), room) if decode else 0,
            keys=token_keys(ids, self._block_tokens, tenant) if self._prefix_cache else (),
            grown=grown if self._prefix_cache else None,
            access=Access(call.category, 0, call.context.program, self._reads(call)),
            keep=decode is None,
        )
        assert self._tokens is not None
        text, stops = self._tokens.stream(ids), Stops(decode.stop if decode else ())
        seed, running = self._seed_of(call, ids), asyncio.get_running_loop()
        return ModelJob(
            id, tuple(ids), decode, sequence, text, stops, seed, running, produced=produced
        )

    def _reads(self, call: Call) -> tuple[NextRead, ...]:
        """`call.reads` in blocks."""
        assert self._tokens is not None
        found, parts = list[NextRead](), call.all_parts
        for until, seconds in call.reads:
            blocks = until
            if until <= len(parts):
                ids = self._tokens.ids(parts[:until], complete=False) if until else ()
                blocks = len(ids) // self._block_tokens
            found.append(NextRead(blocks, seconds))
        return tuple(found)

    def _seed_of(self, call: Call, ids: list[int]) -> int:
        """The same for every try of the same call, and for every call with the same seed."""
        own = call.context.query_id if call.decode.seed is None else call.decode.seed
        words = f"{self._seed} {own} {ids}".encode()
        return int.from_bytes(blake2b(words, digest_size=7).digest(), "big")
