"""Planning a training, observing it, and reporting its results."""
