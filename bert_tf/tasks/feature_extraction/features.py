r"""BERT as features: its layers' vectors for tokens, words and whole lines.

An input has one text per line, or two with " ||| " between them, as the original's: a
line is stripped, and the last " ||| " counts if there are several. A text is [CLS] A
[SEP], a pair [CLS] A [SEP] B [SEP]. A text that is too long is cut at the end; a pair
loses tokens one by one, each from the longer text. By token, every token has a vector,
including [CLS] and [SEP]. By word, each word between white space has one: its first
piece's vector, or the mean of its pieces' vectors. A word that the tokenizer removes,
such as a lone control character, is read as [UNK]. A word has a vector if its first
piece was not cut off.

JSON lines are the original's, byte for byte, "linex_index" included:

    {"linex_index": 0,
     "features": [{"token": "[CLS]",
                   "layers": [{"index": -1, "values": [0.123456, ...]}, ...]}, ...]}

Numbers are rounded to six decimals, as Python rounds the float32's exact value.
Features that the original lacks keep to that layout: combined layers have their name
for an index ("sum(-1,-2)"); a word is under "word" instead of "token"; sentence vectors
come last, under "sentence": {"pooled": [...], "mean": [{"index": -1, ...}]}.

An npz file has these arrays:

    vectors   [T, L, W]  of the tokens or words of all lines, one after another
    offsets   [N + 1]    int64: line i has vectors[offsets[i]:offsets[i + 1]]
    names     [T]        the tokens or words; longer ones' first 200 characters
    layers    [L]        the name of each of a token's vectors: "-1", "sum(-1,-2)"
    pooled    [N, H]     on request, as below
    cls       [N, L, W]
    mean      [N, L, W]
    max       [N, L, W]
    settings             JSON

Without tokens' vectors there are no `vectors`, `offsets` and `names`.

Shapes: B batch, S sequence, H hidden, N lines, T tokens or words of all lines, L
vectors per token, W their width (H, or several times H for a concatenation).
"""

import dataclasses
import functools
import glob
import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import keras
import numpy as np
from absl import logging
from keras import ops

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.loading import load_encoder, read_model_files
from bert_tf.conversion.source import Source, folder_of
from bert_tf.instances.compilation import compiled
from bert_tf.modeling.encoder import BertEncoder, DictInputModel
from bert_tf.modeling.pooling import pooled_tokens
from bert_tf.records.writing import remove_leftovers
from bert_tf.tasks.feature_extraction.feature_records import (
    POOLED,
    VECTORS,
    FeatureInput,
    Features,
    FeatureSettings,
    extract,
)
from bert_tf.text.wordpiece import WordPieceTokenizer
from bert_tf.training.evaluation import Predictor
from bert_tf.training.step import computing_in, on_devices
from bert_tf.training.strategy import (
    Strategy,
    check_batch_size,
    create_strategy,
    is_chief,
    num_workers,
    sum_over_workers,
)

# How a token's layers are combined (Devlin et al. 2018, Table 7, has sums and a
# concatenation of the last four, and the embeddings).
NONE, SUM, MEAN, WEIGHTED, CONCAT = "none", "sum", "mean", "weighted", "concat"
# Layers by name, next to the numbers.
EMBEDDINGS, ALL = "embeddings", "all"
FORMATS = ("jsonl", "npz")

LayerIndex = int | str  # a number, or EMBEDDINGS


# Layers


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerSelection:
    """Layers, and how they are combined."""

    # Numbers from 0 or from -1 backwards, or EMBEDDINGS; from the words of --layers.
    layers: tuple[LayerIndex, ...]
    combine: str = NONE
    weights: tuple[float, ...] = ()
    num_hidden_layers: int

    def __post_init__(self) -> None:
        number = self.num_hidden_layers
        found: list[LayerIndex] = []
        try:
            for word in (str(layer).strip() for layer in self.layers):
                if word == ALL:
                    found += range(number)
                else:
                    found.append(word if word == EMBEDDINGS else int(word))
        except ValueError as error:
            raise InputError(
                f"`layers` must be numbers, `{EMBEDDINGS}` or `{ALL}`, with commas"
                f" between. Received: {error}"
            ) from error
        object.__setattr__(self, "layers", tuple(found))
        for layer in found:
            if layer != EMBEDDINGS and not -number <= int(layer) < number:
                raise InputError(
                    f"`layers`: the model has {number} layers, {-number} to"
                    f" {number - 1}, and `{EMBEDDINGS}`. Received: {layer}"
                )
        wanted = len(found) if self.combine == WEIGHTED else 0
        if len(self.weights) != wanted or not np.isfinite(self.weights).all():
            raise InputError(
                f"`layer_weights` must be {wanted} finite numbers: one for each of"
                f" `layers` with `combine={WEIGHTED}`, else none. Received:"
                f" {self.weights}"
            )

    @property
    def hidden_states(self) -> list[int]:
        """The places in an encoder's `hidden_states`: the embeddings are first."""
        return [
            0 if layer == EMBEDDINGS else int(layer) % self.num_hidden_layers + 1
            for layer in self.layers
        ]

    @property
    def labels(self) -> list[LayerIndex]:
        """A name for each vector: the layer's, or `sum(-1,-2)`."""
        if self.combine == NONE:
            return list(self.layers)
        return [f"{self.combine}({','.join(map(str, self.layers))})"]

    def vectors_shape(self, hidden_size: int) -> tuple[int, int]:
        """Returns the shape of a token's vectors: (layers, width)."""
        width = hidden_size * (len(self.layers) if self.combine == CONCAT else 1)
        return len(self.labels), width

    def combined(self, hidden_states: Sequence[Any]) -> Any:
        """Converts the layers' outputs [B, S, H] to vectors [B, S, L, W], float32."""
        layers = [ops.cast(states, "float32") for states in hidden_states]
        if self.combine == NONE:
            return ops.stack(layers, axis=2)
        if self.combine == CONCAT:
            return ops.concatenate(layers, axis=-1)[:, :, None]
        if self.combine == WEIGHTED:
            layers = [layer * w for layer, w in zip(layers, self.weights, strict=True)]
        total = sum(layers[1:], start=layers[0])
        if self.combine == MEAN:
            total = total / float(len(layers))
        return total[:, :, None]


def feature_model(
    encoder: BertEncoder, selection: LayerSelection, options: FeatureSettings
) -> DictInputModel:
    """Returns a model of features [B, S, L, W], pooled [B, H], and pooled features."""
    # Layers above the highest requested one are not computed.
    inputs, states = encoder.input, encoder.output
    outputs: dict[str, Any] = {}
    vectors: Any = None
    sentence_vectors = options.sentence_vectors
    if options.token_vectors or set(sentence_vectors) - {POOLED}:
        vectors = selection.combined(
            [states["hidden_states"][place] for place in selection.hidden_states]
        )
    if options.token_vectors:
        outputs[VECTORS] = vectors
    if POOLED in sentence_vectors:
        outputs[POOLED] = ops.cast(states["pooled_output"], "float32")
    for pooling in set(sentence_vectors) - {POOLED}:
        outputs[pooling] = pooled_tokens(vectors, inputs["input_mask"], pooling)
    if options.normalizes:
        for name in sentence_vectors:
            outputs[name] = ops.normalize(outputs[name], axis=-1)
    return DictInputModel(inputs=inputs, outputs=outputs, name="features")


def weights_digest(model: keras.Model) -> str:
    """Returns a digest of a model's weights."""
    digest = hashlib.sha256()
    for weight in sorted(model.weights, key=lambda weight: weight.path):
        value = ops.convert_to_numpy(weight)
        digest.update(f"{weight.path} {value.shape} {value.dtype}\n".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


_OF_TRAINING_ALONE = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
)


class FeatureExtractor:
    """A checkpoint's features, on any strategy, and the files with them."""

    def __init__(
        self,
        source: Source,
        selection: LayerSelection,
        strategy: Strategy,
        options: FeatureSettings,
        *,
        by_pieces: bool = True,
    ) -> None:
        use_pooler = POOLED in options.sentence_vectors
        if use_pooler and names.POOLER[0].original not in source.weights:
            raise InputError(
                f"{source.path} has no pooler: leave `{POOLED}` out of"
                " `sentence_vectors`."
            )
        config = source.require_config()
        config.check_sequences(options.max_seq_length)
        with strategy.scope(), computing_in(options.precision):
            encoder = load_encoder(
                source, output_hidden_states=True, use_pooler=use_pooler
            )
            model = feature_model(encoder, selection, options)
        self.selection = selection
        self.is_chief = is_chief(strategy)  # whether this process writes the files
        self._strategy = strategy
        self._options = options
        self._shape = selection.vectors_shape(config.hidden_size)
        step = on_devices().prediction_step(
            model, strategy, jit_compile=options.jit_compile, by_pieces=by_pieces
        )
        self._predictor = Predictor("features", step, strategy)
        self._config = config
        self._model = model

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """Returns the settings that decide the features, except inputs, as JSON."""
        config = self._config.to_dict()
        for name in _OF_TRAINING_ALONE:
            del config[name]
        return {
            "config": config,
            "weights": weights_digest(self._model),
            "selection": dataclasses.asdict(self.selection),
            # The names in the files of earlier versions: one more, one less.
            "options": {
                {"num_lengths": "max_lengths"}.get(name, name): value
                for name, value in dataclasses.asdict(self._options).items()
                if name != "normalizes" or value
            },
        }

    def extract(
        self,
        inputs: Iterable[FeatureInput],
        num_inputs: int = 0,
        batch_size: int | None = None,
    ) -> Iterator[Features]:
        """Yields the features of inputs, in their order."""
        inputs = map(self._checked, inputs)
        size = batch_size or self._options.batch_size
        return extract(
            inputs,
            self._predictor.run,
            dataclasses.replace(self._options, batch_size=size),
            values_per_token=math.prod(self._shape) * self._options.token_vectors,
            num_inputs=num_inputs,
        )

    def _checked(self, given: FeatureInput) -> FeatureInput:
        self._config.check_sequences(len(given.ids), 1 + max(given.segment_ids))
        return given

    def write(
        self,
        inputs: Iterable[FeatureInput],
        output: str,
        output_format: str = "jsonl",
        *,
        vector_type: str = "float32",
        num_inputs: int = 0,
    ) -> None:
        """Writes the features of inputs to a file of one of FORMATS."""
        if files.is_folder(output):
            raise InputError(f"The output file is a folder, not a file: {output}")
        labels = self.selection.labels

        def write(file: IO[bytes], features: Iterable[Features]) -> None:
            if output_format == "npz":
                write_arrays(file, features, labels, self.settings, vector_type)
                return
            for index, each in enumerate(features):
                file.write(json_line(index, each, labels))

        self._write(output, self.extract(inputs, num_inputs), write)

    def vectors(
        self, inputs: Sequence[FeatureInput], folder: str, name: str
    ) -> np.ndarray:
        """Returns all inputs' vectors, [T, L, W], kept in FOLDER/NAME-DIGEST.npy."""
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode())
        for each in inputs:
            digest.update(repr((each.ids, each.segment_ids, each.spans)).encode())
        path = os.path.join(folder, f"{name}-{digest.hexdigest()[:16]}.npy")

        def write(file: IO[bytes], features: Iterable[Features]) -> None:
            header = {
                "descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)),
                "fortran_order": False,
                "shape": (sum(each.num_vectors for each in inputs), *self._shape),
            }
            np.lib.format.write_array_header_1_0(file, header)
            for each in features:
                assert each.vectors is not None
                file.write(each.vectors.tobytes())

        if self._all_workers(files.exists(path)):
            logging.info("The features are in %s.", path)
        else:
            if self.is_chief:
                pattern = glob.escape(os.path.join(folder, name)) + f"-{'?' * 16}.npy*"
                for other in files.glob(pattern):
                    files.remove(other)
            self._write(path, self.extract(inputs, len(inputs)), write)
        if not files.is_remote(path):
            return np.load(path, mmap_mode="r")
        with files.open_binary(path) as file:
            return np.load(file)

    def _write(
        self,
        path: str,
        features: Iterator[Features],
        write: Callable[[IO[bytes], Iterable[Features]], None],
    ) -> None:
        """Writes features; each worker computes them, and one of them writes."""
        if self.is_chief:
            if folder := os.path.dirname(path):
                files.make_folder(folder)
            remove_leftovers(path)
            with files.replacing(path) as file:
                write(file, features)
        for _ in features:
            pass
        self._all_workers(True)  # the file must exist before any of them continues

    def _all_workers(self, here: bool) -> bool:
        """Whether a condition holds on all workers; all of them must call this."""
        count = sum_over_workers(self._strategy, [float(here)])[0]
        return bool(count == num_workers(self._strategy))


def open_extractor(
    options: Any,
    layers: Sequence[str],
    *,
    combine: str = NONE,
    weights: tuple[float, ...] = (),
    **others: Any,
) -> tuple[FeatureExtractor, WordPieceTokenizer]:
    """Returns a command's extractor, on its devices, and its checkpoint's tokenizer."""
    strategy = create_strategy(options)
    check_batch_size(strategy, options.batch_size, flag="batch_size")
    model_files = read_model_files(options, folder_of(options.init_checkpoint))
    assert model_files.source is not None
    selection = LayerSelection(
        layers=tuple(layers),
        combine=combine,
        weights=weights,
        num_hidden_layers=model_files.config.num_hidden_layers,
    )
    extractor = FeatureExtractor(
        dataclasses.replace(model_files.source, config=model_files.config),
        selection,
        strategy,
        FeatureSettings(
            batch_size=options.batch_size,
            max_seq_length=options.max_seq_length,
            num_lengths=options.num_lengths,
            precision=options.precision,
            jit_compile=options.jit_compile,
            **others,
        ),
    )
    return extractor, model_files.tokenizer


# Files


# All strings of an array take the width of its longest one.
_MAX_NAME = 200


def write_arrays(
    file: IO[bytes],
    features: Iterable[Features],
    labels: Sequence[LayerIndex],
    settings: Mapping[str, Any],
    vector_type: str = "float32",
) -> None:
    """Writes an npz file from arrays that fit in memory."""
    columns: dict[str, list[np.ndarray]] = {}
    words: list[str] = []
    offsets = [0]
    for each in features:
        blocks = {name: vector[None] for name, vector in each.sentence.items()}
        if each.vectors is not None:
            blocks[VECTORS] = each.vectors
            words += [name[:_MAX_NAME] for name in each.input.names]
            offsets.append(offsets[-1] + len(each.vectors))
        for name, block in blocks.items():
            columns.setdefault(name, []).append(block.astype(vector_type))
    if not columns:
        raise InputError("The input has no line: give one, or `format=jsonl`.")
    arrays: dict[str, Any] = {
        name: np.concatenate(parts) for name, parts in columns.items()
    }
    if VECTORS in arrays:
        arrays["names"] = np.array(words, str)
        arrays["offsets"] = np.array(offsets, np.int64)
    arrays["layers"] = np.array([str(label) for label in labels])
    arrays["settings"] = np.array(json.dumps(settings, sort_keys=True))
    np.savez(file, **dict(sorted(arrays.items())))


def json_line(index: int, features: Features, labels: Sequence[LayerIndex]) -> bytes:
    """Returns the line of input `index`, with its line feed."""
    heads = [f'{{"index": {json.dumps(label)}, "values": [' for label in labels]

    def layers(texts: Iterator[str]) -> str:
        return ", ".join([f"{head}{next(texts)}]}}" for head in heads])

    parts = [f'{{"linex_index": {index}']
    if features.vectors is not None:
        key = "token" if features.input.spans is None else "word"
        width = features.vectors.shape[-1]
        texts = iter(number_lists(features.vectors.reshape(-1, width)))
        entries = [
            f'{{"{key}": {json.dumps(name)}, "layers": [{layers(texts)}]}}'
            for name in features.input.names
        ]
        parts.append(f'"features": [{", ".join(entries)}]')
    if features.sentence:
        entries = []
        for name, vectors in features.sentence.items():
            texts = iter(number_lists(vectors.reshape(-1, vectors.shape[-1])))
            value = next(texts) if vectors.ndim == 1 else layers(texts)
            entries.append(f'"{name}": [{value}]')
        parts.append(f'"sentence": {{{", ".join(entries)}}}')
    return f"{', '.join(parts)}}}\n".encode("ascii")


# Below it six decimals are at most 15 digits, which a float64 can represent.
_LIMIT = 1e9


def number_lists(rows: np.ndarray) -> list[str]:
    """Returns each row's float32 numbers as in a JSON list: "0.5, -1.25"."""
    if not rows.size:
        return [""] * len(rows)
    rows = np.ascontiguousarray(rows, np.float32)
    if not (np.abs(rows) < _LIMIT).all():  # this includes NaN
        return [
            ", ".join(
                json.dumps(round(value, 6) if math.isfinite(value) else value)
                for value in row
            )
            for row in rows.tolist()
        ]
    data, ends = _written_numbers(rows)
    text = data.tobytes().decode("ascii")
    return [text[a:b] for a, b in itertools.pairwise([0, *ends.tolist()])]


@compiled
def _written_numbers(rows):
    """Returns the concatenated texts of the rows, and where each one ends."""
    # A float32 has 24 bits and 10^6 = 2^6 15625 has 14 that are not shifts, so that
    # their product is exact in a float64, and rounding it is rounding the decimal.
    num_rows, width = rows.shape
    # At most: a sign, 10 digits, a point, 6 digits, a comma and a space.
    data = np.empty(rows.size * 20, np.uint8)
    ends = np.empty(num_rows, np.int64)
    digits = np.empty(20, np.uint8)
    position = 0
    for row in range(num_rows):
        for column in range(width):
            if column:
                data[position] = 44  # ,
                data[position + 1] = 32
                position += 2
            value = np.float64(rows[row, column])
            if np.signbit(value):
                data[position] = 45  # -
                position += 1
            millionths = np.int64(np.rint(abs(value) * 1e6))
            if 0 < millionths < 100:
                # Python writes numbers under 0.0001 like 1.2e-05.
                exponent = 54  # 6
                if millionths >= 10:
                    exponent = 53  # 5
                    data[position] = 48 + millionths // 10
                    position += 1
                    if millionths % 10:
                        data[position] = 46
                        data[position + 1] = 48 + millionths % 10
                        position += 2
                else:
                    data[position] = 48 + millionths
                    position += 1
                data[position] = 101  # e
                data[position + 1] = 45
                data[position + 2] = 48
                data[position + 3] = exponent
                position += 4
                continue
            count = 0
            while millionths or count < 7:
                digits[count] = 48 + millionths % 10
                millionths //= 10
                count += 1
            last = 0
            while last < 5 and digits[last] == 48:
                last += 1
            for index in range(count - 1, last - 1, -1):
                data[position] = digits[index]
                position += 1
                if index == 6:
                    data[position] = 46  # .
                    position += 1
        ends[row] = position
    return data[:position], ends
