"""Correlations of predicted with true scores, as GLUE's STS-B reports them."""

from collections.abc import Sequence

import numpy as np


def pearson_and_spearman(
    predictions: Sequence[float] | np.ndarray, labels: Sequence[float] | np.ndarray
) -> tuple[float, float]:
    """Pearson's r and Spearman's rho; 0 where one side is constant."""
    from scipy import stats

    # In float32, predictions that are nearly constant lose the third decimal.
    predictions = np.asarray(predictions, np.float64)
    labels = np.asarray(labels, np.float64)
    if len(predictions) < 2 or np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return 0.0, 0.0
    pearson = stats.pearsonr(predictions, labels).statistic
    spearman = stats.spearmanr(predictions, labels).statistic
    return float(pearson), float(spearman)
