"""Ids of points: the engines take UUIDs, LlamaIndex's nodes have any string."""

from hashlib import sha1
from uuid import NAMESPACE_OID, UUID


def point_id(node_id: str) -> UUID:
    """The engine's id for a node id: any string, one id each, the same for ever."""
    # uuid5, but for lone surrogates, which it refuses.
    name = NAMESPACE_OID.bytes + node_id.encode("utf-8", "surrogatepass")
    return UUID(bytes=sha1(name, usedforsecurity=False).digest()[:16], version=5)
