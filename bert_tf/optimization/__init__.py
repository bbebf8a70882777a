"""The optimizer and the learning-rate schedule of Devlin et al. 2018."""
