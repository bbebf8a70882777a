"""BERT's layers as arrays: vectors of tokens, words and lines."""
