"""BERT as features: what its layers say of a text, in files and as arrays."""
