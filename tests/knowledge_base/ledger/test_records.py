from llama_index.core.schema import TextNode

from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, Prepared
from tests.knowledge_base.ledger.memory_server import Server


def test_long_values_are_split_into_records_that_milvus_accepts(server: Server) -> None:
    nodes = [TextNode(id_=f'"{n}' * 40, text='"' * 100, embedding=[1.0]) for n in range(500)]
    key = DocumentKey("", "", "a" * 500)
    writer = server.writer()
    writer.write([Prepared(key, "1", tuple(nodes))])
    server.journal().begin([Prepared(key, "2", tuple(nodes[1:]))])
    assert len(server.beside.nodes) > 4
    longest = max(len(node.model_dump_json()) for node in server.beside.nodes.values())
    assert longest < 65_000
    assert server.ledger().node_ids([key]) == {key: sorted(node.node_id for node in nodes)}
