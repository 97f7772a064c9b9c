"""`ingest_with_ray`: reading, splitting and embedding on a Ray cluster."""
