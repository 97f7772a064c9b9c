"""The ledger of a knowledge base on a server: records in the same engine, beside the nodes."""
