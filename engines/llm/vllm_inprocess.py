"""A vLLM that belongs to this process alone, with partial prefilling as vLLM itself knows it.

Long because one sequence passes through all of it.

The engine runs in a process of its own (`vllm_worker`), perhaps in another environment, and takes
prompts as token ids. A partial prefilling opens a *session*: a sequence to which the rest of the
prompt is added when it is known, so that no block is computed twice, whatever its length.

    prefill(instruction)             open   ids[:40]      one token, dropped; the session is idle
    prefill(context)   after it      more   ids[40:900]   one token, dropped
    generate(question) after it      more   ids[900:]     first token = prefilled, then it decodes

An idle session holds a slot and memory that others may need (`vllm_sessions`). Without one, a
partial prefilling is *prefix warming*: its ids are sent as a prompt of their own, and those who
come later send everything and find whole blocks in vLLM's prefix cache. The tokens are the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from teola.engine import (
    Call,
    Delta,
    EngineKind,
    EngineSpec,
    Keys,
    PrefixChange,
    QueryContext,
    Reading,
    SequenceHandle,
    Usage,
)
from teola.errors import EngineError, EngineUnavailable, InputError
from teola.graph.ops import DECODES, PREFILLS, DecodeParams
from teola.kv import follow, root

from . import block_keys, local_keys, local_tokens, vllm_process
from .local_tokens import LocalTokens, PromptIds
from .vllm_events import REPORT_ALL, StoredBlocks
from .vllm_feed import PrivateFeed
from .vllm_process import VLLMProcess, WorkerEvent
from .vllm_sessions import Session, Sessions

ONE_TOKEN: Final = DecodeParams(max_tokens=1, ignore_eos=True)
"""vLLM computes a prompt only for the sake of an output."""


_T = TypeVar("_T")


class VLLMInProcess:
    """`LanguageModel` on a vLLM of our own, with native partial prefilling.

    model: folder or id. python: of an environment that has vLLM (None: this one, or .venv-vllm).
    dtype, max_model_len, max_num_seqs, max_num_batched_tokens, block_tokens: vLLM's; small batches
    let a cancelled prompt go soon. kv_gib: GiB of KV cache on a CPU, a whole number. cores: which
    cores of a CPU compute, such as "0" or "0-3". max_sessions: sessions open at once (None: a
    quarter of max_num_seqs; 0: warm prefixes only). session_idle_s: how long one waits to be
    continued. chat: use the model's chat template, if it has one. load_timeout_s: for loading the
    model. timeout_s: longest silence during a call. salt_key: secret that keeps tenants' prefix
    caches apart. kv_events: listen to what vLLM's prefix cache keeps. options: further arguments
    of vLLM's AsyncEngineArgs. Raises InputError.
    """

    def __init__(
        self,
        name: str = "llm",
        *,
        model: str,
        python: str | None = None,
        dtype: str = "auto",
        max_model_len: int | None = None,
        max_num_seqs: int = 16,
        max_num_batched_tokens: int = 512,
        block_tokens: int = 32,
        max_batch: int = 8192,
        kv_gib: int = 2,
        cores: str | None = None,
        max_sessions: int | None = None,
        session_idle_s: float = 10.0,
        chat: bool = True,
        load_timeout_s: float = 300.0,
        timeout_s: float = 120.0,
        salt_key: str = "",
        kv_events: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if max_num_seqs < 1:
            raise InputError(f"engine {name!r}: max_num_seqs must be 1 or more")
        sessions = max(1, max_num_seqs // 4) if max_sessions is None else max_sessions
        if not 0 <= sessions <= max_num_seqs:
            raise InputError(
                f"engine {name!r}: max_sessions must be within 0..{max_num_seqs} (max_num_seqs), "
                "because every open session holds a slot"
            )
        self._name, self._model, self._python, self._chat = name, model, python, chat
        self._max_batch, self._max_num_seqs, self._block_tokens = (
            max_batch,
            max_num_seqs,
            block_tokens,
        )
        self._load_timeout_s, self._timeout_s, self._salt_key = load_timeout_s, timeout_s, salt_key
        self._environment = vllm_process.environment(model, kv_gib, cores)
        self._arguments = {
            "model": model,
            "dtype": dtype,
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "block_size": block_tokens,
            "enable_prefix_caching": True,
            "enforce_eager": True,
            "scheduling_policy": "priority",
            **({} if max_model_len is None else {"max_model_len": max_model_len}),
            **(options or {}),
        }
        self.sessions = Sessions(sessions, session_idle_s)
        self._kv_events = kv_events and "kv_events_config" not in self._arguments
        self._feed: PrivateFeed | None = None
        self._kept: StoredBlocks | None = None
        self._tokens: LocalTokens | None = None
        self._process: VLLMProcess | None = None
        self._starting: asyncio.Task[VLLMProcess] | None = None

    @property
    def spec(self) -> EngineSpec:
        """`window` is known after `start`, and `prefix_reuse` certain: a chat template might not be
        cut."""
        return EngineSpec(
            name=self._name,
            kind=EngineKind.LLM,
            ops=PREFILLS | DECODES,
            max_batch=self._max_batch,
            max_sequences=self._max_num_seqs,
            prefix_reuse=self._tokens is None or self._tokens.prompts.splittable,
            keeps_prefixes=bool(self._arguments["enable_prefix_caching"]),
            block_tokens=self._block_tokens,
            window=self._process.limits.max_model_len if self._process else None,
            description=f"{Path(self._model).name} on a vLLM of its own",
        )

    @property
    def reading(self) -> Reading | None:
        """How prompts become ids; None before `start`."""
        return self._tokens.prompts.reading if self._tokens else None

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load tokenizer and model, within `load_timeout_s`. Raises EngineUnavailable."""
        self._tokens = await asyncio.to_thread(
            local_tokens.load_tokenizer, self._model, self._name, chat=self._chat
        )
        if self._kv_events:
            self._feed = PrivateFeed()
            self._arguments["kv_events_config"] = self._feed.config
        await self._running()

    async def close(self) -> None:
        """End vLLM's processes; what is still open fails."""
        self._tokens = None
        if self._starting is not None:
            self._starting.cancel()
            with suppress(asyncio.CancelledError, EngineUnavailable):
                await self._starting
        self.sessions.close_all()
        if self._process is not None:
            await self._process.stop()
        if self._feed is not None:
            self._feed.close()

    async def _running(self) -> VLLMProcess:
        """The worker, started (again) if it is not there; all who wait share one start."""
        if self._tokens is None:
            raise EngineError(f"{self._name}: not started")
        if self._process is not None and self._process.dead is None:
            return self._process
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(self._started)
        return await asyncio.shield(self._starting)

    async def _start(self) -> VLLMProcess:
        if self._process is not None:
            await self._process.stop()
        python = vllm_process.find_python(self._name, self._python)
        self._process = await VLLMProcess.start(
            self._name, python, self._environment, self._arguments, self._load_timeout_s
        )
        return self._process

    def _started(self, task: asyncio.Task[VLLMProcess]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # whoever waited has been told

    # --- calls --------------------------------------------------------------------------------

    def count_tokens(self, text: str) -> int:
        """Exact, once started."""
        return self._tokens.count(text) if self._tokens else len(text) // 4 + 1

    @property
    def block_tokens(self) -> int:
        """Of one block of vLLM's cache."""
        return self._block_tokens

    def keys(self, call: Call, *, complete: bool = True) -> Keys:
        """By the prompt's ids, once started; by its text before."""
        salt, size = self._salt(call), self._block_tokens
        return local_keys.of_call(self._tokens, self._name, call, size, salt, complete=complete)

    async def prefix_changes(self) -> AsyncIterator[PrefixChange]:
        """What vLLM's cache keeps, across restarts."""
        if self._feed is None:
            return
        self._kept = StoredBlocks(self._block_tokens)
        async with aclosing(self._feed.changes(self._kept)) as changes:
            async for change in changes:
                yield change

    async def prefill(self, call: Call) -> SequenceHandle:
        """Compute the prompt so far, in a session if one may be opened. Raises EngineError."""
        process = await self._within(call.context, self._running(), self._load_timeout_s)
        prompt = self._prompt(call, process, complete=False)
        session = self._continued(call, prompt, process)
        lease = None
        if session is not None or (prompt.ids and self.sessions.available):
            lease = await self._extend(call, prompt, process, session)
        elif len(prompt.ids) >= self._block_tokens:
            with self.sessions.running(process, len(prompt.ids) + 1):
                async for _ in self._stream(call, "call", process, process.open(), prompt.ids):
                    pass
        instance = call.prefix.instance if call.prefix else 0
        return SequenceHandle(self._name, instance, call.all_parts, prompt.ids, lease)

    async def _extend(
        self, call: Call, prompt: PromptIds, process: VLLMProcess, session: Session | None
    ) -> object:
        """Add to a session, or open one; its lease."""
        op, ids = ("more", prompt.rest) if session else ("open", prompt.ids)
        session = session or Session(process, process.open(), self._salt(call))
        with self.sessions.running(process, len(prompt.ids) + 1, opening=True):
            async for _ in self._stream(call, op, process, session.id, ids, last=False):
                pass
            session.ids = prompt.ids
        return self.sessions.park(session)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """Stream the answer, the first Delta with the first token. Closing the generator frees the
        sequence. Raises EngineError, EngineUnavailable."""
        process = await self._within(call.context, self._running(), self._load_timeout_s)
        assert self._tokens is not None
        prompt = self._prompt(call, process, complete=True)
        session = self._continued(call, prompt, process)
        op, ids = ("more", prompt.rest) if session else ("call", prompt.ids)
        id = session.id if session else process.open()
        text = self._tokens.stream(prompt.ids)
        cached, written = len(prompt.prefix) if session else 0, 0
        async with AsyncExitStack() as stack:
            needed = len(prompt.ids) + call.decode.max_tokens
            stack.enter_context(self.sessions.running(process, needed))
            stream = self._stream(call, op, process, id, ids, decode=call.decode)
            await stack.enter_async_context(aclosing(stream))
            async for event in stream:
                finish = event["finish"]
                piece = text.feed(event["ids"], last=finish is not None)
                first, written = written == 0, written + len(event["ids"])
                cached = max(cached, event["cached"])
                piece = event["text"] if call.decode.stop else piece
                if finish is not None:
                    yield Delta(piece, finish, Usage(len(prompt.ids), written, cached))
                elif piece or first:
                    yield Delta(piece)

    def release(self, handle: SequenceHandle) -> None:
        """The handle will not be continued: close its session. So does dropping the last copy."""
        self.sessions.release(handle.state)

    async def capacity(self) -> int | None:
        """Tokens of KV free for new sequences, as of a tenth of a second ago; None: not running.

        What idle sessions hold is free: they give way.
        """
        process = self._process
        if process is None or process.dead is not None:
            return None
        total = process.limits.kv_tokens
        free = int(total * (1 - process.kv_usage)) + self.sessions.idle_tokens
        return min(total, free)

    # --- requests -----------------------------------------------------------------------------

    def _prompt(self, call: Call, process: VLLMProcess, *, complete: bool) -> PromptIds:
        """The prompt's ids. Raises EngineError for a prompt that the model cannot take."""
        if self._tokens is None:
            raise EngineError(f"{self._name}: not started")
        if complete and not any(part.text for part in call.all_parts):
            raise EngineError(f"{self._name}: the prompt is empty: give it a text")
        prompt = self._tokens.prompt(call, self._name, complete=complete)
        limit, output = process.limits.max_model_len, call.decode.max_tokens if complete else 1
        if len(prompt.ids) + output > limit:
            raise EngineError(
                f"{self._name}: the prompt and its answer ({len(prompt.ids)} and {output}) exceed "
                f"the context of {limit} tokens of {self._model!r}: use fewer or smaller chunks, "
                "or a smaller max_tokens"
            )
        return prompt

    def _continued(self, call: Call, prompt: PromptIds, process: VLLMProcess) -> Session | None:
        """The session that the call may go on with; one that it cannot use is closed.

        vLLM's sessions know no stop strings, no schema, and no chunk without tokens.
        """
        session = self.sessions.take(call.prefix.state) if call.prefix else None
        if session is None:
            return None
        fits = (session.process, session.salt, session.ids) == (
            process,
            self._salt(call),
            prompt.prefix,
        )
        if fits and prompt.rest and not call.decode.stop and not _held(call.decode):
            return session
        process.close(session.id, abort=True)
        return None

    def _salt(self, call: Call) -> str:
        return block_keys.tenant_salt(self._salt_key, call.context)

    async def _stream(
        self,
        call: Call,
        op: str,
        process: VLLMProcess,
        id: int,
        ids: tuple[int, ...],
        *,
        decode: DecodeParams = ONE_TOKEN,
        last: bool = True,
    ) -> AsyncGenerator[WorkerEvent, None]:
        """Send ids and yield the events up to `finish`; not `last`: the session stays open then.

        Raises EngineError, EngineUnavailable.
        """
        done = False
        try:
            process.send(
                op,
                id,
                ids=ids,
                last=last,
                salt=self._salt(call),
                priority=-call.priority,
                max_tokens=decode.max_tokens,
                temperature=decode.temperature,
                ignore_eos=decode.ignore_eos,
                stop=decode.stop,
                schema=decode.schema,
                choices=decode.choices,
                pattern=decode.pattern,
                seed=decode.seed,
                extra=self._extra(call, ids) if op != "more" else {},
            )
            while not done:
                event = await self._within(call.context, process.receive(id), self._timeout_s)
                done = event["finish"] is not None
                if event["finish"] not in (None, "stop", "length"):
                    raise EngineError(
                        f"{self._name}: vLLM ended the call: {event['finish']}", retryable=True
                    )
                yield event
        finally:
            if last or not done:
                process.close(id, abort=not done)

    def _extra(self, call: Call, ids: Sequence[int]) -> Mapping[str, str]:
        """Asks for a report of what the prompt finds, if who listens may not know of it."""
        size = self._block_tokens
        first = follow(root(self._salt(call)), ids[:size], size)
        missed = self._kept is not None and first and self._kept.missed(first[0])
        return REPORT_ALL if missed else {}

    async def _within(self, context: QueryContext, wait: Awaitable[_T], silence_s: float) -> _T:
        """Awaits the next sign of life, and says so if it does not come in time."""
        left = context.deadline - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, min(left, silence_s))):
                return await wait
        except TimeoutError:
            pass
        if left < silence_s:
            raise EngineError(f"{self._name}: no answer before the query's deadline")
        raise EngineError(f"{self._name}: vLLM was silent for {silence_s:g} s", retryable=True)


def _held(decode: DecodeParams) -> bool:
    """Whether the output is held to a form, which vLLM's sessions cannot."""
    return bool(decode.schema or decode.choices or decode.pattern)
