"""How long a training takes, and how it goes."""
