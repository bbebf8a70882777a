"""What benchmarks are made of; the scripts are one folder up."""
