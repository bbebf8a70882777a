"""Studies of a trained model: what it finds likely, and what it looks at."""
