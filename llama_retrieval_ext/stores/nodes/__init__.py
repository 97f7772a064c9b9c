"""How nodes are stored, whatever the engine: as text, as terms, as vectors."""
