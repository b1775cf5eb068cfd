"""What comes over the wire from an OpenAI-compatible server: stream events, errors.

Stream events are read here and not by the SDK: its line reader hides whether "[DONE]" came, and
building a model object for each token costs more than everything else that Teola does with it.
No message repeats what a server says in words, because servers quote prompts and messages come into
logs; whoever asked finds it in `said`. Long because it is one reading of what servers write.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final

from teola.engine import Usage
from teola.errors import EngineAway, EngineBusy, EngineError, EngineUnavailable, TeolaError

from .budget_headers import retry_after
from .calls import CallPiece, pieces_of
from .error_fields import ErrorFields, sentence, word

DONE: Final = "[DONE]"
ALIVE: Final = ""
"""In the place of a comment, by which a server says that it is still at work."""
MAX_LINE: Final = 1 << 20
"""Bytes of one stream event; more is no event."""
MAX_TOKENS: Final = 1 << 40
"""Of one call; a server that counts more has miscounted."""

_TOO_LONG: Final = re.compile(
    r"context.{0,10}(?:length|size)|max_model_len|longer than the max|prompt is too long|"
    r"input token count|`inputs` tokens \+",
    re.IGNORECASE,
)
"""OpenAI and its like, llama.cpp, vLLM, Anthropic, Gemini, TGI."""
_NO_TOOLS: Final = (400, 404, 422, 500, 501)
_SCHEMA: Final = re.compile(
    r"response[_ ]format|json_schema|structured output|guided_json|grammar|field `value`",
    re.IGNORECASE,
)
_TOOLS: Final = re.compile(r"\btools?\b|tool[ _-]c(?:all|hoice)", re.IGNORECASE)
_KNOWS_NONE: Final = re.compile(
    r"(?:not|n't|no) (?:currently )?(?:support|allow|know|have|permit)\w*|unsupported|requires --|"
    r"unrecognized|unknown|unexpected|not permitted|not implemented|no endpoints",
    re.IGNORECASE,
)
"""What servers say of `tools` that know none, or whose model knows none."""
_ONE_OF_THEM: Final = re.compile(
    r"tools?(?:\[\d+\]|\.\d+)|schema|description|\bname\b", re.IGNORECASE
)
"""What they say of one tool that is not to their liking."""
REFUSED: Final = "refusal"
_LENGTH: Final = frozenset({"length", "max_tokens", "max_output_tokens"})
_GAVE_UP: Final = frozenset({"abort", "error", "cancelled", "canceled"})
"""Why a text may end, by what servers and gateways write; whatever else they write is its end."""
_USED_UP: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""What servers call it that a key is worth nothing until somebody pays."""
_UNPAID: Final = re.compile(r"credit balance is too low|insufficient (?:credits|balance)", re.I)
_WRONG_KEY: Final = re.compile(
    r"api key not valid|invalid api key|incorrect api key", re.IGNORECASE
)
_NO_MODEL: Final = frozenset({"model_not_found", "invalid_model"})
_NOT_A_MODEL: Final = re.compile(
    r"is not a valid model|model .{0,200} does not exist", re.IGNORECASE
)
_LIMIT: Final = re.compile(
    r"(?:(?:context|model) length (?:is|of)(?: only)?|context (?:length|size) \(|> |<= |"
    r"tokens allowed \(|model with) ?(\d+)",
    re.IGNORECASE,
)
_UNSUPPORTED: Final = re.compile(
    r"(?:unsupported|unrecognized|unknown|unexpected|not (?:supported|permitted))"
    r".{0,40}?['\"`](\w{2,40})['\"`]"
    r"|['\"`](\w{2,40})['\"`].{0,40}(?:not (?:supported|permitted)|does not support|unsupported)",
    re.IGNORECASE,
)
"""What servers say of a field that they do not take."""


class NoChatTemplate(EngineError):
    """The model cannot chat; it may still complete texts."""


class NoTools(EngineError):
    """The server does not take these tools; its model may still write lists of calls.

    any_tools: the server says that it, or its model, takes none at all. instead: the error that the
    answer stands for where no tools were sent.
    """

    def __init__(self, message: str, *, any_tools: bool, instead: EngineError) -> None:
        super().__init__(message)
        self.any_tools, self.instead = any_tools, instead


class NoSchema(EngineError):
    """The server does not hold answers to this schema; its model may still follow it. instead: the
    error that the answer stands for where no schema was sent."""

    def __init__(self, message: str, instead: EngineError) -> None:
        super().__init__(message)
        self.instead = instead


class TooLong(EngineError):
    """What was sent has more tokens than the model takes."""


class BadRequest(EngineError):
    """The server takes no such request, whatever it is about."""


class UnknownField(BadRequest):
    """The server, or this model of it, does not take a field of requests."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """One stream event: new text, why the text ends, token counts, more of tool calls; each may be
    missing. The text of a refusal is text, and `finish_reason` then REFUSED. thinks: it tells what
    the model thinks, which is no part of the answer."""

    text: str = ""
    finish_reason: str | None = None
    usage: Usage | None = None
    calls: tuple[CallPiece, ...] = ()
    thinks: bool = False


async def events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """The `data` fields of server-sent events, each on one line, as these servers write them; for a
    comment, ALIVE. The last line may lack its end.

    Lines end with a line feed only: other line separators may stand unescaped inside JSON. Older
    llama.cpp writes an error as a field of its own.
    Raises ValueError for what is not UTF-8 or has no lines.
    """
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith((b"data:", b"error:")):
                yield _field(line)
            elif line.startswith(b":"):
                yield ALIVE
        if len(rest) > MAX_LINE:
            raise ValueError("a line without end")
    if rest.startswith((b"data:", b"error:")) and _is_event(data := _field(rest)):
        yield data


def _field(line: bytes) -> str:
    name, _, data = line.partition(b":")
    text = data.strip().decode()
    return text if name == b"data" else f'{{"error": {text}}}'


def _is_event(data: str) -> bool:
    """Whether a line that lacks its end lacks nothing else."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return data == DONE
    return True


async def whole(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """A body of JSON as one event: some servers answer so where a stream was asked for, and some
    write errors so. Raises ValueError for more than MAX_LINE."""
    body = b""
    async for chunk in chunks:
        body += chunk
        if len(body) > MAX_LINE:
            raise ValueError("an answer without end")
    if body.lstrip().startswith((b"{", b"[")):
        yield body.decode()


def read_piece(data: str, server: str, model: str) -> AnswerPiece:
    """The event. Raises ValueError (no completion chunk), EngineError (the server reports one)."""
    try:
        event = json.loads(data)
    except RecursionError:
        raise ValueError("more levels than any event has") from None
    if isinstance(event, list) and event:  # as Gemini writes errors
        event = event[0]
    if not isinstance(event, dict):
        raise ValueError("not an object")
    if event.get("error") or event.get("object") == "error":
        raise refusal(server, model, 500, event)
    choices = event.get("choices")
    if not isinstance(choices, list):
        raise ValueError("no choices")
    usage = _usage(event.get("usage"))
    if not choices:
        return AnswerPiece(usage=usage)
    choice = choices[0]
    if not isinstance(choice, dict):
        raise ValueError("a choice is not an object")
    delta = choice.get("delta") or choice.get("message")
    reason = choice.get("finish_reason") or None
    if not isinstance(reason, (str, NoneType)):
        raise ValueError("a finish_reason is a text")
    if not isinstance(delta, dict):
        said = choice.get("text")
        return AnswerPiece(said if isinstance(said, str) else "", reason, usage)
    text = _content(delta.get("content"))
    if isinstance(refused := delta.get("refusal"), str) and refused:
        text, reason = text + refused, REFUSED
    thinks = bool(delta.get("reasoning_content") or delta.get("reasoning"))
    return AnswerPiece(text, reason, usage, pieces_of(delta), thinks)


def _content(content: Any) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(content, list):
        found = (one.get("text") for one in content if isinstance(one, dict))
        return "".join(text for text in found if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _usage(counts: Any) -> Usage | None:
    """None where there is none, or a count is no number of tokens: then it is estimated."""
    if not isinstance(counts, dict):
        return None
    details = counts.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    told = [counts.get("prompt_tokens") or 0, counts.get("completion_tokens") or 0, cached or 0]
    if not all(isinstance(one, (int, float)) and 0 <= one < MAX_TOKENS for one in told):
        return None
    prompt, completion, found = map(int, told)
    return Usage(prompt, completion, min(found, prompt))


def finish_reason(reason: str | None, server: str) -> str:
    """ "stop", "length" or "refusal". Raises EngineError if the text ends for another reason."""
    if reason is None:
        raise EngineError(
            f"{server} ended its stream before the answer was complete", retryable=True
        )
    known = reason.lower()
    if known in _LENGTH:
        return "length"
    if known == REFUSED:
        return known
    if known in ("content_filter", "safety"):
        raise EngineError(f"{server} withheld the answer (content filter)")
    if known in _GAVE_UP:
        raise EngineError(f"{server} gave the answer up ({word(reason)})", retryable=True)
    return "stop"


# --- errors ---------------------------------------------------------------------------------


@contextmanager
def as_engine_errors(
    server: str, model: str, heard: Callable[[Mapping[str, str]], None], secret: str = ""
) -> Iterator[None]:
    """Turns what the SDK, the connection and the decoding of events raise into EngineErrors. heard:
    is told the headers of answers that refuse. secret: the key, which no error may have."""
    import httpx
    import openai

    try:
        yield
    except EngineError as error:
        _conceal(error, secret)
        raise
    except TeolaError:
        raise
    except openai.APIStatusError as error:
        heard(error.response.headers)
        after_s = retry_after(error.response.headers)
        found = refusal(server, model, error.status_code, error.body, after_s)
        _conceal(found, secret)
        raise found from None
    except openai.APITimeoutError:
        raise EngineAway(f"{server} accepts no connection: is it running?") from None
    except openai.APIConnectionError as error:
        why = type(error.__cause__ or error).__name__
        raise EngineAway(f"no connection to {server} ({why}): is it running?") from None
    except httpx.TransportError as error:
        why = type(error).__name__
        raise EngineAway(f"the connection to {server} broke off ({why})") from None
    except UnicodeEncodeError:
        raise EngineError(f"the prompt for {server} is not valid Unicode") from None
    except ValueError:
        raise EngineError(f"{server} sent what is no completion stream: check its url") from None


def _conceal(error: EngineError, secret: str) -> None:
    """Take the key out of what a server said, also of the error that this one stands for."""
    told = [error, error.instead] if isinstance(error, (NoTools, NoSchema)) else [error]
    for one in told:
        one.said = sentence(one.said, secret)


def refusal(
    server: str, model: str, status: int, body: object, after_s: float | None = None
) -> EngineError:
    """The error that an HTTP status and its body (or an error event in a stream) stand for.
    after_s: when the server wants to be asked again."""
    fields = ErrorFields.of(body)
    if status == 500 and fields.status is not None:  # an event of a stream has no status of its own
        status = fields.status
    if after_s is None:
        after_s = fields.after_s
    instead = _refusal(server, model, status, fields, after_s)
    instead.said = sentence(fields.message)
    if status not in _NO_TOOLS or isinstance(instead, (NoChatTemplate, TooLong)):
        return instead
    if _TOOLS.search(fields.message):
        any_tools = bool(_KNOWS_NONE.search(fields.message))
        any_tools = any_tools and not _ONE_OF_THEM.search(fields.message)
        told = "takes no tools" if any_tools else "refuses the tools of a request"
        return NoTools(f"{server} {told} ({status})", any_tools=any_tools, instead=instead)
    if _SCHEMA.search(fields.message) or fields.param.startswith("response_format"):
        return NoSchema(f"{server} holds answers to no such schema ({status})", instead)
    return instead


def _refusal(
    server: str, model: str, status: int, fields: ErrorFields, after_s: float | None
) -> EngineError:
    message = fields.message
    if status in (401, 403) or (status == 400 and _WRONG_KEY.search(message)):
        return EngineError(
            f"{server} refuses the API key ({status}): give one that may use {model!r}"
        )
    if (
        status == 402
        or not _USED_UP.isdisjoint((fields.code, fields.type))
        or fields.for_today
        or _UNPAID.search(message)
    ):
        return EngineError(
            f"the quota of the API key at {server} is used up ({status}, insufficient_quota): "
            "look at its account there, or give another key"
        )
    unknown = status == 400 and _NOT_A_MODEL.search(message)
    if status == 404 or unknown or not _NO_MODEL.isdisjoint((fields.code, fields.type)):
        return EngineError(
            f"{server} has no model {model!r} ({status}): name one of its /v1/models"
        )
    if status in (400, 413, 422):
        return _bad_request(server, model, status, fields)
    if status in (429, 503, 529):
        return EngineBusy(f"{server} takes no more calls now ({status})", after_s=after_s)
    if status in (502, 504):
        return EngineAway(f"{server} is out of reach behind its gateway ({status})")
    if status == 408:
        return EngineUnavailable(f"{server} waited too long for the request ({status})")
    about = fields.about
    return EngineError(f"{server} failed ({status}{about}): see its log", retryable=status >= 500)


def _bad_request(server: str, model: str, status: int, fields: ErrorFields) -> EngineError:
    message = fields.message
    if "chat template" in message or "chat_template" in message:
        return NoChatTemplate(
            f"model {model!r} ({server}) has no chat template: set api='completions' or 'auto'"
        )
    if fields.code == "context_length_exceeded" or _TOO_LONG.search(message):
        found = _LIMIT.search(message)
        return too_long(server, model, int(found[1]) if found else None)
    about = fields.about
    if (named := _UNSUPPORTED.search(message)) is not None:
        field = named[1] or named[2]
        return UnknownField(
            f"{server} does not take the field {field!r} ({status}{about}): leave it out with the "
            f'option omit = ["{field}"]',
            field,
        )
    return BadRequest(f"{server} refuses the request as invalid ({status}{about}): see its log")


def too_long(
    server: str, model: str, limit: int | None, prompt: int = 0, output: int = 0
) -> TooLong:
    """The error for a prompt that does not fit; all counts in tokens, 0 or None if unknown."""
    context = f"context of {limit} tokens" if limit else "context"
    counts = f" ({prompt} and {output})" if prompt else ""
    return TooLong(
        f"the prompt and its answer{counts} exceed the {context} of {model!r} ({server}): "
        "use fewer or smaller chunks, or a smaller max_tokens"
    )
