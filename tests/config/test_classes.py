"""Classes that a YAML file may name."""

from llama_retrieval_ext.config.spec import class_definitions


def test_every_class_that_a_file_may_name_is_a_part_of_pipelines() -> None:
    # No opener of files or sockets, and nothing that calls what a file names.
    for name, definition in class_definitions().items():
        assert definition.kind.__module__.startswith(("llama_retrieval_ext.", "llama_index.core."))
        assert name not in {"KnowledgeBase", "EmbeddedGraph", "EmbeddedVectorStore"}
