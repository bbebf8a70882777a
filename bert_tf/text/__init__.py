"""Raw text to WordPiece ids: vocabularies, the tokenizer, readers of documents."""
