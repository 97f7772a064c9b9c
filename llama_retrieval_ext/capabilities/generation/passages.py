"""Numbered passages that fit the token budget of a prompt, and a token counter."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, TypeAlias

from llama_index.core.schema import BaseNode, NodeWithScore, TextNode
from llama_index.core.utils import get_tokenizer

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import source_in
from llama_retrieval_ext.results import Hit, as_hit

# Splits a text into tokens, like `llama_index.core.utils.get_tokenizer`.
Tokenize: TypeAlias = Callable[[str], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token counter."""

    tokenize: Tokenize | None = None

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len((self.tokenize or get_tokenizer())(text))

    def shortened(self, text: str, tokens: int) -> str:
        """Return the beginning of a text, of at most this many tokens."""
        if tokens <= 0:
            return ""
        count = self.count(text)
        while count > tokens:
            text = text[: min(len(text) - 1, len(text) * tokens // count)]
            count = self.count(text)
        return text


# Accepted as passages: texts, nodes, hits.
Passage: TypeAlias = str | BaseNode | NodeWithScore
PassagesLike: TypeAlias = Passage | Sequence[Passage]

# Minimum number of tokens of a shortened passage.
_LEAST_TOKENS: Final = 24


@dataclass(frozen=True, slots=True)
class Passages:
    """Numbered passages of a prompt, and the hits in their order."""

    text: str
    hits: tuple[Hit, ...]
    left_out: int = 0


def fitted(hits: Sequence[Hit], tokens: Tokens, *, room: int, first: int = 1) -> Passages:
    """Return the first passages that fit into a number of tokens.

    A passage that is too long is shortened if a good part of it fits. All passages after it are
    dropped, so that a worse hit never replaces a better one.
    """
    texts: list[str] = []
    for number, hit in enumerate(hits, start=first):
        head, body = f"[{number}]{_title(hit.node)}\n", _body(hit.node)
        cost = tokens.count(f"{head}{body}\n\n")
        if cost > room:
            body = tokens.shortened(body, room - tokens.count(f"{head}\n\n") - 1)
            if tokens.count(body) >= min(_LEAST_TOKENS, cost):
                texts.append(head + body)
            break
        texts.append(head + body)
        room -= cost
    return Passages("\n\n".join(texts), tuple(hits[: len(texts)]), len(hits) - len(texts))


def as_hits(passages: PassagesLike, *, name: str = "context") -> list[Hit]:
    """Return hits for texts, nodes and hits; a text gets an id with its number."""
    several = isinstance(passages, Iterable) and not isinstance(
        passages, str | BaseNode | NodeWithScore
    )
    items = list(passages) if several else [passages]
    return [_as_hit(item, f"{name}-{number}", name) for number, item in enumerate(items, start=1)]


def _as_hit(item: object, node_id: str, name: str) -> Hit:
    if isinstance(item, NodeWithScore):
        scored = item if item.score is not None else NodeWithScore(node=item.node, score=1.0)
        return as_hit(scored, source=name)
    if isinstance(item, BaseNode):
        return Hit(node=item, score=1.0, source=name)
    if isinstance(item, str):
        return Hit(node=TextNode(id_=node_id, text=item), score=1.0, source=name)
    raise ConfigurationError(f"{name} takes texts, nodes and hits, got {item!r}")


def title_of(node: BaseNode) -> str:
    """Return the title of a node, or else its file name; empty if it has neither."""
    title = node.metadata.get("title")
    return title if isinstance(title, str) and title else PurePath(source_in(node.metadata)).name


def _title(node: BaseNode) -> str:
    title = title_of(node)
    return f" {title}" if title else ""


def _body(node: BaseNode) -> str:
    return node.get_content().strip()
