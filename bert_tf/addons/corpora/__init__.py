"""Readers of other text formats, removal of duplicates, vocabulary extension, Beam."""
