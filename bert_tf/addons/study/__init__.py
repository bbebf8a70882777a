"""Comparisons, the paper's tables, and what models know."""
