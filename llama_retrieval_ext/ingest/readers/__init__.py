"""Files as documents with lasting ids."""
