"""Normalisations: the scores of one ranking brought to a scale that other rankings share."""
