"""Pages: a frozen ranking on every engine, in one scope; sorting by a number or a date."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from llama_index.core import Document

from llama_retrieval_ext import KnowledgeBase, SearchResult
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.testing import FakeEmbedding, PagingContract


class TestPaging(PagingContract):
    @pytest.fixture
    def kb(self, url: str) -> Iterator[KnowledgeBase]:
        with KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=2)) as kb:
            yield kb


def add(kb: KnowledgeBase, *metadata: dict[str, object]) -> None:
    documents = [
        Document(text="leave " * (number + 1), id_=f"d{number}", metadata=each)
        for number, each in enumerate(metadata)
    ]
    kb.add(documents, show_progress=False)


def refs(result: SearchResult) -> list[str | None]:
    return [hit.node.ref_doc_id for hit in result]


def test_sorting_is_by_number_or_date_then_by_score_and_last_without(kb: KnowledgeBase) -> None:
    add(kb, {"year": 2}, {"year": 1}, {"year": "soon"}, {"year": 2.0}, {"year": [0, 3]}, {})
    by_score = refs(kb.search("leave", "keyword"))
    place = {"d0": 2, "d1": 1, "d3": 2}
    rising = sorted(by_score, key=lambda ref: {**place, "d4": 0}.get(str(ref), 9))
    falling = sorted(by_score, key=lambda ref: -{**place, "d4": 3}.get(str(ref), -9))
    assert refs(kb.search("leave", "keyword", sort="year")) == rising
    assert refs(kb.search("leave", "keyword", sort="-year")) == falling
    unknown = kb.search("leave", "keyword", sort="when")
    assert refs(unknown) == by_score
    assert unknown.hints == ("no hit has a number or a date as 'when'; the order is by score",)


async def test_an_ordinary_search_can_be_continued_to_its_end(kb: KnowledgeBase) -> None:
    add(kb, *({} for _ in range(7)))
    pages = [await kb.asearch("leave", top_k=3)]
    while pages[-1].cursor is not None:
        pages.append(await kb.asearch("leave", top_k=3, cursor=pages[-1].cursor))
    assert [len(page) for page in pages] == [3, 3, 1]
    assert len({ref for page in pages for ref in refs(page)}) == 7


def test_a_ranking_ends_at_its_depth_and_says_so(kb: KnowledgeBase) -> None:
    add(kb, *({} for _ in range(5)))
    first = kb.search("leave", top_k=2, depth=4)
    last = kb.search("leave", top_k=2, cursor=first.cursor)
    assert (len(last), last.cursor) == (2, None)
    assert "after the best 4 hits" in last.hints[0]


def test_a_depth_beyond_the_limit_of_the_engine_is_refused(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = replace(kb._backend.features, most_hits=500)
    monkeypatch.setattr(type(kb._backend), "features", property(lambda _: limited))
    with pytest.raises(ConfigurationError, match="at most 500 hits"):
        kb.search("leave", depth=501)
    with pytest.raises(ConfigurationError, match="at least 10"):
        kb.search("leave", depth=9)
