"""Counts the tokens of texts, and cuts texts to a number of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from llama_index.core.utils import get_tokenizer

# Text to its tokens, as `llama_index.core.utils.get_tokenizer` gives.
Tokenize: TypeAlias = Callable[[str], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Counts tokens.

    Args:
        tokenize: A text's tokens; None for LlamaIndex's tokenizer.

    Examples:
        >>> words = Tokens(str.split)
        >>> words.count("annual leave"), words.shortened("annual leave of 25 days", 2)
        (2, 'annual le')

    """

    tokenize: Tokenize | None = None

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len((self.tokenize or get_tokenizer())(text))

    def shortened(self, text: str, tokens: int) -> str:
        """Return the beginning of a text that has at most so many tokens."""
        if tokens <= 0:
            return ""
        count = self.count(text)
        while count > tokens:
            text = text[: min(len(text) - 1, len(text) * tokens // count)]
            count = self.count(text)
        return text
