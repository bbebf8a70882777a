"""A checkpoint's features, on any strategy: the model, and the step that runs it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.conversion import names
from bert_tf.conversion.loading import load_encoder
from bert_tf.conversion.source import Source
from bert_tf.errors import InputError
from bert_tf.features import extraction
from bert_tf.features.cache import FeatureArrays, cached, digest_of
from bert_tf.features.choices import FIRST_PIECE, FLOAT32, POOLED
from bert_tf.features.extraction import Group
from bert_tf.features.formats import format_of
from bert_tf.features.inputs import FeatureInput
from bert_tf.features.layers import LayerSelection
from bert_tf.features.model import feature_model, weights_digest
from bert_tf.features.writing import write_features
from bert_tf.modeling.objectives import Objective
from bert_tf.training.evaluation import Predictor
from bert_tf.training.step import computing_in
from bert_tf.training.strategy import Agreement, is_chief, num_workers
from bert_tf.training.task import Task

_OF_TRAINING_ALONE = {
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
}


class FeatureSession:
    """Extracts features with one model."""

    def __init__(
        self,
        source: Source,
        selection: LayerSelection,
        strategy: tf.distribute.Strategy,
        *,
        batch_size: int = 32,
        max_seq_length: int = 128,
        max_lengths: int | None = 12,
        token_vectors: bool = True,
        sentence_vectors: Sequence[str] = (),
        word_vectors: str = FIRST_PIECE,
        precision: str = "float32",
        jit_compile: bool = False,
    ) -> None:
        use_pooler = POOLED in sentence_vectors
        if use_pooler and names.POOLER[0].original not in source.weights:
            raise InputError(
                f"{source.path} has no pooler: leave `{POOLED}` out of"
                " --sentence_vectors."
            )
        config = source.require_config()
        config.check_sequence_length(max_seq_length)
        with strategy.scope(), computing_in(precision):
            encoder = load_encoder(
                source, output_hidden_states=True, use_pooler=use_pooler
            )
            self.model = feature_model(
                encoder,
                selection,
                token_vectors=token_vectors,
                sentence_vectors=sentence_vectors,
            )
        self.selection = selection
        self._strategy = strategy
        task = Task(
            name="features", build_model=lambda: self.model, objective=Objective({})
        )
        self._predictor = Predictor(task, self.model, strategy, jit_compile=jit_compile)
        vectors, width = selection.vectors_shape(config.hidden_size)
        self._extraction: dict[str, Any] = {
            "values_per_token": vectors * width if token_vectors else 0,
            "batch_size": batch_size,
            "max_seq_length": max_seq_length,
            "max_lengths": max_lengths,
            "word_vectors": word_vectors,
        }
        # All that an input's features hang on, and how a killed run is cut into parts.
        described = config.to_dict()
        self.settings: dict[str, Any] = {
            "config": {
                name: described[name]
                for name in sorted(described.keys() - _OF_TRAINING_ALONE)
            },
            "inputs_at_once": extraction.INPUTS_AT_ONCE,
            "values_at_once": extraction.VALUES_AT_ONCE,
            "weights": weights_digest(self.model),
            "layers": list(selection.layers),
            "combine": selection.combine,
            "layer_weights": list(selection.weights),
            "token_vectors": token_vectors,
            "sentence_vectors": list(sentence_vectors),
            "word_vectors": word_vectors,
            "precision": precision,
            "batch_size": batch_size,
            "max_seq_length": max_seq_length,
            "max_lengths": max_lengths,
        }

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes."""
        return is_chief(self._strategy)

    def extract(
        self,
        inputs: Iterable[FeatureInput],
        *,
        num_inputs: int | None = None,
        is_done: Callable[[int], bool] = lambda number: False,
    ) -> Iterator[Group]:
        """Yields groups of features, in the inputs' order: `extraction.extract`."""
        return extraction.extract(
            inputs,
            lambda batches, total: self._predictor.run(batches, total_batches=total),
            num_inputs=num_inputs,
            is_done=is_done,
            **self._extraction,
        )

    def write(
        self,
        inputs: Iterable[FeatureInput],
        output: str,
        format_name: str,
        *,
        made_from: dict[str, Any],
        vector_type: str = FLOAT32,
        num_inputs: int | None = None,
    ) -> None:
        """Writes the features of inputs; killed and called again, it goes on."""
        settings = self.settings | made_from
        settings |= {"format": format_name, "vector_type": vector_type}
        write_features(
            inputs,
            lambda inputs, is_done: self.extract(
                inputs, num_inputs=num_inputs, is_done=is_done
            ),
            output,
            format_of(format_name, self.selection.labels, settings, vector_type),
            settings,
            is_chief=self.is_chief,
        )
        self._all_workers(True)  # none goes on before the file is there

    def cached(
        self,
        inputs: Sequence[FeatureInput],
        folder: str,
        *,
        vector_type: str = FLOAT32,
    ) -> FeatureArrays:
        """The features of inputs as arrays: computed once, then read from a folder."""
        made_from = {"inputs": digest_of(inputs)}
        settings = self.settings | made_from
        settings |= {"format": "npy", "vector_type": vector_type}
        return cached(
            folder,
            settings,
            lambda: self.write(
                inputs,
                folder,
                "npy",
                made_from=made_from,
                vector_type=vector_type,
                num_inputs=len(inputs),
            ),
            self._all_workers,
        )

    def _all_workers(self, here: bool) -> bool:
        """Whether something is so for all workers, who all must ask."""
        count = Agreement(self._strategy, 1).sum([float(here)])[0]
        return bool(count == num_workers(self._strategy))
