"""Terms of texts on their way into the engine and into its queries."""

from collections.abc import Iterable
from typing import Final

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.stores.elasticsearch.manifest import Manifest
from llama_retrieval_ext.stores.nodes.keyword_text import keyword_text
from llama_retrieval_ext.stores.nodes.surrogates import utf8_safe

# What servers take at least in a query. A word more than once counts more than once.
_MOST: Final = 1024


def indexed_text(node: BaseNode, manifest: Manifest) -> str:
    """What keyword search looks into: terms joined by spaces, or the text for the server to cut."""
    text = keyword_text(node)
    if manifest.analyzer is not None:
        return utf8_safe(text)
    return " ".join(map(utf8_safe, manifest.tokenizer.tokens(text)))


def asked_text(text: str, manifest: Manifest) -> str:
    """What is looked for, in the same form; of more than 1,024 terms the first different ones."""
    if manifest.analyzer is not None:
        return utf8_safe(text)
    return " ".join(map(utf8_safe, _limited(manifest.tokenizer.query_tokens(text))))


def _limited(tokens: list[str]) -> Iterable[str]:
    return tokens if len(tokens) <= _MOST else list(dict.fromkeys(tokens))[:_MOST]
