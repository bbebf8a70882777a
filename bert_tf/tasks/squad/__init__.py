"""SQuAD: reading, windows, decoding, scores, and its run."""
