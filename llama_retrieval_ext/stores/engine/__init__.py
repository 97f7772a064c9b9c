"""What all engines share."""
