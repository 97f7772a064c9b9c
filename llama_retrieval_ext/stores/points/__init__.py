"""What the engines of the Qdrant family share: how filters are put before either writes them."""
