"""The BERT encoder, its heads and their losses, in Keras 3."""
