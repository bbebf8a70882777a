"""Labels of words: reading, labels, and its runs."""
