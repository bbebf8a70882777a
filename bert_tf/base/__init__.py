"""Shared foundations: files, options, errors and the frame of the commands."""
