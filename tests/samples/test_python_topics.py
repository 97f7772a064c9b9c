import re
import sys
from pydoc_data.topics import topics

from llama_retrieval_ext.samples.python_topics import python_topics


def test_a_python_topic_document_has_topic_and_version() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for document in python_topics():
        assert document.metadata == {
            "topic": document.doc_id.removeprefix("python/"),
            "python": version,
        }


def test_a_python_topic_loses_only_underlines_of_headings_and_empty_lines() -> None:
    for document in python_topics():
        original = topics[document.metadata["topic"]]
        kept = re.sub(r"(?m)^[*=~-]{3,}$", "", original).split()
        assert document.text.split() == kept
