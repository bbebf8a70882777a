"""The layers of BERT and of its heads, except the transformer block."""

import collections
import contextlib
import contextvars
import inspect
import itertools
import math
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.base import keras_backend
from bert_tf.base.config import BertConfig
from bert_tf.modeling import fused
from bert_tf.modeling.fused import compiles_inference, next_seed

# Values at some points of a model, for training that watches or changes them:
#
#     "words"        the word embeddings alone, [B, S, E]
#     "embeddings"   the embeddings, [B, S, H]
#     "layer"        a Transformer layer's output, [B, S, H]
#     "scores"       (attention's scores [B, A, S, S], the bias to add to them)


Observer = Callable[[str, Any], Any]

_observer: contextvars.ContextVar[Observer] = contextvars.ContextVar(
    "observer", default=lambda point, x: x
)


def observing(function: Observer) -> contextlib.AbstractContextManager:
    """Context in which a model replaces x by `function(point, x)` at these points."""
    return fused.set_context((_observer, function))


def observe(point: str, x: Any) -> Any:
    """Returns the value to continue with at a point: x itself, unless observed."""
    return _observer.get()(point, x)


# Which parts of a model are trained.
#
# Keras stores the flag `trainable` of a model as a whole. Each layer below it, and each
# weight, has its own flag, which a copy or a saved model must have too.


def frozen_parts(model: Any) -> dict[str, bool]:
    """Returns `trainable` of layers and weights whose owner has another flag.

    The keys are paths of a layer's names, or "weight:" and a weight's path. A layer
    with several owners has one entry per owner.
    """
    flags = {
        path: layer.trainable
        for path, layer, owner in _layers_below(model)
        if layer.trainable != owner.trainable
    }
    owners = _owners(model)
    for weight in model.weights:
        if weight.trainable != owners[id(weight)].trainable:
            flags[_weight_key(model, weight)] = weight.trainable
    return flags


def freeze_parts(model: Any, is_trainable: bool, flags: dict) -> None:
    """Gives a model, its layers and its weights the flags of `frozen_parts`."""
    left = dict(flags)
    model.trainable = is_trainable
    # One by one: Keras hands a flag down only where it changes.
    for path, layer, owner in _layers_below(model):
        layer.trainable = left.pop(path, owner.trainable)
    owners = _owners(model)
    for weight in model.weights:
        flag = left.pop(_weight_key(model, weight), owners[id(weight)].trainable)
        weight.trainable = flag
    if left:
        raise ValueError(f"{model.name} has no part {min(left)!r} to freeze.")


def _weight_key(model: Any, weight: keras.Variable) -> str:
    # A layer may be built again in another scope.
    return "weight:" + weight.path.removeprefix(f"{model.path}/")


def _owners(model: Any) -> dict[int, Any]:
    """The layer that each weight belongs to, by the weight's id."""
    owners = {id(weight): model for weight in model.weights}
    for _, layer, _ in _layers_below(model):
        owners.update((id(weight), layer) for weight in layer.weights)
    return owners


def _layers_below(owner: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each layer's path, itself and its owner; owners before what they own."""
    names: collections.Counter[str] = collections.Counter()
    for layer in owner._flatten_layers(include_self=False, recursive=False):
        names[layer.name] += 1
        number = names[layer.name]
        path = f"{prefix}{layer.name}" + (f"_{number}" if number > 1 else "")
        yield path, layer, owner
        yield from _layers_below(layer, f"{path}/")


class Stored:
    """Lets Keras save and copy a layer: its constructor's arguments are its config."""

    _given: dict[str, Any]
    _flags: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Keeps the arguments, which `get_config` returns."""
        layer = super().__new__(cls, *args, **kwargs)
        bound = inspect.signature(cls.__init__).bind(layer, *args, **kwargs)
        _, *given = bound.arguments.items()
        arguments = dict(given)
        arguments.update(arguments.pop("kwargs", {}))
        object.__setattr__(layer, "_given", arguments)
        object.__setattr__(layer, "_flags", None)
        return layer

    def get_config(self: Any) -> dict[str, Any]:
        """The constructor's arguments, and which parts are trained."""
        config = dict(self._given)
        for name, value in config.items():
            if isinstance(value, BertConfig):
                config[name] = value.to_dict()
            elif isinstance(value, Embeddings):
                config[name] = value.link()
        if "dtype" in config:
            config["dtype"] = keras.dtype_policies.serialize(self.dtype_policy)
        flags = frozen_parts(self)
        return {**config, "trainable": self.trainable, "frozen_parts": flags}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """The layer that `get_config` describes."""
        config = dict(config)
        is_trainable = config.pop("trainable", True)
        flags = config.pop("frozen_parts", {})
        if isinstance(config.get("config"), Mapping):
            config["config"] = BertConfig(**config["config"])
        if isinstance(config.get("dtype"), Mapping):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        if "embeddings" in config:
            config["embeddings"] = linked_embeddings(
                config["embeddings"], cls.__name__, config["config"], config["dtype"]
            )
        layer = cls(**config)
        if flags or not is_trainable:
            object.__setattr__(layer, "_flags", (is_trainable, flags))
        return layer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Keras' own; with the first call there are weights to freeze."""
        outputs = super().__call__(*args, **kwargs)  # type: ignore[misc]
        flags = self._flags
        if flags is not None:
            object.__setattr__(self, "_flags", None)
            freeze_parts(self, *flags)
        return outputs


# The simple layers that all models are made of.
#
# Layers and weights have the original's names, so a variable's `path` is its name in a
# released checkpoint: bert/encoder/layer_0/attention/self/query/kernel.
#
# In training, where shapes seldom change, the operations between matrix products are
# compiled (`bert_tf.modeling.fused`); inference uses Keras' layers.
#
# Shapes: B batch, S sequence, H hidden, E embedding (H unless the config gives it).


def truncated_normal(stddev: float) -> keras.initializers.Initializer:
    """Normal values, redrawn beyond two `stddev`; not rescaled to that deviation.

    Each weight needs its own: an unseeded Keras initializer repeats its values.
    """
    return keras.initializers.TruncatedNormal(stddev=stddev)


def gelu(x: Any) -> Any:
    """The tanh approximation of GELU (Hendrycks and Gimpel 2016, section 2).

    0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as
    x sigmoid(2u): the same function in fewer passes over memory, and exact where
    1 + tanh(u) cancels.
    """
    scale = 2.0 * math.sqrt(2.0 / math.pi)
    return x * ops.sigmoid(x * (scale + (scale * 0.044715) * (x * x)))


def gelu_erf(x: Any) -> Any:
    """GELU itself, x P(X <= x) for a standard normal X."""
    return ops.gelu(x, approximate=False)


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


def activation(name: str) -> Callable[[Any], Any]:
    """The function that a config's `hidden_act` names."""
    return _ACTIVATIONS[name]


def layer_norm(
    epsilon: float, dtype: Any, name: str = "LayerNorm"
) -> keras.layers.LayerNormalization:
    """Layer normalization, under the original's name."""
    return keras.layers.LayerNormalization(epsilon=epsilon, dtype=dtype, name=name)


def dense(
    config: BertConfig,
    units: int,
    dtype: Any,
    name: str = "dense",
    *,
    kind: type[keras.layers.Dense] = keras.layers.Dense,
    **kwargs: Any,
) -> keras.layers.Dense:
    """A dense layer with the original's initial values: truncated normal, zero bias."""
    return kind(
        units,
        kernel_initializer=truncated_normal(config.initializer_range),
        dtype=dtype,
        name=name,
        **kwargs,
    )


@keras.saving.register_keras_serializable(package="bert_tf")
class Embeddings(Stored, keras.layers.Layer):
    """Word, segment and position embeddings: summed, normalized, dropped out."""

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(dtype=dtype, name="embeddings")
        self.bert_config = config
        self.is_linked = False  # a head, or another encoder, has them too
        self.layer_norm = layer_norm(config.layer_norm_eps, self.dtype_policy)
        self.dropout = keras.layers.Dropout(
            config.hidden_dropout_prob, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, *_: Any) -> None:
        """Makes the tables [rows, E] of words, segments and positions."""
        config = self.bert_config
        for table_name, rows in (
            ("word_embeddings", config.vocab_size),
            ("token_type_embeddings", config.type_vocab_size),
            ("position_embeddings", config.max_position_embeddings),
        ):
            table = self.add_weight(
                name=table_name,
                shape=(rows, config.embedding_width),
                initializer=truncated_normal(config.initializer_range),
                # Under mixed precision only the few rows that are read are cast, not
                # the whole table.
                autocast=False,
            )
            setattr(self, table_name, table)
        self.layer_norm.build((None, None, config.embedding_width))
        self.dropout.build((None, None, config.embedding_width))
        self.built = True

    def call(
        self,
        input_ids: Any,
        segment_ids: Any,
        position_ids: Any = None,
        training: bool | None = None,
    ) -> Any:
        """Ids [B, S] to [B, S, E]; positions are 0, 1, 2, ... unless given."""
        words = observe("words", ops.take(self.word_embeddings, input_ids, axis=0))
        # With so few segments a matrix product is faster than a lookup, especially
        # backwards. It is exact: 1 * row + 0 * the others.
        segments = ops.matmul(
            ops.one_hot(segment_ids, self.bert_config.type_vocab_size, dtype="float32"),
            self.token_type_embeddings,
        )
        if position_ids is None:
            length = ops.shape(input_ids)[1]
            positions = ops.convert_to_tensor(self.position_embeddings)[:length]
        else:
            positions = ops.take(self.position_embeddings, position_ids, axis=0)
        x = words + segments + positions
        if not training and not compiles_inference():
            return observe("embeddings", self.layer_norm(x))
        norm, dropout = self.layer_norm, self.dropout
        x = ops.cast(x, self.compute_dtype)
        x = fused.layer_norm(x, norm.gamma, norm.beta, norm.epsilon)
        seed = next_seed(dropout) if training else None
        return observe("embeddings", fused.dropped(x, seed, dropout.rate))

    def compute_output_shape(self, input_ids_shape: tuple, *_: Any) -> tuple:
        """[B, S, E]: JAX cannot find it where S is unknown."""
        return (*input_ids_shape, self.bert_config.embedding_width)

    def get_config(self) -> dict[str, Any]:
        """Returns the config, with a link's number if the embeddings are shared."""
        config = super().get_config()
        return {**config, "link": self.link()} if self.is_linked else config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Makes embeddings from a config: the same ones for all who share a link."""
        config = dict(config)
        link = config.pop("link", None)
        if link is None:
            return super().from_config(config)
        build = super().from_config
        return _linked(link, cls.__name__, lambda: build(config))

    def link(self) -> int:
        """A number by which the configs of those who share these refer to them."""
        if self not in _links:
            _links[self] = next(_numbers)
        return _links[self]


# A copied or loaded model is made layer by layer, each layer from its config alone;
# layers that shared embeddings must share the copies, too. The first layer to ask makes
# them; when it asks again another copy has begun.
_numbers = itertools.count(1)
_links: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_made: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_asked: dict[int, set[str]] = {}


def linked_embeddings(link: int, owner: str, config: BertConfig, dtype: Any) -> Any:
    """The copy of shared embeddings, for one of those that share them."""
    return _linked(link, owner, lambda: Embeddings(config, dtype=dtype))


def _linked(link: int, owner: str, make: Callable[[], Any]) -> Any:
    found = _made.get(link)
    if found is None or owner in _asked[link]:
        found = make()
        found.is_linked = True
        _made[link], _asked[link] = found, set()
    _asked[link].add(owner)
    return found


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(Stored, keras.layers.Layer):
    """tanh of a dense layer on the token that stands for a sequence, [CLS]."""

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(dtype=dtype, name="pooler")
        self.dense = dense(
            config, config.hidden_size, self.dtype_policy, activation="tanh"
        )

    def build(self, input_shape: tuple) -> None:
        """Builds `dense`, [H, H]."""
        self.dense.build(input_shape)
        self.built = True

    def call(self, x: Any) -> Any:
        """[..., H] to [..., H]."""
        return self.dense(x)


# The layers of the heads: rows at masked positions, and scores of tokens and labels.
#
# Shapes: B batch, S sequence, P predictions, N choices, H hidden, V vocabulary.


# The original uses this for the heads of fine-tuning, whatever the config's
# initializer_range.
HEAD_INITIALIZER_RANGE = 0.02


def at_positions(sequence_output: Any, positions: Any) -> Any:
    """Returns the hidden states [B, S, H] at the sequences' positions [B, P]."""
    positions = ops.cast(positions, "int32")
    if keras_backend.is_jax():
        # XLA divides a lookup among devices by its batch dimension. To look up in the
        # flattened batch each of them would need the rows of all.
        return ops.take_along_axis(sequence_output, positions[:, :, None], axis=1)
    # One lookup of whole rows in the flattened batch: TensorFlow's `take_along_axis`
    # takes ten times as long on a CPU.
    batch, length, hidden_size = ops.shape(sequence_output)
    first_rows = ops.arange(batch, dtype="int32")[:, None] * length
    rows = ops.reshape(sequence_output, (-1, hidden_size))
    return ops.take(rows, positions + first_rows, axis=0)


@keras.saving.register_keras_serializable(package="bert_tf")
class GatherPositions(Stored, keras.layers.Layer):
    """`at_positions` in a functional model."""

    def call(self, sequence_output: Any, positions: Any) -> Any:
        """[B, S, H] and positions [B, P] to [B, P, H]."""
        return at_positions(sequence_output, positions)


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMHead(Stored, keras.layers.Layer):
    """Scores of every token at the masked positions.

    LayerNorm(act(Dense(x))), as wide as the word embeddings, then the product with
    these, which the head shares with the encoder, plus its own bias.
    """

    def __init__(
        self,
        config: BertConfig,
        embeddings: Embeddings,
        dtype: Any = None,
        name: str = "predictions",
    ):
        super().__init__(dtype=dtype, name=name)
        self.bert_config = config
        embeddings.is_linked = True
        self.embeddings = embeddings
        self.activation = activation(config.masked_lm_hidden_act or config.hidden_act)
        self.dense = dense(config, config.embedding_width, self.dtype_policy)
        self.layer_norm = layer_norm(
            config.masked_lm_layer_norm_eps or config.layer_norm_eps, self.dtype_policy
        )

    def build(self, input_shape: tuple) -> None:
        """Builds the transform [H, E] and the bias [V] of the scores."""
        if not self.embeddings.built:
            self.embeddings.build()
        with keras.name_scope("transform"):
            self.dense.build(input_shape)
            self.layer_norm.build((*input_shape[:-1], self.dense.units))
        self.output_bias = self.add_weight(
            name="output_bias",
            shape=(self.bert_config.vocab_size,),
            initializer="zeros",
            autocast=False,
        )
        self.built = True

    def call(self, x: Any, training: bool | None = None) -> Any:
        """[B, P, H] to logits [B, P, V] in float32."""
        x = self.layer_norm(self.activation(self.dense(x)))
        table = ops.cast(self.embeddings.word_embeddings, x.dtype)
        if not training:
            return _project(x, table, self.output_bias)
        rows = ops.reshape(x, (-1, x.shape[-1]))
        logits = fused.add_bias(fused.scores_of_rows(rows, table), self.output_bias)
        return ops.reshape(logits, (*ops.shape(x)[:-1], self.bert_config.vocab_size))


@keras.saving.register_keras_serializable(package="bert_tf")
class HeadDropout(keras.layers.Dropout):
    """Dropout of [..., H], with different masks on each replica."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """[..., H] to [..., H]."""
        if not training:
            return inputs
        return fused.dropped(inputs, next_seed(self), self.rate)


@keras.saving.register_keras_serializable(package="bert_tf")
class MergeChoices(Stored, keras.layers.Layer):
    """The choices of all questions, each as a sequence."""

    def call(self, x: Any) -> Any:
        """Integers [B, N, ...] to [B N, ...]."""
        return ops.reshape(x, (-1, *ops.shape(x)[2:]))


@keras.saving.register_keras_serializable(package="bert_tf")
class SplitChoices(Stored, keras.layers.Layer):
    """Each question's scores of its choices."""

    def __init__(self, dtype: Any = None, name: str | None = None):
        # Scores stay in float32 under any policy.
        super().__init__(autocast=False, dtype=dtype, name=name)

    def call(self, scores: Any, input_ids: Any) -> Any:
        """Scores [B N, 1] and ids [B, N, S], whose shape gives N, to [B, N]."""
        return ops.reshape(scores, ops.shape(input_ids)[:2])

    def compute_output_spec(self, scores: Any, input_ids: Any) -> Any:
        """Returns the outputs of `call` on symbolic inputs."""
        return keras.KerasTensor(tuple(input_ids.shape[:2]), scores.dtype)


@keras.saving.register_keras_serializable(package="bert_tf")
class WindowAttention(Stored, keras.layers.Layer):
    """The mean of a text's windows, weighted by attention to them.

    The weights are softmax(u . p_k) over the windows k. As their pooled outputs p_k are
    the tanh of a dense layer, that is the attention to sentences of Yang et al. 2016
    (equations 8 and 9).
    """

    def __init__(self, dtype: Any = None, name: str | None = None):
        super().__init__(dtype=dtype, name=name)

    def build(self, pooled_shape: tuple, input_mask_shape: tuple) -> None:
        """Makes u; as it is 0, training begins with the plain mean."""
        del input_mask_shape
        self.query = self.add_weight(
            name="query", shape=pooled_shape[-1:], initializer="zeros", autocast=False
        )
        self.built = True

    def call(self, pooled: Any, input_mask: Any) -> Any:
        """[B N, W] and the mask [B, N, S] to [B, W]; a window begins with [CLS]."""
        pooled = ops.reshape(pooled, (*ops.shape(input_mask)[:2], pooled.shape[-1]))
        single = ops.cast(pooled, "float32")
        scores = ops.matmul(single, self.query)
        # Not -inf: a batch's padding has no window at all.
        scores = ops.where(input_mask[:, :, 0] > 0, scores, -1e9)
        # Keras' softmax warns of a single window.
        weights = ops.exp(scores - ops.max(scores, axis=-1, keepdims=True))
        weights = (weights / ops.sum(weights, axis=-1, keepdims=True))[..., None]
        return ops.cast(ops.sum(weights * single, axis=1), self.compute_dtype)

    def compute_output_spec(self, pooled: Any, input_mask: Any) -> Any:
        """Returns the outputs of `call` on symbolic inputs."""
        return keras.KerasTensor(
            (input_mask.shape[0], pooled.shape[-1]), self.compute_dtype
        )


@keras.saving.register_keras_serializable(package="bert_tf")
class OutputProjection(Stored, keras.layers.Layer):
    """A dense layer whose kernel is stored as the original's: [outputs, inputs]."""

    def __init__(
        self, units: int, initializer_range: float, dtype: Any = None, name: str = ""
    ):
        super().__init__(dtype=dtype, name=name or None)
        self.units = units
        self.initializer_range = initializer_range
        # Padding has scores like any word; they are never used.
        self.supports_masking = True

    def build(self, input_shape: tuple) -> None:
        """Makes the kernel [units, H], as the original's, and the bias."""
        self.output_weights = self.add_weight(
            name="output_weights",
            shape=(self.units, input_shape[-1]),
            initializer=truncated_normal(self.initializer_range),
            autocast=False,
        )
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self.units,), initializer="zeros", autocast=False
        )
        self.built = True

    def call(self, x: Any) -> Any:
        """[..., H] to [..., units] in float32."""
        return _project(x, self.output_weights, self.output_bias)


def _project(x: Any, table: Any, bias: Any) -> Any:
    """The rows of `table` as scores of x, in float32."""
    logits = ops.matmul(x, ops.transpose(ops.cast(table, x.dtype)))
    return ops.cast(logits, "float32") + bias
