"""Files as documents with stable ids."""
