"""Other ways to train: ELECTRA, regularization, sentence vectors."""
