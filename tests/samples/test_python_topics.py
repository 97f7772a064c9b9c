import re
import sys
from pydoc_data.topics import topics

from llama_index.core.schema import MetadataMode

from llama_retrieval_ext.samples.python_topics import python_topics


def test_a_python_topic_document_has_topic_and_version() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for document in python_topics():
        assert document.metadata == {
            "topic": document.doc_id.removeprefix("python/"),
            "python": version,
        }


def test_the_python_version_of_a_topic_is_not_embedded() -> None:
    document = {document.doc_id: document for document in python_topics()}["python/lambda"]
    embedded = document.get_content(metadata_mode=MetadataMode.EMBED)
    assert embedded.startswith("topic: lambda\n\nLambdas\n\n")
    assert "python: " not in embedded


def test_a_python_topic_loses_only_underlines_of_headings_and_empty_lines() -> None:
    for document in python_topics():
        original = topics[document.metadata["topic"]]
        kept = re.sub(r"(?m)^[*=~-]{3,}$", "", original).split()
        assert document.text.split() == kept
