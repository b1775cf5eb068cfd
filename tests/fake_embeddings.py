"""A real HTTP server that answers `POST /v1/embeddings` byte for byte as OpenAI documents it.

    with FakeEmbeddings(dimensions=8) as server:
        engine = OpenAIEmbeddings(url=server.url)

A text's vector counts its words, each at a place that a digest of it gives, so that texts with
words in common are near each other. `server.script(...)` sets how the next requests are answered:
an error (`Fail`), no answer (`Hang`), or a function that spoils the vectors. What was asked is in
`server.requests`. The server itself is FakeOpenAI, so it refuses keys and models as that does.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tests.fake_openai import FakeOpenAI
from tests.fake_openai_answer import Fail, Seen

Spoil = Callable[[dict[str, Any]], object]
"""Another answer in the place of the right one; bytes are sent as they are."""


class FakeEmbeddings(FakeOpenAI):
    """dimensions: of the vectors, unless a request wants fewer. context_tokens: of one text, at
    four characters each. only_floats: it does not know base64, as some servers do not."""

    def __init__(
        self,
        dimensions: int = 384,
        *,
        model: str = "fake-embedding",
        api_key: str | None = None,
        context_tokens: int = 8192,
        only_floats: bool = False,
    ) -> None:
        super().__init__(model=model, vllm=False, api_key=api_key, context_tokens=context_tokens)
        self.dimensions, self.only_floats = dimensions, only_floats
        self._spoils: list[Spoil] = []

    def spoil(self, *spoils: Spoil) -> None:
        """How the next answers go wrong, in order."""
        self._spoils.extend(spoils)

    @property
    def asked(self) -> list[list[str]]:
        """The texts of each request."""
        return [seen.body["input"] for seen in self.requests if seen.path == "/v1/embeddings"]

    def refusal(self, seen: Seen) -> Fail | None:
        if seen.path != "/v1/embeddings":
            return super().refusal(seen)
        texts = seen.body.get("input")
        if refused := super().refusal(replace(seen, body={**seen.body, "max_tokens": 0})):
            return refused
        if not isinstance(texts, list) or not texts or not all(texts):
            return Fail(400, "'$.input' is invalid.", "invalid_request_error")
        longest = max(len(text) // 4 for text in texts)
        if longest > self.context_tokens:
            return Fail(
                400,
                f"This model's maximum context length is {self.context_tokens} tokens, however you "
                f"requested {longest} tokens ({longest} in your prompt; 0 for the completion). "
                "Please reduce your prompt; or completion length.",
            )
        return None

    def beside(self, seen: Seen) -> object | None:
        if seen.path != "/v1/embeddings" or self.refusal(seen) or self._script:
            return super().beside(seen)
        answer = self._embeddings(seen.body)
        return self._spoils.pop(0)(answer) if self._spoils else answer

    def _embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        length = int(body.get("dimensions") or self.dimensions)
        packed = body.get("encoding_format") == "base64" and not self.only_floats
        data = []
        for index, text in enumerate(body["input"]):
            vector = vector_of(text, length)
            embedding = as_base64(vector) if packed else vector
            data.append({"object": "embedding", "index": index, "embedding": embedding})
        tokens = sum(len(text) // 4 + 1 for text in body["input"])
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": self.model, "usage": usage}


def vector_of(text: str, dimensions: int) -> list[float]:
    """Counts of words; of a text without any, of nothing."""
    found = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()) or [""]:
        digest = hashlib.sha256(word.encode()).digest()
        found[int.from_bytes(digest[:4]) % dimensions] += 1.0
    return found


def as_base64(vector: Sequence[float]) -> str:
    """Little-endian float32."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
