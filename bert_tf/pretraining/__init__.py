"""Whole runs of pre-training: the records of each phase, the model, its evaluation."""
