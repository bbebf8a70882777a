"""Comparisons, probes, scores, and the paper's tables."""
