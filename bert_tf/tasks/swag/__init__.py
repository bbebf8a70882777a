"""Multiple choice: premises, their endings, and which one follows."""
