"""The recipe in a few minutes: real text, a vocabulary, pre-training, fine-tuning."""
