"""Compiled and fused forms of the encoder's operations, equal to the plain ones."""

import collections
import contextlib
import contextvars
import functools
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import keras
import numpy as np
from keras import ops

from bert_tf.base import keras_backend

# Small pieces of mathematics as one XLA kernel, where that is faster.
#
# On a CPU, TensorFlow makes one pass over memory for each operation of a chain such as
# bias, GELU, product; XLA makes a single pass. Compiling a whole training step for a
# CPU is slower (XLA's matrix products are slower than TensorFlow's), but compiling such
# chains is faster. A kernel is compiled once for each set of shapes, so it should get
# large tensors that keep their shape.


Function = TypeVar("Function", bound=Callable[..., Any])

# Local to a thread: a training thread's switches must not reach a serving thread.
_enabled: contextvars.ContextVar[bool] = contextvars.ContextVar("enabled", default=True)
_in_inference: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "in_inference", default=False
)
_by_head: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "by_head", default=False
)


def compiled(function: Function) -> Function:
    """Returns the function, compiled by XLA on TensorFlow, else unchanged.

    It is also unchanged within code that XLA already compiles, and within
    `without_fusion`.
    """
    compiled_function: Any = None

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        nonlocal compiled_function
        if not is_on():
            return function(*args)
        if compiled_function is None:
            import tensorflow as tf

            compiled_function = tf.function(function, jit_compile=True, autograph=False)
        return compiled_function(*args)

    return call  # type: ignore[return-value]


def compiled_with_gradient(function: Function) -> Function:
    """Returns the function `compiled`, with its gradient compiled as one kernel too.

    Only the arguments are kept for the backward pass: intermediate results are
    recomputed in the same pass over memory.
    """
    forward: Any = None
    backward: Any = None

    def gradients(args: tuple, upstream: Any) -> list[Any]:
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            inputs = [arg for arg in args if _has_gradient(arg)]
            tape.watch(inputs)
            output = function(*args)
        return tape.gradient(output, inputs, upstream, unconnected_gradients="zero")

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        nonlocal forward, backward
        if not is_on():
            return function(*args)
        import tensorflow as tf

        if forward is None:
            forward = tf.function(function, jit_compile=True, autograph=False)
            backward = tf.function(gradients, jit_compile=True, autograph=False)
        tensors = {i: arg for i, arg in enumerate(args) if tf.is_tensor(arg)}

        @tf.custom_gradient
        def with_gradient(*values: Any) -> Any:
            given = dict(zip(tensors, values, strict=True))
            own_args = tuple(given.get(i, arg) for i, arg in enumerate(args))

            def gradient(upstream: Any) -> list[Any]:
                results = iter(backward(own_args, upstream))
                return [next(results) if _has_gradient(x) else None for x in values]

            return forward(*own_args), gradient

        return with_gradient(*tensors.values())

    return call  # type: ignore[return-value]


def _has_gradient(arg: Any) -> bool:
    import tensorflow as tf

    return bool(tf.is_tensor(arg) and arg.dtype.is_floating)


@functools.cache
def xla_compiles_for_the_cpu() -> bool:
    """Whether XLA compiles for the CPU: TensorFlow's builds for TPUs do not."""
    import tensorflow as tf

    # The first compilation of the process, as none is made without asking `is_on`.
    with tf.init_scope(), tf.device("/CPU:0"), keras_backend.without_ynnpack():
        try:
            tf.function(tf.identity, jit_compile=True)(tf.zeros([]))
        except tf.errors.NotFoundError:
            return False
    return True


def is_on() -> bool:
    """Whether TensorFlow computes, and XLA some pieces of it."""
    is_tensorflow = keras.backend.backend() == "tensorflow"
    return is_tensorflow and xla_compiles_for_the_cpu() and _enabled.get()


def without_fusion() -> contextlib.AbstractContextManager:
    """Returns a context in which `compiled` changes nothing: for TPUs, XLA programs."""
    return set_context((_enabled, False))


def fused_inference() -> contextlib.AbstractContextManager:
    """Returns a context in which inference computes by pieces: for few shapes."""
    return set_context((_in_inference, True))


def compiles_inference() -> bool:
    """Whether inference computes by pieces, as training does, without dropout.

    Only within `fused_inference`: models that are exported, or called with any
    length, are faster with the backend's own operations.
    """
    return _in_inference.get() and is_on()


def products_by_head(is_on: bool) -> contextlib.AbstractContextManager:
    """Returns a context that sets whether attention's projections are by head.

    A TPU's compiler chooses layouts for products by head, but copies the results of
    products of rows; a GPU's compiler transposes products by head.
    """
    return set_context((_by_head, is_on))


def are_products_by_head() -> bool:
    """Whether attention's projections are products by head."""
    return _by_head.get()


# Dropout whose mask is computed where it is used, and never stored.
#
# A number is kept if a word of random bits is at least rate * 2^32; the word depends
# only on a seed and the number's position. So the probability is exact to 2^-32, the
# same seed always drops the same numbers, and the gradient's kernel recomputes the mask
# instead of reading it from memory. Each row is a sequence of SplitMix (Steele, Lea,
# Flood 2014, "Fast splittable pseudorandom number generators") in 32 bits, with
# MurmurHash3's finalizer (Appleby), and begins at a word of Threefry. This takes two
# products per number; Threefry itself would take 13 rounds of five operations.
_GOLDEN_GAMMA = 0x9E3779B9  # 2^32 over the golden ratio
_FINALIZER = ((16, 0x85EBCA6B), (13, 0xC2B2AE35))


# Threefry-2x32 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as
# 1, 2, 3"): rotations, the constant of its key schedule, and the fewest rounds with
# which it passed all tests of TestU01's BigCrush.
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_KEY_PARITY = 0x1BD11BDA
_NUM_ROUNDS = 13

_examples: contextvars.ContextVar[Any] = contextvars.ContextVar("examples", default=())
_pass: contextvars.ContextVar[int | None] = contextvars.ContextVar("pass", default=0)
# How often each generator was used in this pass, and in a step's first pass.
_drawn: contextvars.ContextVar[Any] = contextvars.ContextVar("drawn", default=None)
_draws: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def set_context(*values: tuple[contextvars.ContextVar, Any]) -> Iterator[None]:
    """Sets context variables within a context."""
    tokens = [(variable, variable.set(value)) for variable, value in values]
    try:
        yield
    finally:
        for variable, token in tokens:
            variable.reset(token)


def per_example_dropout(
    numbers: Any, again: bool = False
) -> contextlib.AbstractContextManager:
    """Returns a context that gives a batch the masks of rows [B] of a larger batch.

    A replica's part of a batch, or a micro-batch, thus has the same masks as its rows
    in the whole batch. With `again`, the masks use the same seeds as the last time.
    `numbers` are the rows' integers; None for a whole batch.
    """
    rows = () if numbers is None else (numbers, again)
    return set_context((_examples, rows), (_drawn, collections.Counter()))


def dropout_pass(number: int | None) -> contextlib.AbstractContextManager:
    """Returns the context of a step's pass 1, 2, ...; without dropout if None.

    Its masks are derived from the last seeds, so that no generator's state depends on
    how often a step runs the model.
    """
    return set_context((_pass, number), (_drawn, collections.Counter()))


def is_later_micro_batch() -> bool:
    """Whether a step has already computed its first micro-batch."""
    return bool(_examples.get() and _examples.get()[1])


def step_seed(generator: keras.random.SeedGenerator) -> Any:
    """Returns a generator's next seed, [2] integers, or the step's in another pass.

    All micro-batches of a step have the same seed. A layer that is applied several
    times has another seed each time.
    """
    number, drawn = _pass.get(), _drawn.get()
    if drawn is None:
        return generator.next()
    drawn[generator] += 1
    if not number and not is_later_micro_batch():
        _draws[generator] = drawn[generator]
        return generator.next()
    state = generator.state.value
    steps = _draws.get(generator, 1) + 1 - drawn[generator]
    seed = state - ops.cast([0, steps], state.dtype)
    return seed + ops.cast([number, 0], state.dtype) if number else seed


def next_seed(layer: keras.layers.Dropout) -> Any:
    """Returns the seed of a layer's next mask, [2] integers; None for no dropout.

    For a part of a batch, the seed is followed by the numbers of the rows.
    """
    if not layer.rate > 0.0 or _pass.get() is None:
        return None
    return seed_of_rows(step_seed(layer.seed_generator))


def seed_of_rows(seed: Any) -> Any:
    """Returns a seed, followed by the rows' numbers if they are part of a batch."""
    if not _examples.get():
        return seed
    numbers = _examples.get()[0]
    return ops.concatenate([seed, ops.cast(numbers, seed.dtype)])


def dropout(x: Any, seed: Any, rate: float) -> Any:
    """Returns x / (1 - rate) [N, F] where kept, else 0; x if the seed is None."""
    if seed is None:
        return x
    num_rows, num_features = ops.shape(x)
    begins = random_bits(_key(seed), (_word(0), _row_numbers(seed, num_rows)))
    turn = ops.cast(ops.arange(num_features, dtype="int32"), "uint32")
    bits = _finalized(begins[:, None] + turn[None, :] * _word(_GOLDEN_GAMMA))
    is_kept = bits >= _word(round(rate * 2**32))
    # Scaled in float32: bfloat16's 1 / 0.9 is too small, by 0.16 %.
    scaled = ops.cast(x, "float32") * (1.0 / (1.0 - rate))
    return ops.where(is_kept, ops.cast(scaled, x.dtype), ops.zeros_like(x))


def _finalized(bits: Any) -> Any:
    """Returns MurmurHash3's finalizer of uint32, which spreads each bit over all."""
    for distance, factor in _FINALIZER:
        bits = (bits ^ ops.right_shift(bits, _word(distance))) * _word(factor)
    return bits ^ ops.right_shift(bits, _word(16))


def _key(seed: Any) -> tuple[Any, Any]:
    return ops.cast(seed[0], "uint32"), ops.cast(seed[1], "uint32")


def _row_numbers(seed: Any, num_rows: Any) -> Any:
    """Returns the numbers [N], as uint32, of rows that may be part of a batch."""
    row = ops.arange(num_rows, dtype="int32")
    if seed.shape[0] > 2:
        # All examples have the same number of rows, also in the whole batch.
        numbers = ops.cast(seed[2:], "int32")
        rows_per_example = num_rows // seed[2:].shape[0]
        offset = ops.arange(rows_per_example, dtype="int32")
        row = ops.reshape(numbers[:, None] * rows_per_example + offset, (-1,))
    return ops.cast(row, "uint32")


@compiled
def normal(seed: Any, like: Any) -> Any:
    """Returns standard normal numbers [N, F] (Box and Muller 1958) in float32.

    Each takes two words of bits: one alone would not give two uniform numbers.
    """
    num_rows, num_features = ops.shape(like)
    row = _row_numbers(seed, num_rows)[:, None]
    column = ops.arange(num_features, dtype="int32")
    columns = (ops.cast(x, "uint32") for x in (column, column + num_features))
    first, second = (
        (ops.cast(random_bits(_key(seed), (one, row)), "float32") + 0.5) / 2.0**32
        for one in columns
    )
    return ops.sqrt(-2.0 * ops.log(first)) * ops.cos(2.0 * math.pi * second)


def random_bits(key: tuple[Any, Any], counter: tuple[Any, Any]) -> Any:
    """Returns the first word of Threefry-2x32 with 13 rounds, from uint32."""
    keys = (*key, key[0] ^ key[1] ^ _word(_KEY_PARITY))
    a, b = counter[0] + keys[0], counter[1] + keys[1]
    for number in range(1, _NUM_ROUNDS + 1):
        a = a + b
        b = _rotated(b, _ROTATIONS[(number - 1) % 8]) ^ a
        if number % 4 == 0:
            turn = number // 4
            a = a + keys[turn % 3]
            b = b + (keys[(turn + 1) % 3] + _word(turn))
    return a


def _rotated(word: Any, distance: int) -> Any:
    left = ops.left_shift(word, _word(distance))
    return ops.bitwise_or(left, ops.right_shift(word, _word(32 - distance)))


def _word(number: int) -> Any:
    return ops.convert_to_tensor(np.uint32(number))


# Chains of operations between matrix products, each as one pass over memory.
#
# On a CPU such chains take about half as long as the products, nearly all of it spent
# reading and writing memory. In training each is a compiled kernel, forwards and
# backwards. All compute in float32, for any input type, and return the dtype of their
# first argument. Gradients are written out where this stores or recomputes less than
# automatic differentiation.
#
# Kernels work on tensors of rows, [N, F]: XLA's sums over columns of any other shape
# are slower by a factor of ten on a CPU.
#
# Shapes: N rows, B batch, S sequence, H hidden, A heads, D = H / A, F features, V
# vocabulary.


def bias_activation(x: Any, bias: Any, activation: Callable[[Any], Any]) -> Any:
    """Returns the activation of x + bias, from [..., F] and [F]."""
    return _as_before(x, _bias_activation(_rows(x), _tensor(bias), activation))


@compiled_with_gradient
def _bias_activation(x: Any, bias: Any, activation: Callable[[Any], Any]) -> Any:
    return _cast_as(x, activation(_float32(x) + _float32(bias)))


def dropped(x: Any, seed: Any, rate: float) -> Any:
    """Returns the dropout of [..., F]: each number is 0 with the probability `rate`."""
    return x if seed is None else _as_before(x, _dropped(_rows(x), seed, rate))


_dropped = compiled_with_gradient(dropout)


def dropped_residual(x: Any, bias: Any, residual: Any, seed: Any, rate: float) -> Any:
    """Returns residual + dropout(x + bias), from [..., H] and the bias [H]."""

    @ops.custom_gradient
    def added(x: Any, bias: Any, residual: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            x_gradient = upstream if seed is None else _dropped(upstream, seed, rate)
            return x_gradient, _cast_as(bias, _column_sums(x_gradient)), upstream

        return _dropped_residual(x, bias, residual, seed, rate), gradient

    return _as_before(x, added(_rows(x), _tensor(bias), _rows(residual)))


@compiled
def _dropped_residual(x: Any, bias: Any, residual: Any, seed: Any, rate: float) -> Any:
    dropped = dropout(_float32(x) + _float32(bias), seed, rate)
    return _cast_as(x, _float32(residual) + dropped)


def plus_bias(x: Any, bias: Any) -> Any:
    """Returns x + bias, computed in float32, in x's dtype."""
    return _cast_as(x, _float32(x) + _float32(bias))


def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Returns the layer normalization of x [..., H] (Ba, Kiros, Hinton 2016).

    With n = (x - mean) r, r = 1 / sqrt(variance + epsilon) and the gradient g of
    gamma n + beta, where h = gamma g and means are over a row:

        dx = r (h - mean(h) - n mean(h n)),   dgamma = sum g n,   dbeta = sum g
    """

    @ops.custom_gradient
    def normalized(x: Any, gamma: Any, beta: Any) -> Any:
        output, mean, inverse = _layer_norm(x, gamma, beta, epsilon)

        def gradient(upstream: Any) -> Any:
            return (
                _layer_norm_gradient(x, gamma, mean, inverse, upstream),
                *_scale_gradients(x, mean, inverse, upstream),
            )

        return output, gradient

    return _as_before(x, normalized(_rows(x), _tensor(gamma), _tensor(beta)))


@compiled
def _layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> tuple[Any, Any, Any]:
    rows = _float32(x)
    mean = ops.mean(rows, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(rows - mean), axis=-1, keepdims=True)
    inverse = ops.rsqrt(variance + epsilon)
    return _cast_as(x, (rows - mean) * inverse * gamma + beta), mean, inverse


@compiled
def _layer_norm_gradient(
    x: Any, gamma: Any, mean: Any, inverse: Any, upstream: Any
) -> Any:
    normal = (_float32(x) - mean) * inverse
    h = _float32(upstream) * gamma
    h_mean = ops.mean(h, axis=-1, keepdims=True)
    along_normal = ops.mean(h * normal, axis=-1, keepdims=True)
    return _cast_as(x, inverse * (h - h_mean - normal * along_normal))


@compiled
def _scale_gradients(x: Any, mean: Any, inverse: Any, upstream: Any) -> tuple[Any, Any]:
    g = _float32(upstream)
    return ops.sum(g * ((_float32(x) - mean) * inverse), axis=0), ops.sum(g, axis=0)


def attended(scores: Any, bias: Any, values: Any, seed: Any, rate: float) -> Any:
    """Returns dropout(softmax(scores + bias)) V over the last dimension, [..., S, D].

    With p the softmax, d = dropout(p), c the result, u its gradient and g = u V^T, the
    gradients are d g - p sum(d g), over a row, and d^T u for V; sum(d g) is sum(u c)
    (Dao et al. 2022, "FlashAttention"). Kept are p and c: dropout is made again.
    Scores are [B, A, S, S], or [B, ..., S, K]; the bias, broadcast, gets none.
    """

    @ops.custom_gradient
    def weighted(scores: Any, values: Any) -> Any:
        p = softmax(scores, bias)
        context = ops.matmul(dropped(p, seed, rate), values)

        def gradient(upstream: Any) -> Any:
            g = ops.einsum("...qd,...kd->...qk", upstream, values)
            rows = _rows(p), _rows(g), _rows(context), _rows(upstream)
            of_scores, d = _attention_gradient(*rows, seed, rate)
            of_values = ops.einsum("...qk,...qd->...kd", _as_before(p, d), upstream)
            return _as_before(p, of_scores), of_values

        return context, gradient

    return weighted(scores, values)


@compiled
def _attention_gradient(
    p: Any, g: Any, context: Any, upstream: Any, seed: Any, rate: float
) -> tuple[Any, Any]:
    d = dropout(p, seed, rate)
    total = ops.sum(_float32(context) * _float32(upstream), axis=-1, keepdims=True)
    return _cast_as(p, _float32(d) * _float32(g) - _float32(p) * total), d


def softmax(scores: Any, bias: Any) -> Any:
    """Returns the softmax of scores + bias, computed in float32, in their dtype.

    Not compiled: TensorFlow's own kernel is faster than XLA's.
    """
    p = ops.softmax(_float32(scores) + _float32(bias), axis=-1)
    return _cast_as(scores, ops.copy(p))  # Keras' own result keeps the scores


def split_heads(x: Any, bias: Any, num_heads: int) -> tuple[Any, Any, Any]:
    """Splits a product [B, S, 3 H]. Returns queries, keys and values [B, A, S, D]."""

    @ops.custom_gradient
    def split(x: Any, bias: Any) -> Any:
        shape = ops.shape(x)

        def gradient(upstream: Any) -> Any:
            joined = ops.reshape(ops.transpose(upstream, (1, 3, 0, 2, 4)), shape)
            return joined, _cast_as(bias, _column_sums(_rows(joined)))

        return _split_heads(x, bias, num_heads), gradient

    query, key, value = ops.unstack(split(x, _tensor(bias)), 3, axis=0)
    return query, key, value


@compiled
def _split_heads(x: Any, bias: Any, num_heads: int) -> Any:
    batch, length, width = ops.shape(x)
    x = _cast_as(x, _float32(x) + _float32(bias))
    x = ops.reshape(x, (batch, length, 3, num_heads, width // (3 * num_heads)))
    return ops.transpose(x, (2, 0, 3, 1, 4))


@compiled
def _column_sums(x: Any) -> Any:
    return ops.sum(_float32(x), axis=0)


def _tensor(variable: Any) -> Any:
    """Returns a variable's value: `convert_to_tensor` may return the variable."""
    return ops.copy(variable)


def _rows(x: Any) -> Any:
    """Maps [..., F] to [N, F]."""
    return ops.reshape(x, (-1, ops.shape(x)[-1]))


def _as_before(x: Any, rows: Any) -> Any:
    """Returns rows in the shape of x."""
    return ops.reshape(rows, ops.shape(x))


def _float32(x: Any) -> Any:
    return ops.cast(x, "float32")


def _cast_as(like: Any, x: Any) -> Any:
    return ops.cast(x, like.dtype)
