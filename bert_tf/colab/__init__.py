"""What notebooks need of the package."""
