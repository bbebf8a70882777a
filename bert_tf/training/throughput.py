"""How fast a run trains, and what share of its devices' peak it uses."""

import functools
import os
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from bert_tf.config import BertConfig
from bert_tf.training.strategy import is_tpu, num_workers
from bert_tf.training.task import Task

# How many floating-point operations BERT's mathematics takes.
#
# A multiplication and an addition are 2 FLOPs, so a product of [m, k] and [k, n] takes
# 2 m k n. Only matrix products count: lookups, softmax and normalization are small in
# comparison. Training takes three times the forward pass: the backward pass has two
# products for each of the forward pass's (Kaplan et al. 2020, arXiv:2001.08361, section
# 2.1). Recomputation to save memory does not count: divided by the time and by the
# machine's peak this gives the model FLOPs utilization, MFU, of Chowdhery et al. 2022
# (PaLM, arXiv:2204.02311, appendix B).
#
# S sequence, P predictions, H hidden, I intermediate, N layers, V vocabulary, C labels
# (a span has two: start and end).
#
# One sequence, forward:
#
#     queries, keys, values, attention output   N * 8 S H^2
#     scores and context, each [S, S] a head    N * 4 S^2 H
#     feed-forward network                      N * 4 S H I
#     pooler, and labels from it                2 H^2 + 2 H C
#     labels of every token                     2 S H C
#     masked LM: transform, scores              2 P H^2 + 2 P H V
#
# Packed rows take the attention of their whole length, which is what is computed, and
# one pooler for each of their slots. In multiple choice each choice is a sequence with
# one score.


Shapes = Mapping[str, tuple[int, ...]]

# The forward pass, and two products backwards for each of its products.
_TRAINING_OVER_FORWARD = 3
_NEXT_SENTENCE_LABELS = 2
_SPAN_LABELS = 2


def encoder_flops(config: BertConfig, seq_length: int) -> int:
    """FLOPs of the layers on one sequence, forward, with padding."""
    hidden = config.hidden_size
    projections = 8 * seq_length * hidden**2
    attention = 4 * seq_length**2 * hidden
    feed_forward = 4 * seq_length * hidden * config.intermediate_size
    return config.num_hidden_layers * (projections + attention + feed_forward)


def pooled_flops(config: BertConfig, num_labels: int) -> int:
    """FLOPs of one pooler and the scores of labels from it, forward."""
    return 2 * config.hidden_size * (config.hidden_size + num_labels)


def masked_lm_flops(config: BertConfig, num_predictions: int) -> int:
    """FLOPs of the masked LM's head on one sequence, forward, with unused slots."""
    hidden = config.hidden_size
    return 2 * num_predictions * hidden * (hidden + config.vocab_size)


def pretraining_flops(
    config: BertConfig, shapes: Shapes, *, next_sentence: bool = True
) -> float:
    """FLOPs of one step of pre-training on a batch of these shapes."""
    batch_size, seq_length = shapes["input_ids"]
    forward = encoder_flops(config, seq_length)
    forward += masked_lm_flops(config, shapes["masked_lm_positions"][1])
    if next_sentence:
        num_pairs = shapes["cls_positions"][1] if "cls_positions" in shapes else 1
        forward += num_pairs * pooled_flops(config, _NEXT_SENTENCE_LABELS)
    return float(_TRAINING_OVER_FORWARD * batch_size * forward)


def classifier_flops(config: BertConfig, shapes: Shapes, *, num_labels: int) -> float:
    """FLOPs of one training step of a classifier, or with one label a regression."""
    batch_size, seq_length = shapes["input_ids"]
    forward = encoder_flops(config, seq_length) + pooled_flops(config, num_labels)
    return float(_TRAINING_OVER_FORWARD * batch_size * forward)


def multiple_choice_flops(config: BertConfig, shapes: Shapes) -> float:
    """FLOPs of one training step of multiple choice, input_ids [B, choices, S]."""
    batch_size, num_choices, seq_length = shapes["input_ids"]
    sequences = {"input_ids": (batch_size * num_choices, seq_length)}
    return classifier_flops(config, sequences, num_labels=1)


def span_flops(config: BertConfig, shapes: Shapes) -> float:
    """FLOPs of one training step of a span's start and end; see `tagger_flops`."""
    return tagger_flops(config, shapes, num_labels=_SPAN_LABELS)


def tagger_flops(config: BertConfig, shapes: Shapes, *, num_labels: int) -> float:
    """FLOPs of one training step of a label for every token."""
    batch_size, seq_length = shapes["input_ids"]
    forward = encoder_flops(config, seq_length)
    forward += 2 * seq_length * config.hidden_size * num_labels
    return float(_TRAINING_OVER_FORWARD * batch_size * forward)


# The peak rate of the devices, by which a run's rate is divided:
#
#     share of the peak = FLOPs of the model per step / seconds per step / peak
#
# is the model FLOPs utilization (see above). The peak is the rate of matrix products in
# the precision that the model computes in:
#
#     GPUs, TPUs  as published, without sparsity, times their number
#     others      measured, at the start of the run, in less than a second
#
# A CPU's is always measured. The replicas of one process share its cores, so they count
# once.


_TERA = 1e12


class PublishedPeak(NamedTuple):
    """TFLOP/s of one GPU or TPU chip, dense.

    Attributes:
        half: of bfloat16 and float16 products; their tensor cores are equally fast.
        float32: of float32 products as TensorFlow makes them by default: in TF32 on
            Ampere and Hopper, in bfloat16 on TPUs.
        plain_float32: of float32 products when TF32 is off.
        has_bfloat16: whether bfloat16 has products of its own.
    """

    half: float
    float32: float
    plain_float32: float
    has_bfloat16: bool = True


# By the first pattern that the device's name matches. Sources: NVIDIA's data sheets of
# the T4 (2019), V100 (2020), A100 (2021), H100 (2023) and H200 (2024), whose figures
# with sparsity are halved here.
_GPUS = {
    r"H200 NVL": PublishedPeak(835.5, 417.5, 60.0),
    r"H200|GH200": PublishedPeak(989.5, 494.5, 67.0),
    r"H100 NVL": PublishedPeak(835.5, 417.5, 60.0),
    r"H100 PCIe": PublishedPeak(756.5, 378.0, 51.0),
    r"H100": PublishedPeak(989.5, 494.5, 67.0),
    r"A100": PublishedPeak(312.0, 156.0, 19.5),
    r"V100-SXM": PublishedPeak(125.0, 15.7, 15.7, False),
    r"V100": PublishedPeak(112.0, 14.0, 14.0, False),
    r"\bT4\b": PublishedPeak(65.0, 8.1, 8.1, False),
}

# By the type of the accelerator, such as v4-32. Sources: Jouppi et al. 2020 (CACM 63-7)
# for v2 and v3, Google Cloud's documentation of each version for the rest. By default
# a TPU computes float32 products from bfloat16 ones.
_TPU_CHIPS = {
    "v2": 46.0,
    "v3": 123.0,
    "v4": 275.0,
    "v5litepod": 197.0,
    "v5p": 459.0,
    "v6e": 918.0,
}
# The number in these types counts cores, two per chip; in the others, chips.
_NAMED_BY_CORES = ("v2", "v3", "v4", "v5p")

# Rows and columns. On a CPU the large product takes some 10 ms, the small one 1 ms,
# short enough that some measurements are undisturbed by other programs.
_CPU_SIZES = (512, 1024)
_ACCELERATOR_SIZES = (8192,)
_MEASURED_SECONDS = 0.7


def model_flops_per_step(
    task: Task, element_spec: Mapping[str, tf.TensorSpec]
) -> float | None:
    """FLOPs of the task's mathematics in one training step."""
    shapes = {name: tuple(spec.shape) for name, spec in element_spec.items()}
    if task.training_flops is None or any(None in shape for shape in shapes.values()):
        return None
    return task.training_flops(shapes)


def share_of_peak(flops: float, seconds: float, peak: float) -> float:
    """The model FLOPs utilization: 1 if the devices compute only its products."""
    return flops / seconds / peak


def peak_flops(strategy: tf.distribute.Strategy, precision: str = "float32") -> float:
    """The peak FLOP/s of all devices of a strategy together."""
    if is_tpu(strategy):
        # Google's machines set one or the other; the names are of a whole slice.
        kind = os.environ.get("TPU_ACCELERATOR_TYPE") or os.environ.get(
            "ACCELERATOR_TYPE", ""
        )
        published = published_tpu_peak(kind)
        if published is None:
            logging.info("TPU of type %r: no published peak is known.", kind)
            replicas = strategy.num_replicas_in_sync
            return replicas * measured_peak(precision, "/TPU:0")
        return published
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "")
        one = published_gpu_peak(
            name, precision, tf.config.experimental.tensor_float_32_execution_enabled()
        )
        if one is None:
            logging.info("GPU %r: its peak is measured, none is known.", name)
            one = measured_peak(precision, "/GPU:0")
        return one * strategy.num_replicas_in_sync
    return measured_peak(precision, "/CPU:0") * num_workers(strategy)


def published_gpu_peak(
    name: str, precision: str, tensor_float_32: bool = True
) -> float | None:
    """FLOP/s of one GPU, from its maker; None if it is not in this table."""
    for pattern, peak in _GPUS.items():
        if re.search(pattern, name):
            if precision == "float32":
                return _TERA * (peak.float32 if tensor_float_32 else peak.plain_float32)
            if precision == "bfloat16" and not peak.has_bfloat16:
                return None
            return _TERA * peak.half
    return None


def published_tpu_peak(accelerator_type: str) -> float | None:
    """A whole slice's published FLOP/s; None if it is not in this table."""
    version, _, number = accelerator_type.partition("-")
    if version not in _TPU_CHIPS or not number.isdecimal():
        return None
    chips = int(number) / (2 if version in _NAMED_BY_CORES else 1)
    return _TERA * chips * _TPU_CHIPS[version]


@functools.cache
def measured_peak(precision: str = "float32", device: str = "/CPU:0") -> float:
    """FLOP/s of one device in matrix products: the best of many within a second.

    On a busy machine the result is too low, and the share of it may exceed 1.
    """
    sizes = _CPU_SIZES if "CPU" in device else _ACCELERATOR_SIZES
    return max(
        _best_rate(size, precision, device, _MEASURED_SECONDS / len(sizes))
        for size in sizes
    )


def _best_rate(size: int, precision: str, device: str, seconds: float) -> float:
    """FLOP/s of the fastest product of two matrices [size, size] within some time."""
    product: Any = tf.function(lambda a, b: tf.reduce_max(tf.matmul(a, b)))
    with tf.device(device):
        values = tf.random.stateless_uniform([2, size, size], [1, 2], -1.0, 1.0)
        a, b = tf.unstack(tf.cast(values, precision))
        product(a, b).numpy()  # compiles, and fills the caches
        best = float("inf")
        began = now = time.perf_counter()
        while now - began < seconds:
            start = now
            product(a, b).numpy()  # waits for the device
            now = time.perf_counter()
            best = min(best, now - start)
    return 2.0 * size**3 / best
