from llama_retrieval_ext.stores.engine.records import IntentRecords, Record
from tests.knowledge_base.ledger.memory_server import PATIENCE_S, Nodes


def test_at_most_one_of_two_concurrent_replacements_of_a_record_succeeds() -> None:
    nodes = Nodes()
    stores = [
        IntentRecords(nodes, is_shared=True, clock=lambda: 1e9, patience_s=PATIENCE_S)  # type: ignore[arg-type]  # as above
        for _ in range(2)
    ]
    written: list[dict[str, str]] = []

    def write_the_other() -> None:  # it comes between the first one's look and its write
        nodes.before_add = lambda: None
        written.append(stores[1].replace([Record("a", "of the other")]))

    def after_the_intent() -> None:
        nodes.before_add = write_the_other

    nodes.before_add = after_the_intent
    written.append(stores[0].replace([Record("a", "of the first")]))
    assert len([each for each in written if each]) == 1
    assert list(nodes.nodes) == ["a"]
    assert stores[1].replace([Record("a", "x")]) == {}  # it is there
    (stored,) = stores[0].get(["a"]).values()
    assert stores[1].replace([], remove=[stored]) == {"a": ""}
