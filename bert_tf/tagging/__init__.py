"""Tagged words: their files, their labels, and the windows that they are read in."""
