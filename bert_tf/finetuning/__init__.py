"""What fine-tuning scripts need beyond the definition of one task."""
