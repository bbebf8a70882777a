"""What extract_features' flags choose from; imports nothing, for --help's sake."""

# What is made of a token's layers: `layers`.
NONE, SUM, MEAN, WEIGHTED, CONCAT = "none", "sum", "mean", "weighted", "concat"
COMBINATIONS = (NONE, SUM, MEAN, WEIGHTED, CONCAT)

# Vectors of a whole input: `model`.
POOLED, CLS, MEAN_OF_TOKENS = "pooled", "cls", "mean"
SENTENCE_VECTORS = (POOLED, CLS, MEAN_OF_TOKENS)

# A word's vector from its pieces': `extraction`.
FIRST_PIECE, MEAN_OF_PIECES = "first", "mean"
WORD_VECTORS = (FIRST_PIECE, MEAN_OF_PIECES)

# How they are stored: `formats`.
FORMATS = ("jsonl", "npz", "npy", "parquet", "tfrecord")
FLOAT32, FLOAT16 = "float32", "float16"
