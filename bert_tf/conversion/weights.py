"""Weights by the original's names, for every format; each is read on demand."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion.names import (
    FOREIGN,
    HEADS,
    OF_VOCABULARY,
    REPLACED_TOKENS,
    Name,
    is_of_a_generator,
    names_of,
)
from bert_tf.modeling.weight_names import STANDARDIZATION, is_added

_LORA_A, _LORA_B = "/lora_kernel_a", "/lora_kernel_b"

# ELECTRA's generator has as many layers.
_LAYER = re.compile(r"(?P<scope>(?:bert|cls/generator)/encoder)/layer_(?P<number>\d+)/")

# Errors name at most this many tensors, and count the rest.
_MOST_NAMED = 8


class Tensor(NamedTuple):
    """An array that is read on demand."""

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]  # float32


class Weights(Mapping[str, np.ndarray]):
    """A checkpoint's weights by the original's names."""

    def __init__(self, path: str, tensors: Mapping[str, Tensor]) -> None:
        self.path = path
        self.tensors = dict(tensors)
        self.shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        return self.tensors[name].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def stacked(self, num_layers: int) -> "Weights":
        """Repeats layers: new layer i is layer i mod L of the L existing ones."""
        # Gong et al. 2019, "Efficient Training of BERT by Progressively Stacking".
        found = {match["number"] for match in map(_LAYER.match, self.tensors) if match}
        if not found or num_layers % len(found):
            raise InputError(
                f"{self.path} has {len(found)} layers, of which {num_layers} cannot"
                " be stacked: give a divisor."
            )
        return self.with_layers([i % len(found) for i in range(num_layers)])

    def with_heads(self, heads: Iterable[str]) -> "Weights":
        """Returns the weights without those of other known heads."""
        others = {
            row.original
            for head in HEADS.values()
            if head.name not in heads
            for row in head.weights
        }
        kept = {
            name: x
            for name, x in self.tensors.items()
            if name not in others
            and not name.startswith(FOREIGN)
            and (REPLACED_TOKENS in heads or not is_of_a_generator(name))
        }
        return Weights(self.path, kept)

    def with_layers(self, layers: Sequence[int]) -> "Weights":
        """Returns the weights of only these layers, renumbered in this order."""
        tensors = {}
        for name, tensor in self.tensors.items():
            match = _LAYER.match(name)
            if match is None:
                tensors[name] = tensor
                continue
            for new, old in enumerate(layers):
                if old == int(match["number"]):
                    rest = f"layer_{new}/{name[match.end() :]}"
                    tensors[f"{match['scope']}/{rest}"] = tensor
        return Weights(self.path, tensors)

    def merged(self) -> "Weights":
        """Returns a plain model's weights, with LoRA merged into the kernels."""
        tensors = dict(self.tensors)
        for name in self.tensors:
            if not name.endswith(_LORA_A):
                continue
            layer = name.removesuffix(_LORA_A)
            kernel, other = f"{layer}/kernel", layer + _LORA_B
            parts = tensors[kernel], tensors.pop(name), tensors.pop(other)
            tensors[kernel] = Tensor(parts[0].shape, _sum(*parts))
        return Weights(self.path, tensors)

    def with_tokens(
        self, added: Mapping[int, Sequence[int]], num_tokens: int
    ) -> "Weights":
        """Returns weights for more tokens: a new row is the mean of some old rows."""
        tensors = dict(self.tensors)
        for name in OF_VOCABULARY:
            if name in tensors:
                read = functools.partial(_extended, tensors[name], added, num_tokens)
                tensors[name] = Tensor((num_tokens, *tensors[name].shape[1:]), read)
        return Weights(self.path, tensors)

    def with_rows(
        self, names: Iterable[str], places: Sequence[int | None]
    ) -> "Weights":
        """Returns weights with these rows of some tensors, in order; None: zeros."""
        tensors = dict(self.tensors)
        for name in tensors.keys() & names:
            read = functools.partial(_chosen, tensors[name], places)
            tensors[name] = Tensor((len(places), *tensors[name].shape[1:]), read)
        return Weights(self.path, tensors)

    def without_standardization(self) -> "Weights":
        """Folds `cls_normalization` into the heads on the pooled output."""
        # W (x - m) / d + b = (W / d) x + (b - (W / d) m)
        tensors = dict(self.tensors)
        mean, deviation = (tensors.pop(name, None) for name in STANDARDIZATION)
        for head in HEADS.values():
            if not head.is_pooled:
                continue
            kernel, bias = (row.original for row in head.weights)
            if mean and deviation and kernel in tensors:
                old = tensors[kernel], tensors[bias], mean, deviation
                for name, place in ((kernel, 0), (bias, 1)):
                    fold = functools.partial(_folded, *old, place)
                    tensors[name] = Tensor(tensors[name].shape, fold)
        return Weights(self.path, tensors)


def _folded(
    kernel: Tensor, bias: Tensor, mean: Tensor, deviation: Tensor, place: int
) -> np.ndarray:
    weights = kernel.read() / deviation.read().astype(np.float64)
    both = weights, bias.read() - weights @ mean.read()
    return both[place].astype(np.float32)


def _extended(
    tensor: Tensor, added: Mapping[int, Sequence[int]], num_tokens: int
) -> np.ndarray:
    old = tensor.read()
    new = np.zeros((num_tokens, *old.shape[1:]), old.dtype)
    new[: len(old)] = old
    for row, pieces in added.items():
        new[row] = old[list(pieces)].mean(0, np.float64)
    return new


def _chosen(tensor: Tensor, places: Sequence[int | None]) -> np.ndarray:
    old = tensor.read()
    zeros = np.zeros_like(old[0])
    return np.stack([zeros if place is None else old[place] for place in places])


def _sum(kernel: Tensor, a: Tensor, b: Tensor) -> Callable[[], np.ndarray]:
    return lambda: kernel.read() + a.read() @ b.read()


def added_options(weights: Weights) -> dict[str, Any]:
    """Returns a model's options for weights added by fine-tuning, without LoRA's."""
    options: dict[str, Any] = {}
    for name, shape in weights.shapes.items():
        if name.endswith("/adapter/down/kernel"):
            options["adapter_size"] = shape[1]
        elif name.endswith("/layer_mixture/scores"):
            options["layer_mixture"] = True
    return dict(sorted(options.items()))


def listed(names: Iterable[str]) -> str:
    """Lists names for a message: all, or the first ones and the number of others."""
    names = list(names)
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def check_against_config(weights: Weights, config: BertConfig) -> list[Name]:
    """Compares a checkpoint's tensors with its config before reading any."""
    rows = names_of(config, weights)
    missing = [row.original for row in rows if row.original not in weights]
    known = {row.original for row in rows}
    left_over = [
        name
        for name in weights
        if name not in known
        and not is_added(name)
        and not is_of_a_generator(name)
        and not name.startswith(FOREIGN)
    ]
    wrong = [
        f"{row.original} is {shown(weights.shapes[row.original])}, by the config"
        f" {shown(row.dimensions(config))}"
        for row in rows
        if row.original in weights
        and not fits(weights.shapes[row.original], row.dimensions(config))
    ]
    refuse_differences(
        f"{weights.path} and its config do not belong together",
        wrong,
        missing,
        left_over,
    )
    return rows


def refuse_foreign(weights: Weights, advice: str) -> None:
    """Raises InputError for tensors of an unknown head."""
    foreign = [n.removeprefix(FOREIGN) for n in weights if n.startswith(FOREIGN)]
    if foreign:
        raise InputError(
            f"{weights.path} has a head that is unknown here: {listed(foreign)}."
            f" {advice} If it is transformers' own, its class must be named as"
            " `architectures` in config.json."
        )


def refuse_differences(
    what: str, wrong: Iterable[str], missing: Iterable[str], left_over: Iterable[str]
) -> None:
    """Raises InputError if a checkpoint's tensors do not match its config."""
    problems = [
        f"{problem}: {listed(names)}"
        for problem, names in (
            ("shapes that are not the config's", wrong),
            ("weights that have no tensor", missing),
            ("tensors that have no place in the model", left_over),
        )
        if names
    ]
    if problems:
        raise InputError(f"{what}: {'; '.join(problems)}.")


def num_outputs(weights: Weights, head: str) -> int:
    """Returns a head's number of outputs, from its output_weights."""
    return weights.shapes[HEADS[head].weights[0].original][0]


def fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    """Whether a shape is the wanted one; None stands for any size."""
    return len(shape) == len(wanted) and all(
        size in (None, there) for there, size in zip(shape, wanted, strict=True)
    )


def shown(shape: Iterable[int | None]) -> str:
    """Returns a shape for messages: [2, ?]."""
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"
