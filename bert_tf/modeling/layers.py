"""The layers of BERT's encoder."""

import collections
import contextlib
import contextvars
import inspect
import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.base import keras_backend
from bert_tf.base.addons import addon
from bert_tf.base.config import ATTENTION_MASK_PENALTY, BertConfig
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
    """Returns a context that replaces x by `function(point, x)` at these points."""
    return fused.set_context((_observer, function))


def observe(point: str, x: Any) -> Any:
    """Returns the value to continue with at a point: x itself, unless observed."""
    return _observer.get()(point, x)


# Which parts of a model are trained.
#
# Keras stores the flag `trainable` only for a whole model. Each layer below it, and
# each weight, has its own flag, which a copy or a saved model must keep.


def frozen_parts(model: Any) -> dict[str, bool]:
    """Returns `trainable` of layers and weights whose flag differs from their owner's.

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
    # One by one: Keras passes a flag on only where it changes.
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
    """Returns the layer that each weight belongs to, by the weight's id."""
    owners = {id(weight): model for weight in model.weights}
    for _, layer, _ in _layers_below(model):
        owners.update((id(weight), layer) for weight in layer.weights)
    return owners


def _layers_below(owner: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields each layer's path, itself and its owner; owners before their layers."""
    names: collections.Counter[str] = collections.Counter()
    for layer in owner._flatten_layers(include_self=False, recursive=False):
        names[layer.name] += 1
        number = names[layer.name]
        path = f"{prefix}{layer.name}" + (f"_{number}" if number > 1 else "")
        yield path, layer, owner
        yield from _layers_below(layer, f"{path}/")


class Stored:
    """Lets Keras save and copy a layer by its constructor's arguments."""

    _given: dict[str, Any]
    _flags: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Stores the arguments, which `get_config` returns. Returns the layer."""
        layer = super().__new__(cls, *args, **kwargs)
        bound = inspect.signature(cls.__init__).bind(layer, *args, **kwargs)
        _, *given = bound.arguments.items()
        arguments = dict(given)
        arguments.update(arguments.pop("kwargs", {}))
        object.__setattr__(layer, "_given", arguments)
        object.__setattr__(layer, "_flags", None)
        return layer

    def get_config(self: Any) -> dict[str, Any]:
        """Returns the constructor's arguments, and which parts are trained."""
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
        """Returns the layer that `get_config` describes."""
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
        """Calls the layer; after the first call its weights exist and can be frozen."""
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
    """Returns an initializer: normal, redrawn beyond two `stddev`, not rescaled.

    Each weight needs its own: an unseeded Keras initializer repeats its values.
    """
    return keras.initializers.TruncatedNormal(stddev=stddev)


def gelu(x: Any) -> Any:
    """Returns the tanh approximation of GELU (Hendrycks and Gimpel 2016, section 2).

    0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as
    x sigmoid(2u): the same function in fewer passes over memory, and exact where
    1 + tanh(u) cancels.
    """
    scale = 2.0 * math.sqrt(2.0 / math.pi)
    return x * ops.sigmoid(x * (scale + (scale * 0.044715) * (x * x)))


def gelu_erf(x: Any) -> Any:
    """Returns GELU itself, x P(X <= x) for a standard normal X."""
    return ops.gelu(x, approximate=False)


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


def activation(name: str) -> Callable[[Any], Any]:
    """Returns the function that a config's `hidden_act` names."""
    return _ACTIVATIONS[name]


def layer_norm(
    epsilon: float, dtype: Any, name: str = "LayerNorm"
) -> keras.layers.LayerNormalization:
    """Returns layer normalization under the original's name."""
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
    """Returns a dense layer with the original's truncated normal values, zero bias."""
    return kind(
        units,
        kernel_initializer=truncated_normal(config.initializer_range),
        dtype=dtype,
        name=name,
        **kwargs,
    )


def at_positions(sequence_output: Any, positions: Any) -> Any:
    """Returns the hidden states [B, S, H] at the sequences' positions [B, P]."""
    positions = ops.cast(positions, "int32")
    if keras_backend.is_jax():
        # XLA divides a lookup among devices by its batch dimension. In the flattened
        # batch, each device would need the rows of all.
        return ops.take_along_axis(sequence_output, positions[:, :, None], axis=1)
    # One lookup of whole rows in the flattened batch: TensorFlow's `take_along_axis`
    # takes ten times as long on a CPU.
    batch, length, hidden_size = ops.shape(sequence_output)
    first_rows = ops.arange(batch, dtype="int32")[:, None] * length
    rows = ops.reshape(sequence_output, (-1, hidden_size))
    return ops.take(rows, positions + first_rows, axis=0)


@keras.saving.register_keras_serializable(package="bert_tf")
class Embeddings(Stored, keras.layers.Layer):
    """Word, segment and position embeddings: summed, normalized, dropped out."""

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(dtype=dtype, name="embeddings")
        self.bert_config = config
        self.is_linked = False  # whether a head, or another encoder, uses them too
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
        """Maps ids [B, S] to [B, S, E]; positions are 0, 1, 2, ... unless given."""
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
        """Returns [B, S, E]: JAX cannot infer it where S is unknown."""
        return (*input_ids_shape, self.bert_config.embedding_width)

    def get_config(self) -> dict[str, Any]:
        """Returns the config, with a link's number if the embeddings are shared."""
        config = super().get_config()
        return {**config, "link": self.link()} if self.is_linked else config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Returns embeddings from a config: the same for all configs with one link."""
        config = dict(config)
        link = config.pop("link", None)
        if link is None:
            return super().from_config(config)
        build = super().from_config
        return _linked(link, cls.__name__, lambda: build(config))

    def link(self) -> int:
        """Returns the number by which configs refer to these shared embeddings."""
        if self not in _links:
            _links[self] = next(_numbers)
        return _links[self]


# A copied or loaded model is made layer by layer, each layer from its config alone;
# layers that shared embeddings must share the copies, too. The first layer that asks
# for them makes them; if it asks again, it belongs to another copy.
_numbers = itertools.count(1)
_links: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_made: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_asked: dict[int, set[str]] = {}


def linked_embeddings(link: int, owner: str, config: BertConfig, dtype: Any) -> Any:
    """Returns the copy of shared embeddings, for one of the layers that share them."""
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
    """tanh, or another activation, of a dense layer on a sequence's token, [CLS]."""

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(dtype=dtype, name="pooler")
        act = activation(config.pooler_hidden_act)
        self.dense = dense(
            config, config.hidden_size, self.dtype_policy, activation=act
        )

    def build(self, input_shape: tuple) -> None:
        """Builds `dense`, [H, H]."""
        self.dense.build(input_shape)
        self.built = True

    def call(self, x: Any) -> Any:
        """Maps [..., H] to [..., H]."""
        return self.dense(x)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """Returns the shape of `call`'s result, without a trace of the layer."""
        return input_shape


# The transformer block: attention, then the feed-forward layers.
#
# Shapes: B batch, S sequence, H hidden, A heads, D = H / A.


@keras.saving.register_keras_serializable(package="bert_tf")
class AttentionBias(Stored, keras.layers.Layer):
    """Addend of attention scores: 0 where a token may attend, else the penalty."""

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(dtype=dtype, name="attention_bias")
        self.left_to_right = config.left_to_right
        self.right_to_left = config.right_to_left

    def call(
        self, input_mask: Any, attention_mask: Any = None, sequence_ids: Any = None
    ) -> Any:
        """Returns the bias [B, 1, 1 or S, S] of masks [B, S], [B, S (from), S (to)].

        In a packed row, a token attends only to tokens of its own sequence.
        """
        # Indexing by None would be a strided slice, which LiteRT does not have.
        visible = ops.expand_dims(ops.cast(input_mask, self.compute_dtype), (1, 2))
        if attention_mask is not None:
            visible *= ops.cast(attention_mask, self.compute_dtype)[:, None, :, :]
        if sequence_ids is not None:
            is_same = ops.equal(sequence_ids[:, :, None], sequence_ids[:, None, :])
            visible *= ops.cast(is_same, self.compute_dtype)[:, None, :, :]
        if self.left_to_right or self.right_to_left:
            index = ops.arange(ops.shape(input_mask)[1], dtype="int32")
            to, attending = index[None, :], index[:, None]
            is_seen = to <= attending if self.left_to_right else to >= attending
            is_seen = ops.cast(is_seen, self.compute_dtype)
            visible *= ops.expand_dims(is_seen, (0, 1))
        return (1.0 - visible) * ATTENTION_MASK_PENALTY


class SelfAttention(keras.layers.Layer):
    """Scaled dot-product attention with A heads (Vaswani et al. 2017, section 3.2).

    The kernels are [H, H], as the original's: head a owns columns a * D to (a + 1) * D.
    """

    def __init__(self, config: BertConfig, dtype: Any = None):
        super().__init__(dtype=dtype, name="self")
        self.num_heads = config.num_attention_heads
        self.head_size = config.hidden_size // config.num_attention_heads
        # LoRA is for queries and values, if requested.
        self.query, self.key, self.value = (
            dense(config, config.hidden_size, self.dtype_policy, name, kind=kind)
            for name, kind in (
                ("query", LowRankDense),
                ("key", keras.layers.Dense),
                ("value", LowRankDense),
            )
        )
        self.dropout = keras.layers.Dropout(
            config.attention_probs_dropout_prob, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, input_shape: tuple, *_: Any) -> None:
        """Builds the projections to queries, keys and values."""
        for layer in (self.query, self.key, self.value, self.dropout):
            layer.build(input_shape)
        self.built = True

    def call(
        self,
        x: Any,
        attention_bias: Any,
        training: bool | None = None,
        seed: Any = None,
    ) -> tuple[Any, Any]:
        """Returns the context [B, S, H] and the probabilities [B, A, S, S] undropped.

        The bias is added to the scores. If no seed is given, dropout draws one.
        """
        if training or compiles_inference():
            if training and seed is None:
                seed = next_seed(self.dropout)
            context, probabilities = self._attend_by_pieces(x, attention_bias, seed)
        else:
            probabilities = self.probabilities(x, attention_bias)
            context = ops.matmul(probabilities, self._by_head(self.value(x)))
            context = ops.transpose(context, (0, 2, 1, 3))
        return ops.reshape(context, ops.shape(x)), probabilities

    def probabilities(self, x: Any, attention_bias: Any) -> Any:
        """Returns the attention probabilities [B, A, S, S]; arguments as in `call`."""
        # The original scales the scores. Scaling the queries is equivalent, changes
        # fewer numbers, and is exact if D is a power of 4 (64 in every release).
        query = self._by_head(self.query(x) * self.head_size**-0.5)
        key = self._by_head(self.key(x))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        scores, attention_bias = observe("scores", (scores, attention_bias))
        return fused.softmax(scores, attention_bias)

    def _attend_by_pieces(
        self, x: Any, attention_bias: Any, seed: Any
    ) -> tuple[Any, Any]:
        """Returns the outputs of `call`, but a context [B, S, A, D]."""
        queries, keys, values = self.projections(x)
        if keras_backend.is_jax():
            scores = ops.einsum("bqad,bkad->baqk", queries, keys)
            values = ops.swapaxes(values, 1, 2)
        else:
            scores = ops.matmul(queries, ops.transpose(keys, (0, 1, 3, 2)))
        scores, bias = observe("scores", (scores, attention_bias))
        context = fused.attended(scores, bias, values, seed, self.dropout.rate)
        # The probabilities cost nothing in a graph that does not use them.
        return ops.swapaxes(context, 1, 2), fused.softmax(scores, bias)

    def projections(self, x: Any) -> Iterable[Any]:
        """Returns scaled queries, keys and values, by pieces.

        They are [B, S, A, D] on JAX, otherwise [B, A, S, D].
        """
        query, key, value = self.query, self.key, self.value
        scale = self.head_size**-0.5
        kernels = [query.kernel * scale, key.kernel, value.kernel]
        biases = [query.bias * scale, key.bias, value.bias]
        if keras_backend.is_jax():
            # XLA chooses layouts for these products, and needs no transposed copies.
            return map(self._projected, (x, x, x), kernels, biases)
        # One product for queries, keys and values.
        return fused.split_heads(
            ops.matmul(x, ops.concatenate(kernels, axis=1)),
            ops.concatenate(biases, axis=0),
            self.num_heads,
        )

    def _projected(self, x: Any, kernel: Any, bias: Any) -> Any:
        """Maps [B, S, H] to [B, S, A, D]."""
        heads = (self.num_heads, self.head_size)
        if fused.are_products_by_head():
            kernel, bias = ops.reshape(kernel, (-1, *heads)), ops.reshape(bias, heads)
            return fused.plus_bias(ops.einsum("bsh,had->bsad", x, kernel), bias)
        x = fused.plus_bias(ops.matmul(x, kernel), bias)
        return ops.reshape(x, (*ops.shape(x)[:2], *heads))

    def _by_head(self, x: Any) -> Any:
        """Maps [B, S, H] to [B, A, S, D]."""
        batch, length = ops.shape(x)[:2]
        x = ops.reshape(x, (batch, length, self.num_heads, self.head_size))
        return ops.transpose(x, (0, 2, 1, 3))


# One layer of the post-layer-norm Transformer (Devlin et al. 2018, section 3 and A.2).


class ResidualOutput(keras.layers.Layer):
    """LayerNorm(residual + Dropout(Dense(x))), with any adapter after the dropout."""

    def __init__(
        self,
        config: BertConfig,
        adapter_size: int = 0,
        dtype: Any = None,
        norm_name: str = "LayerNorm",
        num_heads: int = 1,
    ):
        super().__init__(dtype=dtype, name="output")
        self.num_heads = num_heads  # heads whose outputs are the inputs
        self.dense = dense(config, config.hidden_size, self.dtype_policy)
        self.adapter = (
            Adapter(adapter_size, config.hidden_size, self.dtype_policy)
            if adapter_size
            else None
        )
        self.dropout = keras.layers.Dropout(
            config.hidden_dropout_prob, dtype=self.dtype_policy, name="dropout"
        )
        self.layer_norm = layer_norm(
            config.layer_norm_eps, self.dtype_policy, norm_name
        )

    def build(self, input_shape: tuple, *_: Any) -> None:
        """Builds the projection, and the normalization unless it is built."""
        self.dense.build(input_shape)
        output_shape = (*input_shape[:-1], self.dense.units)
        self.dropout.build(output_shape)
        if not self.layer_norm.built:
            self.layer_norm.build(output_shape)
        if self.adapter is not None:
            self.adapter.build(output_shape)
        self.built = True

    def call(
        self, x: Any, residual: Any, training: bool | None = None, seed: Any = None
    ) -> Any:
        """Maps [B, S, any] and a residual to [B, S, H]; see `SelfAttention`."""
        dense, norm, dropout = self.dense, self.layer_norm, self.dropout
        by_pieces = self.adapter is None and compiles_inference()
        if not training and not by_pieces:
            x = dense(x)
            x = x if self.adapter is None else self.adapter(x)
            return norm(residual + x)
        if training and seed is None:
            seed = next_seed(dropout)
        if self.num_heads > 1 and fused.are_products_by_head():
            kernel = ops.reshape(dense.kernel, (self.num_heads, -1, dense.units))
            x = ops.reshape(x, (*ops.shape(x)[:2], *kernel.shape[:2]))
            x = ops.einsum("bsad,adh->bsh", x, kernel)
        else:
            x = ops.matmul(x, dense.kernel)
        if self.adapter is None:
            x = fused.dropped_residual(x, dense.bias, residual, seed, dropout.rate)
        else:
            x = fused.dropped(ops.add(x, dense.bias), seed, dropout.rate)
            x = residual + self.adapter(x, training=True)
        return fused.layer_norm(x, norm.gamma, norm.beta, norm.epsilon)


@keras.saving.register_keras_serializable(package="bert_tf")
class TransformerLayer(Stored, keras.layers.Layer):
    """Self-attention, then the feed-forward network, each with its residual.

    With `recompute`, the backward pass computes the layer again from its input instead
    of keeping the results (Chen et al. 2016, "Training deep nets with sublinear memory
    cost"), with the same dropout masks. This takes less memory and about a third more
    time.

    Weights that a config's layers share have ALBERT's names.
    """

    def __init__(
        self,
        config: BertConfig,
        recompute: bool = False,
        adapter_size: int = 0,
        dtype: Any = None,
        name: str = "layer_0",
    ):
        super().__init__(dtype=dtype, name=name)
        self.recompute = recompute
        self.activation = activation(config.hidden_act)
        attention: Any = SelfAttention
        if config.attention_window:
            attention = addon("local_attention").LocalSelfAttention
        self.attention = attention(config, self.dtype_policy)
        self.attention.is_recomputed = recompute
        self.attention_output = ResidualOutput(
            config,
            adapter_size,
            self.dtype_policy,
            num_heads=config.num_attention_heads,
        )
        self.intermediate = dense(config, config.intermediate_size, self.dtype_policy)
        self.feed_forward_output = ResidualOutput(
            config,
            adapter_size,
            self.dtype_policy,
            norm_name="LayerNorm_1" if config.shares_layers else "LayerNorm",
        )
        self.is_shared = config.shares_layers

    def build(self, input_shape: tuple, *_: Any) -> None:
        """Builds the parts, in the original's scopes."""
        if self.is_shared:
            with keras.name_scope("inner_group_0"):
                self._build_as_alberts(input_shape)
            self.built = True
            return
        with keras.name_scope("attention"):
            self.attention.build(input_shape)
            self.attention_output.build(input_shape)
        with keras.name_scope("intermediate"):
            self.intermediate.build(input_shape)
        self.feed_forward_output.build((*input_shape[:-1], self.intermediate.units))
        self.built = True

    def _build_as_alberts(self, input_shape: tuple) -> None:
        """Builds the parts in the scopes of ALBERT's code."""
        for part in (self.attention_output, self.feed_forward_output):
            part.layer_norm.build(input_shape)
        with keras.name_scope("attention_1"):
            self.attention.build(input_shape)
            self.attention_output.build(input_shape)
        with keras.name_scope("ffn_1"), keras.name_scope("intermediate"):
            self.intermediate.build(input_shape)
            self.feed_forward_output.build((*input_shape[:-1], self.intermediate.units))

    def call(
        self, x: Any, attention_bias: Any, training: bool | None = None
    ) -> tuple[Any, Any]:
        """Returns the layer's output [B, S, H] and its attention probabilities."""
        if training and self.recompute:
            # These cost nothing in a graph that does not use them.
            probabilities = self.attention.probabilities(x, attention_bias)
            return observe("layer", self._recomputed(x, attention_bias)), probabilities
        x, probabilities = self._transform(x, attention_bias, training)
        return observe("layer", x), probabilities

    def compute_output_shape(self, x_shape: tuple, *_: Any) -> tuple[tuple, tuple]:
        """Returns the shapes of `call`'s results, without a trace of the layer."""
        batch, length, _ = x_shape
        return x_shape, (batch, self.attention.num_heads, length, length)

    def _recomputed(self, x: Any, attention_bias: Any) -> Any:
        """Returns the output in training, keeping only the input.

        The seeds are drawn once, for both computations of the layer. Within a stateless
        scope, the layer is a function of its weights.
        """
        parts = (self.attention, self.attention_output, self.feed_forward_output)
        seeds = [next_seed(part.dropout) for part in parts]
        weights = self.trainable_variables
        frozen = [
            (weight, ops.copy(weight))
            for weight in self.weights
            if not any(weight is other for other in weights)
        ]

        def transform(x: Any, *values: Any) -> Any:
            mapping = [*zip(weights, values, strict=True), *frozen]
            with keras.StatelessScope(state_mapping=mapping):
                return self._transform(x, attention_bias, True, seeds)[0]

        return keras.remat(transform)(x, *(ops.copy(weight) for weight in weights))

    def _transform(
        self,
        x: Any,
        attention_bias: Any,
        training: bool | None,
        seeds: Sequence[Any] = (None, None, None),
    ) -> tuple[Any, Any]:
        context, probabilities = self.attention(
            x, attention_bias, training=training, seed=seeds[0]
        )
        x = self.attention_output(context, x, training=training, seed=seeds[1])
        dense = self.intermediate
        if training or compiles_inference():
            # Cast here: Keras' scope that casts weights has ended when the backward
            # pass computes this again.
            kernel, bias = (
                ops.cast(weight, self.compute_dtype)
                for weight in (dense.kernel, dense.bias)
            )
            # As rows: the TPU's compiler needs fewer cycles for their gradients.
            product = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), kernel)
            product = ops.reshape(product, (*ops.shape(x)[:-1], product.shape[-1]))
            intermediate = fused.bias_activation(product, bias, self.activation)
        else:
            intermediate = self.activation(dense(x))
        x = self.feed_forward_output(intermediate, x, training=training, seed=seeds[2])
        return x, probabilities


# LoRA: the update of a frozen kernel as a product of two thin matrices.
#
#     y = x (W + A B) + b        A [inputs, rank], B [rank, outputs]
#
# W and b are frozen; A is initialized at random (He et al. 2015) and B to 0, so
# training starts from the pre-trained function (Hu et al. 2021, "LoRA: Low-rank
# adaptation of large language models", section 4.1). The paper scales A B by alpha /
# rank and does not tune alpha, as it acts like the learning rate. Like KerasHub, we
# leave the scale at 1.
#
# The product is Keras' own (`keras.layers.Dense.enable_lora`), in the layers that
# KerasHub chooses (`keras_hub.models.Backbone.enable_lora`): queries and values. The
# two kernels are added once per batch, so code that reads `layer.kernel`, such as the
# single product for queries, keys and values, works unchanged.


class LowRankDense(keras.layers.Dense):
    """A dense layer whose A and B are saved separately.

    Keras' own layer saves W + A B and loads it with A = B = 0, where neither would get
    a gradient.
    """

    def save_own_variables(self, store: Any) -> None:
        """Saves the weights; Keras calls it for .keras and .h5 files."""
        if not self.lora_enabled:
            super().save_own_variables(store)
            return
        for number, variable in enumerate(self._saved()):
            store[str(number)] = variable

    def load_own_variables(self, store: Any) -> None:
        """Loads the weights; Keras calls it. Also reads files without LoRA."""
        if not self.lora_enabled or len(store.keys()) < len(self._saved()):
            super().load_own_variables(store)
            return
        for number, variable in enumerate(self._saved()):
            variable.assign(store[str(number)])

    def _saved(self) -> list[keras.Variable]:
        return [self._kernel, self.bias, self.lora_kernel_a, self.lora_kernel_b]


# Adapters: small networks between the frozen parts of a layer.
#
# Houlsby et al. 2019, "Parameter-efficient transfer learning for NLP", section 2.1.
# A layer has two, one after the attention's output projection and one after the
# feed-forward network's, before the residual and the normalization:
#
#     LayerNorm(residual + Adapter(Dropout(Dense(x))))
#     Adapter(h) = h + gelu(h D + c) U + d      D [H, M], U [M, H]
#
# D and U are initialized near 0, so training starts near the pre-trained function.
#
# Shapes: B batch, S sequence, H hidden, M the adapter's size.


# The default of the paper's code; all values below 1e-2 work alike (section 3.6).
INITIALIZER_RANGE = 1e-3


class Adapter(keras.layers.Layer):
    """A bottleneck of M = `size` numbers, with its own residual."""

    def __init__(self, size: int, hidden_size: int, dtype: Any = None):
        super().__init__(dtype=dtype, name="adapter")
        self.down, self.up = (
            keras.layers.Dense(
                units,
                kernel_initializer=truncated_normal(INITIALIZER_RANGE),
                dtype=self.dtype_policy,
                name=name,
            )
            for units, name in ((size, "down"), (hidden_size, "up"))
        )

    def build(self, input_shape: tuple) -> None:
        """Builds `down` from H to the bottleneck, and `up` back to H."""
        self.down.build(input_shape)
        self.up.build((*input_shape[:-1], self.down.units))
        self.built = True

    def call(self, x: Any, training: bool | None = None) -> Any:
        """Maps [B, S, H] to [B, S, H]."""
        down, up = self.down, self.up
        if not training:
            return x + up(gelu(down(x)))
        inner = fused.bias_activation(ops.matmul(x, down.kernel), down.bias, gelu)
        return fused.dropped_residual(
            ops.matmul(inner, up.kernel), up.bias, x, None, 0.0
        )
