"""Scores that the tasks are judged by."""
