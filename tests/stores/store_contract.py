"""What every store of an engine promises, from its first node to its last."""

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from llama_index.core.indices.vector_store import VectorStoreIndex
from llama_index.core.schema import (
    Document,
    IndexNode,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from llama_retrieval_ext import HybridRetriever, Schema, VectorRetriever
from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    InvalidFilterError,
    StoreClosedError,
    StoreFormatError,
    UnsupportedFilterError,
)
from llama_retrieval_ext.scope import DOCUMENT_FIELD, START_FIELD
from llama_retrieval_ext.stores.encoding.node_json import row_id
from llama_retrieval_ext.stores.encoding.vectors import ScoreRange
from llama_retrieval_ext.stores.engine.backend import Search, hybrid_backend
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.stores.open import source_of
from llama_retrieval_ext.testing import FakeEmbedding
from llama_retrieval_ext.text import Tokenizer
from llama_retrieval_ext.text import tokenizer as tokenizer_module
from tests.stores.odd_metadata import HOSTILE

S = TypeVar("S", bound=EngineStore)
MODES = VectorStoreQueryMode
ALL_MODES = (MODES.DEFAULT, MODES.SPARSE, MODES.TEXT_SEARCH, MODES.HYBRID)


def node(name: str, *embedding: float, document: str = "", **metadata: object) -> TextNode:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)} if document else {}
    return TextNode(
        id_=name,
        text=f"leave {name}",
        embedding=list(embedding) or [0.6, 0.8],
        metadata=metadata,
        relationships=source,
    )


def where(key: str, value: object, operator: FilterOperator = FilterOperator.EQ) -> MetadataFilters:
    only = MetadataFilter(key=key, value=value, operator=operator)  # type: ignore[arg-type]
    return MetadataFilters(filters=[only])


def query(mode: MODES = MODES.DEFAULT, **options: object) -> VectorStoreQuery:
    usual = {"query_embedding": [0.6, 0.8], "query_str": "leave", "similarity_top_k": 9}
    return VectorStoreQuery(**{**usual, "mode": mode, **options})  # type: ignore[arg-type]


def ids(store: EngineStore) -> list[str]:
    return [each.node_id for each in store.get_nodes()]


def found(store: EngineStore, mode: MODES = MODES.DEFAULT, **options: object) -> list[str]:
    request = query(mode, **options)
    ids = store.query(request).ids
    assert asyncio.run(store.aquery(request)).ids == ids
    return ids or []


class StoreContract(Generic[S]):
    """Subclass it in a module that has a fixture `opened`: opens one store, as often as needed.

    Attributes:
        odd_ids: What an id may be.
        ranks_zeros: Whether a search by embedding returns nodes whose embedding is zeros.
        many: More nodes than two pages that the engine is asked for; an even number.
    """

    odd_ids: ClassVar[tuple[str, ...]] = ("", "a/b c", "中文", "ä" * 4000, 'x" or "1"="1', "n\x00")
    ranks_zeros: ClassVar[bool] = True
    many: ClassVar[int] = 2500

    @pytest.fixture
    def store(self, opened: Callable[..., S]) -> S:
        return opened()

    def test_a_new_store_is_empty_and_can_be_searched(self, store: S) -> None:
        assert store.add([]) == []
        store.delete_nodes(["none"])
        store.delete("none.md")
        store.clear()
        assert (store.count(), store.get_nodes(), store.dimension) == (0, [], None)
        assert found(store) == found(store, MODES.SPARSE) == found(store, MODES.HYBRID) == []
        backend = hybrid_backend(source_of(store).backend)
        both = backend.hybrid([1.0], "leave", Search(3), nodes_last=True).function()
        assert not both.vector
        assert not both.keyword

    def test_two_versions_of_a_node_are_two_rows_of_one_node(self, store: S) -> None:
        store.add([node("a", year=1), node("b")])
        store.add([node("a", year=2).model_copy(update={"id_": row_id("a", 1)})])
        assert store.count() == 3
        assert [each.node_id for each in store.get_nodes(["a"])] == ["a"]
        for mode in ALL_MODES:
            assert sorted(found(store, mode)) == ["a", "b"]
        hybrid = HybridRetriever(store, embed_model=FakeEmbedding(dim=2), top_k=2).retrieve("leave")
        assert sorted(hit.node_id for hit in hybrid) in (["a"], ["a", "b"])
        store.delete_rows([row_id("a", 0)])
        assert [each.metadata for each in store.get_nodes(["a", "b"])] == [{"year": 2}, {}]
        store.delete_nodes(["a"])
        assert ids(store) == ["b"]

    def test_nodes_come_back_as_they_went_in(self, store: S) -> None:
        nodes = [
            node("a", document="doc", tags=["x"], year=2024, nothing=None, inf=math.inf),
            IndexNode(id_="b", index_id="table", text="", embedding=[1.0, 0.0]),
            Document(id_="c", text="中文 text", embedding=[0.0, 1.0]),
        ]
        assert store.add(nodes) == ["a", "b", "c"]
        assert store.dimension == 2
        back = store.get_nodes(["a", "b", "c"])
        for added, got in zip(nodes, back, strict=True):
            assert got.embedding == pytest.approx(added.embedding)
            whole = {"embedding": added.embedding}
            assert got.model_copy(update=whole) == added

    def test_lone_surrogates_become_the_replacement_character(self, store: S) -> None:
        odd = TextNode(
            id_="a", text="caf\udce9", metadata={"k\ud800": ["\ud800"], "title": "x\udfff"}
        )
        added = odd.model_copy(update={"embedding": [1.0, 0.0]})
        store.add([added])
        (back,) = store.get_nodes(["a"])
        assert back.get_content(MetadataMode.NONE) == "caf\ufffd"
        assert back.metadata == {"k\ufffd": ["\ufffd"], "title": "x\ufffd"}
        assert added.metadata == odd.metadata  # what came in is unchanged
        assert found(store, filters=where("title", "x\udfff")) == ["a"]
        assert store.get_nodes(["a\ud800"]) == []

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"id_": "a\ud800"}, "lone surrogate in its id"),
            ({"metadata": {"n": 2**53 + 1}}, "store it as a string"),
            ({"metadata": {"n": [1, -(10**400)]}}, "store it as a string"),
            ({"metadata": {"n": "2024-01-31T09:30:00.0000001Z"}}, "six digits"),
        ],
    )
    def test_what_engines_would_change_is_refused(
        self, store: S, fields: dict[str, Any], reason: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=reason):
            store.add([node("b"), TextNode(embedding=[1.0, 0.0], **fields)])
        assert store.count() == 0

    def test_any_string_is_an_id_and_a_document_and_selects_only_itself(self, store: S) -> None:
        names = [*self.odd_ids, *HOSTILE]
        store.add([node("other", document="of other")])
        store.delete_nodes(names)
        store.delete(f"of {names[-1]}")
        assert ids(store) == ["other"]
        store.add([node(name, document=f"of {name}") for name in names])
        assert [each.node_id for each in store.get_nodes(names)] == names
        for name in names:
            assert [each.node_id for each in store.get_nodes([name])] == [name]
            assert found(store, doc_ids=[f"of {name}"]) == [name]
        store.delete_nodes(names[::2])
        left = names[1::2]
        assert ids(store) == sorted([*left, "other"])
        for place, name in enumerate(left, start=1):
            store.delete(f"of {name}")
            assert ids(store) == sorted([*left[place:], "other"])

    def test_get_nodes_returns_the_order_of_the_ids(self, store: S) -> None:
        store.add([node(name, kind=name) for name in "cab"])
        assert ids(store) == ["a", "b", "c"]
        some = store.get_nodes(["c", "none", "a", "c"])
        assert [each.node_id for each in some] == ["c", "a"]
        assert store.get_nodes([]) == []
        filtered = store.get_nodes(["c", "a"], where("kind", "a"))
        assert [each.node_id for each in filtered] == ["a"]

    @pytest.mark.slow
    def test_more_nodes_than_a_page_come_back_and_go(self, opened: Callable[..., S]) -> None:
        store, names = opened(), [f"n{number:05}" for number in range(self.many)]
        nodes = [node(name, even=place % 2) for place, name in enumerate(names)]
        assert store.add(nodes) == names
        store.close()
        store = opened()
        assert ids(store) == names
        assert len(store.get_nodes(filters=where("even", 0))) == self.many // 2
        assert store.count(where("even", 1)) == self.many // 2
        tied = found(store)
        assert tied == sorted(tied)
        assert len(tied) == 9
        store.delete_nodes(filters=where("even", 0))
        assert store.count() == self.many // 2

    def test_a_node_with_the_same_id_replaces_the_old_one_whole(self, store: S) -> None:
        store.add([node("a", tenant_id="acme", old="x"), node("b")])
        other = TextNode(id_="a", text="lunch", embedding=[1.0, 0.0], metadata={"last": 1})
        assert store.add([node("a", new=1), other]) == ["a", "a"]
        assert ids(store) == ["a", "b"]
        (got,) = store.get_nodes(["a"])
        assert (got.get_content(), got.metadata) == ("lunch", {"last": 1})
        assert got.embedding == pytest.approx([1.0, 0.0])
        for filters in (where("old", "x"), where("new", 1), where("tenant_id", "acme")):
            assert store.count(filters) == 0
        assert found(store, MODES.SPARSE) == ["b"]

    def test_deleting_takes_what_is_named_and_satisfies_the_filter(self, store: S) -> None:
        store.add([node(f"{n}", document=f"d{n % 3}", parity=n % 2) for n in range(9)])
        store.delete("d0")
        assert ids(store) == ["1", "2", "4", "5", "7", "8"]
        store.delete("none.md")
        store.delete_nodes(["1", "2"], where("parity", 1))
        store.delete_nodes([])
        assert ids(store) == found(store) == ["2", "4", "5", "7", "8"]
        either = [*where("parity", 0).filters, *where("parity", 1).filters]
        both = MetadataFilters(filters=either, condition=FilterCondition.OR)
        store.delete_nodes(["2", "none"], both)
        store.delete_nodes(filters=where("parity", 0))
        assert ids(store) == found(store, MODES.SPARSE) == ["5", "7"]
        assert store.count(where("parity", 1, FilterOperator.GTE)) == 2
        store.delete_nodes(["5"])
        assert ids(store) == ["7"]

    def test_embeddings_that_do_not_fit_are_refused_and_nothing_is_written(self, store: S) -> None:
        with pytest.raises(DimensionMismatchError, match=r"'odd' .* dimension 1, .* takes 2"):
            store.add([node("b"), node("odd", 1.0)])
        assert (store.count(), store.dimension) == (0, None)
        store.add([node("a")])
        many = [node(f"n{number}") for number in range(600)]
        with pytest.raises(DimensionMismatchError, match=r"'odd' .* dimension 3, .* takes 2"):
            store.add([*many, node("odd", 1.0, 0.0, 0.0)])
        reasons = {"is not finite": ([math.nan, 1.0], [math.inf, 1.0]), "no embedding": (None, [])}
        for reason, embeddings in reasons.items():
            for embedding in embeddings:
                with pytest.raises(ConfigurationError, match=f"'odd' .*{reason}"):
                    store.add([*many, TextNode(id_="odd", embedding=embedding)])
        assert ids(store) == ["a"]

    def test_a_cleared_store_takes_nodes_of_another_dimension(self, store: S) -> None:
        store.add([node("a")])
        store.clear()
        assert (ids(store), found(store), store.dimension) == ([], [], None)
        store.add([node("b", 1.0, 0.0, 0.0)])
        assert (ids(store), store.dimension) == (["b"], 3)
        longer = VectorStoreQuery(query_embedding=[1.0, 0.0, 0.0])
        assert store.query(longer).ids == ["b"]
        store.clear()
        store.clear()
        assert ids(store) == []

    def test_async_does_what_sync_does_on_one_event_loop_after_another(self, store: S) -> None:
        async def live() -> list[str]:
            nodes = [node(name, document=f"d{name}", kind=name) for name in "abcd"]
            assert await store.async_add(nodes) == ["a", "b", "c", "d"]
            await store.adelete("da")
            await store.adelete_nodes(["b"])
            with pytest.raises(ConfigurationError):
                await store.adelete_nodes()
            answer = (await store.aquery(query())).ids or []
            assert answer == [each.node_id for each in await store.aget_nodes()]
            return answer

        for _ in range(2):
            assert asyncio.run(live()) == ["c", "d"]
        asyncio.run(store.aclear())
        assert store.count() == 0

    def test_ids_and_documents_narrow_a_query(self, store: S) -> None:
        store.add([node(name, document="xxy"[n], odd=n % 2) for n, name in enumerate("abc")])
        backend = source_of(store).backend
        for mode in (*ALL_MODES, *([MODES.MMR] if backend.features.mmr else [])):

            def narrowed(mode: MODES = mode, **options: object) -> list[str]:
                return found(store, mode, **options)

            assert narrowed(node_ids=["a", "c", "none"]) == ["a", "c"]
            assert narrowed(doc_ids=["x"]) == ["a", "b"]
            assert narrowed(doc_ids=["x"], node_ids=["b", "c"]) == ["b"]
            assert narrowed(doc_ids=["x"], filters=where("odd", 0)) == ["a"]
            assert narrowed(doc_ids=["none"]) == narrowed(doc_ids=[""]) == []
            # No documents allow none; no ids restrict nothing, as LlamaIndex means it.
            assert narrowed(doc_ids=[]) == narrowed(doc_ids=[], node_ids=["a"]) == []
            assert narrowed(node_ids=[]) == ["a", "b", "c"]
        retriever = VectorStoreIndex.from_vector_store(
            store, embed_model=FakeEmbedding(dim=2)
        ).as_retriever(doc_ids=[])
        assert retriever.retrieve("leave") == asyncio.run(retriever.aretrieve("leave")) == []

    def test_a_filter_by_no_values_reads_and_deletes_nothing(self, store: S) -> None:
        store.add([node("a", k="v")])
        nothing = where("k", [], FilterOperator.IN)
        assert store.get_nodes(filters=nothing) == []
        store.delete_nodes(filters=nothing)
        assert (store.count(), store.count(nothing)) == (1, 0)

    def test_positions_and_metadata_of_similar_names_are_filtered_apart(self, store: S) -> None:
        held = {"_start": "s", "_document": "m", "start": 7, "doc": "x", START_FIELD: 9}
        passage = node("a", document="d", **held)
        passage.start_char_idx = 5
        store.add(
            [
                passage,
                node("b", document="m"),
                node("c", document="", **{"_start": 5, START_FIELD: 3}),
            ]
        )
        found_by: dict[tuple[str, object], list[str]] = {
            ("_start", "s"): ["a"],
            ("_start", 5): ["c"],
            ("_document", "m"): ["a"],
            ("_document", "d"): [],
            ("start", 7): ["a"],
            ("doc", "x"): ["a"],
            (START_FIELD, 5): ["a"],
            (START_FIELD, 3): [],
            (DOCUMENT_FIELD, "d"): ["a"],
            (DOCUMENT_FIELD, "m"): ["b"],
        }
        for (key, value), expected in found_by.items():
            got = store.get_nodes(filters=where(key, value))
            assert [each.node_id for each in got] == expected, (key, value)
        some = where(DOCUMENT_FIELD, ["d", "m"], FilterOperator.IN)
        assert [each.node_id for each in store.get_nodes(filters=some)] == ["a", "b"]
        assert store.get_nodes(["a"])[0].metadata == held
        with pytest.raises(InvalidFilterError, match="begins and ends with a letter"):
            VectorRetriever(store, filters=where(START_FIELD, 5))

    def test_documents_are_compared_by_equality_alone(self, store: S) -> None:
        store.add([node("a", document="d"), node("b", document="m"), node("c")])
        found_by = {
            FilterOperator.EQ: ("d", ["a"]),
            FilterOperator.NE: ("d", ["b", "c"]),
            FilterOperator.IN: (["d", "x"], ["a"]),
            FilterOperator.NIN: (["d", "x"], ["b", "c"]),
        }
        for operator, (value, expected) in found_by.items():
            got = store.get_nodes(filters=where(DOCUMENT_FIELD, value, operator))
            assert sorted(each.node_id for each in got) == expected, operator
        for operator in set(FilterOperator) - found_by.keys():
            with pytest.raises(UnsupportedFilterError, match="EQ, NE, IN, NIN, got"):
                store.get_nodes(filters=where(DOCUMENT_FIELD, "d", operator))
        assert store.get_nodes(filters=where(DOCUMENT_FIELD, 3)) == []
        with pytest.raises(UnsupportedFilterError, match=r"GTE, .*, got IS_EMPTY"):
            store.delete_nodes(filters=where(START_FIELD, None, FilterOperator.IS_EMPTY))

    @pytest.mark.parametrize("distance", ["cosine", "dot", "euclid"])
    def test_higher_is_better(self, opened: Callable[..., S], distance: str) -> None:
        store = opened(distance=distance)
        vectors: dict[str, list[float]] = {
            "same": [3.0, 4.0],
            "near": [4.0, 3.0],
            "across": [-4.0, 3.0],
            "far": [-3.0, -4.0],
        }
        store.add([TextNode(id_=name, embedding=vector) for name, vector in vectors.items()])
        kind, low, high = {
            "cosine": ("cosine", -1.0, 1.0),
            "dot": ("dot", None, None),
            "euclid": ("negative_distance", None, 0.0),
        }[distance]
        assert source_of(store).backend.features.dense == ScoreRange(kind, low, high)
        result = store.query(query(query_embedding=[3.0, 4.0]))
        scores = {
            "cosine": [1.0, 0.96, 0.0, -1.0],
            "dot": [25.0, 24.0, 0.0, -25.0],
            "euclid": [-math.dist(vector, [3.0, 4.0]) for vector in vectors.values()],
        }[distance]
        assert result.ids == list(vectors)
        assert result.similarities == pytest.approx(scores, rel=1e-5, abs=1e-5)

    def test_zeros_are_similar_to_nothing(self, store: S) -> None:
        store.add([node("zero", 0.0, 0.0), node("away", -1.0, 0.0), node("near", 1.0, 0.0)])
        result = store.query(query(query_embedding=[1.0, 0.0]))
        expected = {"near": 1.0, "zero": 0.0, "away": -1.0}
        if not self.ranks_zeros:
            del expected["zero"]
        assert result.ids == list(expected)
        assert result.similarities == pytest.approx(list(expected.values()))
        assert store.query(query(query_embedding=[0.0, 0.0])).similarities == [0.0, 0.0, 0.0]
        assert store.get_nodes(["zero"])[0].embedding == [0.0, 0.0]
        assert "zero" in found(store, MODES.SPARSE)

    def test_a_closed_store_refuses_every_use(self, store: S) -> None:
        store.add([node("a")])
        search = source_of(store).backend.keyword("leave", Search(1))
        store.close()
        store.close()
        uses: list[Callable[[], object]] = [
            store.count,
            store.get_nodes,
            store.clear,
            lambda: store.add([node("b")]),
            lambda: store.delete("d"),
            lambda: store.delete_nodes(["a"]),
            lambda: found(store),
            lambda: asyncio.run(store.aget_nodes()),
            search.function,
        ]
        for use in uses:
            with pytest.raises(StoreClosedError, match=r"was closed.*open it again"):
                use()

    def test_a_reopened_store_has_its_nodes_and_settings(self, opened: Callable[..., S]) -> None:
        german = Tokenizer(language="german")
        first = opened(tokenizer=german, distance="euclid")
        first.add([node("a", 1.0, 0.5, color="red"), node("b", 1.0, 0.5)])
        first.persist()
        before = first.get_nodes()
        hits = {mode: found(first, mode) for mode in (MODES.DEFAULT, MODES.SPARSE)}
        first.close()
        again = opened()
        assert (again.tokenizer, again.distance, again.dimension) == (german, "euclid", 2)
        assert again.get_nodes() == before
        for mode, expected in hits.items():
            assert found(again, mode) == expected
            assert sorted(expected) == ["a", "b"]
        again.close()
        for settings, error, reason in (
            ({"dim": 3}, DimensionMismatchError, "dimension 2, not 3"),
            ({"distance": "cosine"}, ConfigurationError, "distance='euclid', not 'cosine'"),
            ({"tokenizer": Tokenizer()}, ConfigurationError, "german.*english"),
            ({"distance": "hamming"}, ConfigurationError, "must be"),
            ({"dim": 0}, ConfigurationError, "must be"),
        ):
            with pytest.raises(error, match=reason):
                opened(**settings)

    def test_an_index_of_another_tokenizer_version_is_refused(
        self, opened: Callable[..., S], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        older = tokenizer_module.TOKENIZER_VERSION - 1
        with monkeypatch.context() as patched:
            patched.setattr(tokenizer_module, "TOKENIZER_VERSION", older)
            patched.setitem(Tokenizer.__init__.__kwdefaults__ or {}, "version", older)
            store = opened()
            store.add([node("a")])
            store.close()
        advice = f"got {older}; index the documents again"
        with pytest.raises((ConfigurationError, StoreFormatError), match=advice):
            found(opened(), MODES.SPARSE)
        with monkeypatch.context() as patched:  # on a server the next test gets the collection
            patched.setattr(tokenizer_module, "TOKENIZER_VERSION", older)
            patched.setitem(Tokenizer.__init__.__kwdefaults__ or {}, "version", older)
            opened().clear()

    def test_a_store_sees_additions_and_clearing_by_another_object(
        self, opened: Callable[..., S]
    ) -> None:
        first, second = opened(), opened()
        first.add([node("a")])
        assert found(second) == ["a"]
        second.clear()
        assert found(first) == []
        first.add([node("b")])
        assert found(first) == found(second) == ["b"]
        second.clear()
        first.add([node("c")])  # though it still takes the collection to be there
        assert ids(second) == ["c"]

    def test_a_new_field_is_indexed_from_what_is_stored(self, opened: Callable[..., S]) -> None:
        def ids_by_actor(store: EngineStore, name: str) -> list[str]:
            candidates = store.keyword(name, Search(5, fields={"actors": 1})).function()
            return [candidate.node_id for candidate in candidates]

        letters = str.maketrans("0123456789", "bcdfghjklm")
        names = [f"{number:05}".translate(letters) for number in range(300)]
        first = opened(schema=Schema(text={"title": 3, "text": 1}))
        first.add([node(name, title="film", actors=[name]) for name in names])
        before = first.get_nodes()
        schema = Schema(text={"title": 3, "text": 1, "actors": 2})
        store = opened(schema=schema)
        assert (store.unindexed, ids_by_actor(store, names[7])) == (["actors"], [])
        assert (store.index_fields(), store.index_fields()) == (len(names), 0)
        first.add([node("new", title="film", actors=["anna"])])  # opened before there was the field
        for again in (store, opened()):
            assert (again.field_schema, again.unindexed) == (schema, [])
            assert ids_by_actor(again, names[7]) == [names[7]]
            assert ids_by_actor(again, "anna") == ["new"]
            assert again.get_nodes()[:-1] == before
            assert len(found(again, MODES.SPARSE, similarity_top_k=5)) == 5

    @pytest.mark.slow
    def test_concurrent_writers_and_readers_lose_nothing(self, store: S) -> None:
        def write(writer: int) -> None:
            for call in range(10):
                store.add([node(f"{writer}-{call}-{number}") for number in range(5)])

        def read(_: int) -> None:
            for _ in range(10):
                names = store.query(query(MODES.HYBRID, similarity_top_k=3)).ids or []
                assert len({*names}) == len(names) <= 3

        with ThreadPoolExecutor(8) as pool:
            for job in [pool.submit(job, number) for number in range(4) for job in (write, read)]:
                job.result()
        assert len(ids(store)) == store.count() == 4 * 10 * 5
