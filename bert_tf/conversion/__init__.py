"""Weights from elsewhere into our models, by the original's variable names."""
