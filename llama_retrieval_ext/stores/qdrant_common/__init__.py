"""What Qdrant and Qdrant Edge share."""
