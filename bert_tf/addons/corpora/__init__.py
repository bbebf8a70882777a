"""Text of other formats, cleaned and extended vocabularies."""
