"""SQuAD: questions into windows of tokens, scores of tokens into answers."""
