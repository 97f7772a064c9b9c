"""Tokenization of text into terms for keyword search."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.text.tokenizer import Tokenizer


__all__ = ["Tokenizer"]

# A type checker that sees these accepts any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {"llama_retrieval_ext.text.tokenizer": ("Tokenizer",)}
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
