"""Chains of operations between matrix products, each as one pass over memory.

On a CPU such chains take about as long as half of the products, nearly all of it in
reading and writing memory. In training each is a compiled kernel, forwards and
backwards (`bert_tf.compilation`). All compute in float32, whatever they are given, and
return the dtype of their first argument. Gradients are written out where less need be
kept, or computed again, than by differentiating step by step.

Kernels see tensors of rows, [N, F]: XLA's sums over columns of any other shape are
slower by a factor of ten on a CPU.

Shapes: N rows, B batch, S sequence, H hidden, A heads, D = H / A, F features, V
vocabulary.
"""

from collections.abc import Callable
from typing import Any

from keras import ops

from bert_tf.compilation import compiled, compiled_with_gradient
from bert_tf.modeling.dropout import dropout


def bias_activation(x: Any, bias: Any, activation: Callable[[Any], Any]) -> Any:
    """The activation of x + bias, of [..., F] and [F]."""
    return _as_before(x, _bias_activation(_rows(x), _tensor(bias), activation))


@compiled_with_gradient
def _bias_activation(x: Any, bias: Any, activation: Callable[[Any], Any]) -> Any:
    return _cast_as(x, activation(_float32(x) + _float32(bias)))


def dropped(x: Any, seed: Any, rate: float) -> Any:
    """Dropout of [..., F].

    Args:
        x: [..., F].
        seed: [2] integers; None for no dropout.
        rate: the probability of a 0.
    """
    return x if seed is None else _as_before(x, _dropped(_rows(x), seed, rate))


_dropped = compiled_with_gradient(dropout)


def dropped_residual(x: Any, bias: Any, residual: Any, seed: Any, rate: float) -> Any:
    """The sum residual + dropout(x + bias).

    Args:
        x: [..., H].
        bias: [H].
        residual: [..., H].
        seed: of the dropout, [2] integers; None for no dropout.
        rate: of the dropout.
    """

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


def add_bias(x: Any, bias: Any) -> Any:
    """The sum x + bias of [N, F] and [F], in float32."""

    @ops.custom_gradient
    def added(x: Any, bias: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            return _cast_as(x, upstream), _column_sums(upstream)

        # In float32 the product takes the bias in its stride.
        add = _add if x.dtype == bias.dtype else _cast_and_add
        return add(x, bias), gradient

    return added(x, _tensor(bias))


def _add(x: Any, bias: Any) -> Any:
    return _float32(x) + bias


_cast_and_add = compiled(_add)


def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Layer normalization (Ba, Kiros, Hinton 2016) of [..., H] with [H] and [H].

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


def dropped_softmax(scores: Any, bias: Any, seed: Any, rate: float) -> Any:
    """Dropout of the softmax of scores + bias over the last dimension.

    With p the softmax, d = dropout(p) and the gradient g of d, the scores' is

        d g - p sum(d g)

    over a row: the mask, which stands in d, is made once.

    Args:
        scores: [B, A, S, S].
        bias: [B, 1, 1 or S, S]; it comes from masks and gets no gradient.
        seed: of the dropout, [2] integers; None for no dropout.
        rate: of the dropout.
    """

    @ops.custom_gradient
    def weights(scores: Any) -> Any:
        p = softmax(scores, bias)
        d = dropped(p, seed, rate)

        def gradient(upstream: Any) -> Any:
            rows = _softmax_gradient(_rows(p), _rows(d), _rows(upstream))
            return _as_before(p, rows)

        return d, gradient

    return weights(scores)


@compiled
def _softmax_gradient(p: Any, d: Any, upstream: Any) -> Any:
    product = _float32(d) * _float32(upstream)
    total = ops.sum(product, axis=-1, keepdims=True)
    return _cast_as(p, product - _float32(p) * total)


def softmax(scores: Any, bias: Any) -> Any:
    """The softmax of scores + bias in float32, where a row sums to 1; as `scores`.

    Not compiled: TensorFlow's own kernel is quicker than XLA's.
    """
    return _cast_as(scores, ops.softmax(_float32(scores) + _float32(bias), axis=-1))


def split_heads(x: Any, bias: Any, num_heads: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values of each head, from one product.

    Args:
        x: [B, S, 3 H], the queries of all heads, then the keys, then the values.
        bias: [3 H], added to x.
        num_heads: A.

    Returns:
        Three times [B, A, S, D].
    """

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


def widening_product(x: Any, kernel: Any) -> Any:
    """The product of x [..., H] and kernel [H, F], where F is larger than H.

    The gradient of x is taken with a transposed copy of the kernel: on a CPU,
    TensorFlow's float32 product with the kernel as it lies takes a quarter longer. The
    copy is a kernel of its own lest TensorFlow put the two together again.
    """

    @ops.custom_gradient
    def product(x: Any, kernel: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            return (
                ops.matmul(upstream, _transposed(kernel)),
                ops.matmul(ops.transpose(x), upstream),
            )

        return ops.matmul(x, kernel), gradient

    rows = product(_rows(x), _tensor(kernel))
    return ops.reshape(rows, (*ops.shape(x)[:-1], rows.shape[-1]))


@compiled
def _transposed(x: Any) -> Any:
    return ops.transpose(x)


def scores_of_rows(x: Any, table: Any) -> Any:
    """The rows of `table` [V, H] as scores of x [N, H]: the product [N, V].

    With a gradient of the table that is computed as it lies, not transposed.
    """

    @ops.custom_gradient
    def product(x: Any, table: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            return ops.matmul(upstream, table), ops.matmul(ops.transpose(upstream), x)

        return ops.matmul(x, ops.transpose(table)), gradient

    return product(x, table)


def _tensor(variable: Any) -> Any:
    """A variable's value. `convert_to_tensor` may return the variable itself."""
    return ops.copy(variable)


def _rows(x: Any) -> Any:
    """[..., F] to [N, F]."""
    return ops.reshape(x, (-1, ops.shape(x)[-1]))


def _as_before(x: Any, rows: Any) -> Any:
    """The rows of x in the shape of x."""
    return ops.reshape(rows, ops.shape(x))


def _float32(x: Any) -> Any:
    return ops.cast(x, "float32")


def _cast_as(like: Any, x: Any) -> Any:
    return ops.cast(x, like.dtype)
