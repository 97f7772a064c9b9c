"""Arguments of LlamaIndex's retrievers, as the ones of the same name here take them."""

from collections.abc import Mapping, Sequence

from llama_index.core.schema import IndexNode


def objects_by_id(
    objects: Sequence[IndexNode] | None, object_map: Mapping[str, object] | None
) -> dict[str, object]:
    """What index nodes stand for, by their id, from the two arguments that there are for it."""
    return {**(object_map or {}), **{node.index_id: node.obj for node in objects or ()}}
