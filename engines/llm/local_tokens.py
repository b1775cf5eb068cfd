"""The tokenizer of a model whose files are read in this process: prompts to ids, ids to text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from teola.engine import Call, TextPart
from teola.errors import EngineError, EngineUnavailable
from teola.extras import needs

from ..importing import importing
from .tokens import PromptTokens

CUT = "\ufffd"
"""What a decoder puts where a character's bytes are not all there."""
CUT_TOKENS: Final = 8
CONTEXT_TOKENS: Final = 4
LONGEST_CONTEXT: Final = 24
"""With more known tokens a stream drops all but CONTEXT_TOKENS: what is decoded again costs more
than to find out what those alone say."""

_WORDS: Final = "Two words."


class PromptIds(NamedTuple):
    """A call's prompt in ids: those of its prefix, and those of what follows."""

    prefix: tuple[int, ...]
    rest: tuple[int, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        return self.prefix + self.rest


class LocalTokens:
    """Tokenises and detokenises for one model. `load_tokenizer` makes it.

    chat: render the model's chat template, if it has one.
    """

    def __init__(self, tokenizer: Any, *, chat: bool = True) -> None:
        self._tokenizer = tokenizer
        self._plain, self._decode = _plain(tokenizer), _decoding(tokenizer)
        chats = chat and bool(tokenizer.chat_template)
        self.prompts = PromptTokens(
            self._encode, _bos(tokenizer), self._render if chats else None, self._plain
        )

    def ids(
        self, parts: Sequence[TextPart], *, complete: bool, after: Sequence[TextPart] = ()
    ) -> list[int]:
        """As `PromptTokens.ids`. Raises EngineError (a text that is not valid Unicode)."""
        try:
            return self.prompts.ids(parts, complete=complete, after=after)
        except (UnicodeError, TypeError):
            raise EngineError("the prompt is not valid Unicode: remove lone surrogates") from None

    def prompt(self, call: Call, engine: str, *, complete: bool) -> PromptIds:
        """The ids of a call to the engine of that name, whose handles know theirs already.

        Raises EngineError (a text that is not valid Unicode).
        """
        handle = call.prefix
        before = handle.parts if handle else ()
        known = handle.token_ids if handle and handle.engine == engine else ()
        prefix = known or tuple(self.ids(before, complete=False))
        return PromptIds(prefix, tuple(self.ids(call.parts, complete=complete, after=before)))

    def count(self, text: str) -> int:
        """The number of tokens of a text, without special ones."""
        return len(self._plain(text))

    def stream(self, prompt: Sequence[int]) -> TextStream:
        """What turns the tokens after `prompt` into text, as they come."""
        return TextStream(self._decode, prompt)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _render(self, messages: list[dict[str, str]]) -> str:
        from jinja2 import TemplateError

        try:
            return str(
                self._tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True
                )
            )
        except TemplateError as error:
            raise ValueError(str(error)) from None


class TextStream:
    """Text of tokens that come a few at a time; a character whose bytes are cut waits for the rest.

    A token's text can depend on the one before it, so some of what is known is decoded again.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], prompt: Sequence[int]) -> None:
        self._decode = decode
        self._ids = list(prompt[-CONTEXT_TOKENS:])
        self._told, self._known = len(self._ids), decode(self._ids)

    def feed(self, ids: Sequence[int], *, last: bool = False) -> str:
        """The text that `ids` complete, however they are grouped; last: nothing is held back."""
        text = "".join(map(self._step, ids))
        return text + self._flush() if last else text

    def _step(self, token: int) -> str:
        self._ids.append(token)
        held = len(self._ids) - self._told < CUT_TOKENS
        return self._flush(hold=held)

    def _flush(self, *, hold: bool = False) -> str:
        known, text = self._known, self._decode(self._ids)
        if hold and text.endswith(CUT):
            return ""
        self._told, self._known = len(self._ids), text
        if self._told > LONGEST_CONTEXT:
            del self._ids[:-CONTEXT_TOKENS]
            self._told, self._known = len(self._ids), self._decode(self._ids)
        return text[len(known) :]


def load_tokenizer(model: str, name: str, *, chat: bool = True) -> LocalTokens:
    """The tokenizer in a model's folder or of a model's id; takes seconds.

    Raises MissingExtra, EngineUnavailable.
    """
    with needs("local", f"engine {name!r}"), importing:
        from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        raise EngineUnavailable(
            f"{name}: no tokenizer of model {model!r}: {why}", retryable=False
        ) from error
    return LocalTokens(tokenizer, chat=chat)


def _bos(tokenizer: Any) -> tuple[int, ...]:
    """What the model wants before a text."""
    bare = tokenizer.encode(_WORDS, add_special_tokens=False)
    dressed = tokenizer.encode(_WORDS)
    start = next((i for i in range(len(dressed)) if dressed[i : i + len(bare)] == bare), 0)
    return tuple(dressed[:start])


def _plain(tokenizer: Any) -> Callable[[str], list[int]]:
    """Encodes a text in which special tokens are mere text, where the tokenizer can do that."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return lambda text: list(tokenizer.encode(text, add_special_tokens=False))
    plain = type(backend).from_str(backend.to_str())
    plain.encode_special_tokens = True
    return lambda text: list(plain.encode(text, add_special_tokens=False).ids)


def _decoding(tokenizer: Any) -> Callable[[Sequence[int]], str]:
    """Decodes ids without special tokens; by the tokenizer's backend, where transformers adds
    nothing to that but three times its time."""
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

    kind = type(tokenizer)
    usual = (
        getattr(kind, "_decode", None) is PreTrainedTokenizerFast._decode
        and kind.decode is PreTrainedTokenizerBase.decode
        and not tokenizer.clean_up_tokenization_spaces
    )
    if usual:
        return partial(tokenizer.backend_tokenizer.decode, skip_special_tokens=True)
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True))
