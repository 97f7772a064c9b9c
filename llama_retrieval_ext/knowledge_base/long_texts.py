"""Splits texts of any length into sentences; the limit above which a text is long.

NLTK's tokenizer searches the whole text under a time limit of five seconds, which a text of some
ten megabytes exceeds. Here it gets one block of the text at a time, and finds the same sentences.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.node_parser.text import utils
from llama_index.core.schema import TransformComponent

A = TypeVar("A")
T = TypeVar("T")
Split = Callable[[str], list[str]]
# Gets the number of characters that a step of the work has finished.
Watch = Callable[[float], object]

# Characters above which a text is cut part by part, and its passages are embedded and written in
# groups. No passage, of some hundred tokens, is as long.
LONG: Final = 2_000_000
# Characters per block, which NLTK searches in a fiftieth of its time limit.
_BLOCK: Final = 250_000
# Where a block without a sentence's end is cut: `SentenceSplitter` also cuts after these, in turn.
_ENDS: Final = tuple(re.compile(each) for each in (r"[,.;。？！]", r"\n", r"\s"))  # noqa: RUF001
_DEFAULT: Final = utils.split_by_sentence_tokenizer().__qualname__


def in_blocks(split: Split, *, block: int = _BLOCK, watch: Watch = float) -> Split:
    """Return a function that splits a text into the same sentences, one block at a time.

    Args:
        split: Returns the sentences of a text; joined they are the text.
        block: Number of characters that `split` gets at once.
        watch: Called after each block but the last.
    """
    return lambda text: list(sentences_in(text, split, block=block, watch=watch))


def sentences_in(
    text: str,
    split: Split,
    *,
    start: int = 0,
    end: int | None = None,
    block: int = _BLOCK,
    watch: Watch = float,
) -> Iterator[str]:
    """Yield the sentences of a part of a text; arguments as of `in_blocks`."""
    end = len(text) if end is None else end
    while end - start > block:
        part = text[start : start + block]
        # What ends a block may look like a sentence, so the last two are searched again.
        whole = split_by(split, part)[:-2] or [part[: _cut(part)]]
        yield from whole
        size = sum(map(len, whole))
        start += size
        watch(size)
    yield from split_by(split, text[start:end])


def paragraphs_in(text: str, separator: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the positions of the parts between separators; a part begins with its separator."""
    cut = text.find(separator, start, end)
    while cut >= 0:
        if cut > start:
            yield start, cut
        start = cut
        cut = text.find(separator, start + len(separator), end)
    yield start, end


def _cut(block: str) -> int:
    """Return the position at which to cut a block that has no end of a sentence."""
    for pattern in _ENDS:
        last = max((each.end() for each in pattern.finditer(block)), default=0)
        if last:
            return last
    return len(block)


def for_long_texts(transformation: TransformComponent, watch: Watch = float) -> TransformComponent:
    """Return a transformation that finds sentences by LlamaIndex's default in blocks, as a copy.

    Others are returned unchanged. `watch` is called as by `in_blocks`.
    """
    bounded = partial(in_blocks, watch=watch)
    if isinstance(transformation, SentenceSplitter):
        functions: list[Split] = transformation._split_fns  # noqa: SLF001 - it has no public name
        if any(map(_is_default, functions)):
            transformation = transformation.model_copy()
            transformation._split_fns = [  # noqa: SLF001 - as above
                bounded(function) if _is_default(function) else function for function in functions
            ]
    elif _is_default(getattr(transformation, "sentence_splitter", None)):
        split: Any = getattr(transformation, "sentence_splitter")  # noqa: B009 - of several classes
        transformation = transformation.model_copy(update={"sentence_splitter": bounded(split)})
    return transformation


def _is_default(function: object) -> bool:
    return getattr(function, "__qualname__", "") == _DEFAULT


def split_by(split: Callable[[A], T], given: A) -> T:
    """Return the result of a function that splits texts; retry if NLTK rejects its files.

    NLTK rejects files with several hard links, which uv creates when it installs a package.
    LlamaIndex's sentence splitter reads such a file at its first use only, and does not need it.
    """
    try:
        return split(given)
    except PermissionError:
        return split(given)
