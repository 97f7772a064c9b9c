"""The shape of a retriever as text, as Mermaid, and in a notebook."""

from llama_retrieval_ext import RRF, Retriever, Top
from llama_retrieval_ext.stages import HyDE
from llama_retrieval_ext.testing import FakeRetriever, FixedRetriever, ScriptedLLM

a, b = FixedRetriever(name="a"), FixedRetriever(name="b")
foreign = FakeRetriever([("x", 0.5)])


def deep() -> Retriever:
    inner = HyDE(ScriptedLLM([])) >> (a | b) >> RRF(k=1) >> Top(5)
    return (inner | foreign | a) >> RRF() >> Top(3)


def test_the_outline_is_the_tree() -> None:
    assert deep().outline() == (
        "Top(k=3)\n"
        "└─ RRF()\n"
        "   ├─ Top(k=5)\n"
        "   │  └─ HyDE(ScriptedLLM(...)) >> RRF(k=1)\n"
        "   │     ├─ a\n"
        "   │     └─ b\n"
        "   ├─ FakeRetriever\n"
        "   └─ a"
    )


def test_the_outline_shows_a_leg_twice_that_is_used_twice() -> None:
    assert ((a | a) >> RRF()).outline() == "RRF()\n├─ a\n└─ a"


def test_the_mermaid_chart_has_the_same_tree() -> None:
    assert ((a >> Top(2) | foreign) >> RRF()).mermaid() == (
        "flowchart BT\n"
        '    n1["RRF()"]\n'
        '    n2["Top(k=2)"]\n'
        '    n3["a"]\n'
        "    n3 --> n2\n"
        "    n2 --> n1\n"
        '    n6["FakeRetriever"]\n'
        "    n6 --> n1"
    )


def test_the_mermaid_chart_escapes_quotes() -> None:
    assert '["say #quot;so#quot;"]' in FixedRetriever(name='say "so"').mermaid()


def test_a_notebook_draws_the_shape() -> None:
    shape = (foreign >> Top(1))._repr_mimebundle_()
    assert shape["text/plain"].startswith("Top(k=1)")
    assert shape["text/vnd.mermaid"].startswith("flowchart")
    assert "FakeRetriever" in shape["text/html"]
