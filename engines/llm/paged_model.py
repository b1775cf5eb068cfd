"""A Hugging Face causal language model whose KV lies in numbered blocks.

The model's code is as it comes: it hands each layer's new keys and values to what it takes for its
cache and attends to what that returns. Here this is a `PoolView`: it writes them to their slots in
the pool and returns what the batch's sequences have there, gathered and padded. Batches are padded
on the left, so that the last position is everybody's last token.

On a GPU nothing is gathered or padded, where the model allows it: a kernel of our own attends to
the blocks (`packed_steps`), and steps are replayed as CUDA graphs (`step_graphs`).

Importing this module imports torch and transformers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.cache_utils import Cache

from teola.kv import Swap

from .packed_steps import PackedModel
from .pool_view import ATTENTION, PoolView
from .step_graphs import StepGraphs

log = logging.getLogger(__name__)

TRIED_TOKENS = 8
TRIED_ROWS = 3
FAR = 0.05
"""By so much of their size logits may differ that are computed in another order, in 16 bits."""
PADDING_LIMIT = 1.25
CPU_BATCH_TOKENS = 512
"""A larger prefill batch only pads on a CPU: its cores are busy with one sequence already."""


class BatchRow(NamedTuple):
    """What to compute of one sequence: `ids` after `past` tokens; `blocks` hold all of it."""

    ids: Sequence[int]
    past: int
    blocks: Sequence[int]

    @property
    def length(self) -> int:
        return self.past + len(self.ids)


def load(model: str, dtype: str, device: str) -> Any:
    """The model, ready to be run. Raises OSError or ValueError: not there, or not one of these;
    NotImplementedError: its attention needs more than one KV per position."""
    config = AutoConfig.from_pretrained(model)
    layers = set(getattr(config.get_text_config(), "layer_types", None) or ()) - {"full_attention"}
    if layers:
        raise NotImplementedError(f"layers of type {', '.join(sorted(layers))}")
    loaded = AutoModelForCausalLM.from_pretrained(
        model, dtype=getattr(torch, dtype), attn_implementation="sdpa"
    )
    return cast("Any", loaded).to(device).eval()


class PagedModel:
    """`model` with a pool of KV blocks. memory: bytes for the pool; max_tokens: no more than these.
    host_memory: bytes for the blocks of a tier below, in the memory of the host. graphs: on a GPU,
    replay steps as CUDA graphs.

    Not thread-safe.
    """

    def __init__(
        self,
        model: Any,
        block_tokens: int,
        memory: int,
        max_tokens: int,
        host_memory: int = 0,
        *,
        graphs: bool = True,
    ) -> None:
        self.model, self.block_tokens = model, block_tokens
        self.device: torch.device = model.device
        self._on_cpu = self.device.type == "cpu"
        shapes = self._probe()
        token_bytes = sum(k.numel() + v.numel() for k, v in shapes) * model.dtype.itemsize
        self.blocks = max(
            1, min(memory // (token_bytes * block_tokens), max_tokens // block_tokens)
        )
        on_gpu = self.device.type == "cuda"
        # What only pads a graph is written to one more block, which nobody has.
        slots = (self.blocks + on_gpu) * block_tokens
        # Zeros, not empty: masked slots are multiplied by 0, which does not make up for a NaN.
        self.pool = [
            tuple(torch.zeros(slots, *x.shape, dtype=x.dtype, device=self.device) for x in pair)
            for pair in shapes
        ]
        self.host_blocks = host_memory // (token_bytes * block_tokens)
        self.host = [
            tuple(self._below(x.shape, x.dtype) for x in pair)
            for pair in shapes
            if self.host_blocks
        ]

        self._packed: PackedModel | None = None
        self._graphs: StepGraphs | None = None
        if on_gpu and block_tokens > 1:
            self._try_kernel(self.blocks, graphs)

    def _below(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        size = self.host_blocks, self.block_tokens, *shape
        return torch.zeros(size, dtype=dtype, pin_memory=not self._on_cpu)

    @property
    def asynchronous(self) -> bool:
        """Whether `forward` returns before logits are there: who reads them waits."""
        return not self._on_cpu

    @torch.inference_mode()
    def swap(self, swaps: Sequence[Swap]) -> None:
        """Copy blocks between the pool and the host, before what needs them is computed."""
        for back, down in swaps:
            slots, blocks = ([pair[k] for pair in back] for k in (0, 1))
            leaving, into = ([pair[k] for pair in down] for k in (0, 1))
            for pools, tiers in zip(self.pool, self.host, strict=True):
                for pool, tier in zip(pools, tiers, strict=True):
                    near = pool.view(-1, *tier.shape[1:])
                    coming = tier[slots].to(pool.device)
                    tier[into] = near[leaving].to(tier.device)
                    near[blocks] = coming

    @torch.inference_mode()
    def _probe(self) -> list[tuple[Tensor, Tensor]]:
        """One token's keys and values of each layer, (heads, size), as the model makes them."""
        probe = _Probe()
        ids = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        self.model(input_ids=ids, past_key_values=probe, use_cache=True)
        return probe.seen

    @torch.inference_mode()
    def _try_kernel(self, spare: int, graphs: bool) -> None:
        """Take packed steps and graphs from now on, if they give what other steps give: some
        models' attention has more to it, and some machines cannot compile a kernel. Whatever goes
        wrong, there are those other steps."""
        count = min(TRIED_TOKENS, self.block_tokens - 1)  # no sequence has block 0 as yet
        prompt, token = BatchRow(range(count), 0, [0]), BatchRow([count], count, [0])
        wanted = torch.cat([self._batch([prompt]), *[self._batch([token])] * TRIED_ROWS])
        try:
            from . import paged_attention
        except ImportError as error:
            log.warning("no kernel for attention: %s", error)
            return

        def kernel() -> PackedModel:
            return PackedModel(self.model, self.pool, self.block_tokens, paged_attention.attend)

        self._packed = _tried("kernel for this model's attention", kernel, prompt, token, wanted)
        if self._packed is None:
            self.model.set_attn_implementation("sdpa")
        elif graphs:
            recorded = partial(StepGraphs, self._packed, spare=spare)
            self._graphs = _tried("graphs of this model's steps", recorded, prompt, token, wanted)

    @torch.inference_mode()
    def forward(self, rows: Sequence[BatchRow]) -> Tensor:
        """Logits after the last token of each row, (rows, vocabulary), float32, until the next
        call; their KV is in their blocks. Rows of about equal length are computed together."""
        if self._packed is not None:
            logits = None if self._graphs is None else self._graphs.logits(rows)
            return self._packed.logits(rows) if logits is None else logits
        groups = list[list[int]]()
        order = sorted(range(len(rows)), key=lambda i: (len(rows[i].ids), rows[i].length))
        while order:
            group = [order.pop()]
            longest = len(rows[group[0]].ids)
            limit = max(1, CPU_BATCH_TOKENS // longest) if self._on_cpu else len(rows)
            while order and len(group) < limit:
                if longest > PADDING_LIMIT * len(rows[order[-1]].ids):
                    break
                group.append(order.pop())
            groups.append(sorted(group))
        if len(groups) == 1:
            return self._batch(rows)
        logits = torch.cat([self._batch([rows[i] for i in group]) for group in groups])
        places = torch.tensor([i for group in groups for i in group])
        return logits[places.argsort().to(logits.device)]

    def _batch(self, rows: Sequence[BatchRow]) -> Tensor:
        width = max(len(row.ids) for row in rows)
        pads = [width - len(row.ids) for row in rows]
        ids = torch.tensor([[0] * pad + list(row.ids) for row, pad in zip(rows, pads, strict=True)])
        positions = torch.tensor(
            [
                [0] * pad + list(range(row.past, row.length))
                for row, pad in zip(rows, pads, strict=True)
            ]
        )
        view = _view(self, rows, width, any(pads))
        with sdpa_kernel(ATTENTION):
            output = self.model(
                input_ids=ids.to(self.device),
                position_ids=positions.to(self.device),
                attention_mask=_mask(view, rows, positions),
                past_key_values=view,
                use_cache=True,
                logits_to_keep=1,
            )
        return cast("Tensor", output.logits[:, -1].float())


W = TypeVar("W", PackedModel, StepGraphs)


def _tried(
    name: str, make: Callable[[], W], prompt: BatchRow, token: BatchRow, wanted: Tensor
) -> W | None:
    """A way to compute steps, if it gives `wanted`: the logits of a prompt, and of the token behind
    it some times over, computed one after the other and then in one step."""
    tokens: list[BatchRow] = [token] * TRIED_ROWS
    reason = "other logits"
    steps = ([prompt], wanted[:1]), (tokens, wanted[1:]), ([prompt, *tokens], wanted)
    try:
        way = make()
        if all(_near(way.logits(rows), near) for rows, near in steps):
            return way
    except Exception as error:  # noqa: BLE001 - a model's code and a compiler fail in many ways
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    log.warning("no %s: %s", name, reason)
    return None


def _near(found: Tensor | None, wanted: Tensor) -> bool:
    return found is not None and bool((found - wanted).norm() <= FAR * wanted.norm())


def _view(paged: PagedModel, rows: Sequence[BatchRow], width: int, padded: bool) -> PoolView:
    """The pool for a batch whose prompts are padded to `width` tokens."""
    size, device = paged.block_tokens, paged.device
    slots = [
        row.blocks[at // size] * size + at % size
        for row in rows
        for at in range(row.past, row.length)
    ]
    longest = max(row.length for row in rows)
    used = -(-longest // size)
    tables = [[*row.blocks[:used], *[0] * (used - len(row.blocks))] for row in rows]
    first, real = tables[0][0], None
    if padded:
        starts = torch.tensor([[width - len(row.ids)] for row in rows])
        real = (torch.arange(width) >= starts).to(device)
    return PoolView(
        paged.pool,
        size,
        longest,
        torch.tensor(slots, device=device),
        torch.tensor(tables, device=device),
        real=real,
        alone=not padded and not any(row.past for row in rows),
        first=first if tables == [list(range(first, first + used))] else None,
    )


def _mask(view: PoolView, rows: Sequence[BatchRow], positions: Tensor) -> Tensor | None:
    """Which keys each token sees, (rows, 1, width, longest); None: all that came before."""
    single = positions.shape[1] == 1 and min(row.length for row in rows) == view.longest
    if view.alone or single:
        return None
    keys = torch.arange(view.longest, device=view.slots.device)
    return keys <= positions.to(view.slots.device)[:, None, :, None]


class _Probe(Cache):
    """Notes the shapes of what each layer would keep."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.seen: list[tuple[Tensor, Tensor]] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        self.seen.append((key_states[0, :, 0], value_states[0, :, 0]))
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return query_length, 0
