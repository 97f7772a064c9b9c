"""The attacks of the benchmark of leaks, in small: nothing leaks, and without a scope it would."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.testing import FakeEmbedding
from tests import leaks
from tests.leaks import OTHER_PRINCIPAL, OTHER_TENANT, STORE_MODES, Rate, World

pytestmark = pytest.mark.slow
MODES = (*STORE_MODES, "graph")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def opened(stack: ExitStack) -> KnowledgeBase:
    model, graph = FakeEmbedding(dim=32), "graph::memory:"
    return stack.enter_context(
        KnowledgeBase.open(
            "embedded::memory:",
            embed_model=model,
            graph=graph,
            links=leaks.LINKS,
            schema=leaks.SCHEMA,
        )
    )


def test_probes_and_walks_leak_without_a_scope_alone(stack: ExitStack) -> None:
    kb, documents = opened(stack), list(leaks.departments(4))
    leaks.fill(kb, documents)
    asked = list(leaks.probes(documents, 2))
    for mode in MODES:
        assert leaks.recall(kb, documents, mode) > 0.9, mode
        assert leaks.cross_tenant(kb, asked, mode, scoped=False).share > 0.9, mode
        assert leaks.cross_tenant(kb, asked, mode, scoped=True).leaked == 0, mode
    shares = {g: leaks.pivots(kb, documents, 10, g).share for g in ("", "vectors", "scope")}
    assert shares["scope"] == 0
    assert min(shares[""], shares["vectors"]) > 0.5


def test_a_revocation_counts_in_the_next_query_while_others_write(stack: ExitStack) -> None:
    rate = leaks.revocations(opened(stack), MODES, writers=4, changes=4)
    assert (rate.leaked, rate.tried) == (0, 4 * 4 * 5), rate.examples


@pytest.mark.parametrize("world", [OTHER_TENANT, OTHER_PRINCIPAL], ids=["tenant", "principals"])
def test_hidden_documents_change_no_answer(world: World, stack: ExitStack) -> None:
    clean, secret = opened(stack), opened(stack)
    world.fill(clean, secretly=False)
    world.fill(secret, secretly=True)
    total = sum(leaks.side_channels(clean, secret, world).values(), Rate())
    assert total.tried > 200
    assert total.leaked == 0, "\n".join(total.examples[:3])


def test_documents_that_are_not_hidden_change_all_answers(stack: ExitStack) -> None:
    world = World(Scope("acme"), Scope("acme"), None, compares_scores=True)
    clean, secret = opened(stack), opened(stack)
    world.fill(clean, secretly=False)
    world.fill(secret, secretly=True)
    rates = leaks.side_channels(clean, secret, world)
    assert [channel for channel, rate in rates.items() if not rate.leaked] == ["errors"]


def test_the_area_under_the_curve_is_that_of_ranks() -> None:
    assert leaks.auroc([3, 4], [1, 2]) == leaks.auroc([1, 2], [3, 4]) == 1
    assert leaks.auroc([1, 2, 2], [1, 2, 2]) == 0.5
