"""What anything may use: files, options, errors, commands' frame."""
