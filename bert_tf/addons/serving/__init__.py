"""Trained models that take texts, here and in other runtimes."""
