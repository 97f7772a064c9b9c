"""The skeleton that all engines share."""
