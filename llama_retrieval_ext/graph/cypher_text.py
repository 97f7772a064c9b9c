"""Parts of Cypher statements: quoted identifiers and scope conditions. Values are parameters."""

import re
from typing import Final

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY, Scope

# Letters of any script, digits and a few separators; no character that ends an identifier.
_IDENTIFIER: Final = re.compile(r"\w(?:[\w .:/@+-]{0,126}\w)?")


def quoted(identifier: str) -> str:
    """Return a label, relation type or property name, quoted for Cypher.

    Raises:
        ConfigurationError: It has characters other than letters, digits and `` _.:/@+-``.

    Examples:
        >>> quoted("HAS_HAZARD"), quoted("危险源")
        ('`HAS_HAZARD`', '`危险源`')

    """
    if not isinstance(identifier, str) or not _IDENTIFIER.fullmatch(identifier):
        raise ConfigurationError(
            f"got the identifier {identifier!r}; a label, relation type or property name has 1 to "
            "128 letters, digits or any of ' _.:/@+-', and begins and ends with a letter or digit"
        )
    return f"`{identifier}`"


def scope_parameters(scope: Scope | None) -> dict[str, object]:
    """Return the parameters for the conditions of `sees_node` and `sees_edge`."""
    if scope is None:
        return {}
    return {"scope_tenant": scope.tenant_id, "scope_kbs": list(scope.kb_ids)}


def sees_node(variable: str, scope: Scope | None) -> str:
    """Return the condition that a scope sees a node; ``true`` without a scope.

    Examples:
        >>> sees_node("n", Scope("acme"))
        'n.`tenant_id` = $scope_tenant'

    """
    parts = []
    if scope is not None and scope.tenant_id is not None:
        parts.append(f"{variable}.`{TENANT_KEY}` = $scope_tenant")
    if scope is not None and scope.kb_ids:
        parts.append(f"{variable}.`{KB_KEY}` IN $scope_kbs")
    return " AND ".join(parts) or "true"


def sees_edge(variable: str, scope: Scope | None) -> str:
    """Return the condition that a scope sees a relationship between two visible nodes.

    Relationships that LlamaIndex's store creates itself, such as ``MENTIONS``, have no tenant: they
    are visible if their ends are.
    """
    parts = []
    if scope is not None and scope.tenant_id is not None:
        key = f"{variable}.`{TENANT_KEY}`"
        parts.append(f"({key} IS NULL OR {key} = $scope_tenant)")
    if scope is not None and scope.kb_ids:
        key = f"{variable}.`{KB_KEY}`"
        parts.append(f"({key} IS NULL OR {key} IN $scope_kbs)")
    return " AND ".join(parts) or "true"
