"""The ledger: its configuration, its counts, and how little it reads."""

import pytest

from llama_retrieval_ext.errors import ConfigurationError, ModelMismatchError
from llama_retrieval_ext.knowledge_base.ledger.config import KnowledgeBaseConfig
from tests.knowledge_base.ledger.memory_server import CONFIG, Server, prepared


def test_opening_and_writing_read_no_other_documents(server: Server) -> None:
    server.writer().write([prepared(ref) for ref in "abc"])
    records = [name for name in server.beside.nodes if name.startswith("document:")]
    server.beside.reads.clear()
    ledger = server.ledger()
    assert ledger.admit(CONFIG, "here")
    assert ledger.n_nodes_at_rest() == 3
    server.writer().write([prepared("d")])
    assert len(records) == 3
    found = [each for each in server.beside.reads if isinstance(each, list)]
    assert not {name for each in found for name in each}.intersection(records)


def test_concurrent_writers_of_the_configuration_agree(server: Server) -> None:
    del server.beside.nodes["config"]
    first, second = server.ledger(), server.ledger()
    for ledger, tokenizer in ((first, "t"), (second, "u")):
        assert not ledger.admit(KnowledgeBaseConfig("model", tokenizer=tokenizer), "here")
    for ledger in (first, second):
        ledger.update_config(lambda config: config or KnowledgeBaseConfig("model", tokenizer="t"))
    first.record_dimension(3)
    with pytest.raises(ConfigurationError, match="tokenizer"):
        second.record_dimension(3)
    with pytest.raises(ModelMismatchError):
        first.record_dimension(4)
    assert server.ledger().dimension() == 3


def test_a_wrong_number_of_nodes_is_corrected(server: Server) -> None:
    server.writer().write([prepared("a", n_nodes=3)])
    del server.beside.nodes["totals"]
    assert server.ledger().n_nodes_at_rest() == 0
    assert server.ledger().n_nodes_at_rest(exact=True) == 3
    assert server.ledger().n_nodes_at_rest() == 3
