"""What goes around the recipe: the core imports nothing of it."""
