"""Small pieces of mathematics as one XLA kernel, where that pays.

On a CPU, TensorFlow runs a chain such as bias, GELU, product as one pass over memory an
operation. XLA makes one pass of it. Compiling a whole training step loses there (its
matrix products are slower than TensorFlow's), compiling such chains wins. A kernel is
compiled once for each set of shapes, so a piece is for tensors that are large and keep
their shape.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_enabled = True
_in_inference = False


def compiled(function: Function) -> Function:
    """The function, compiled by XLA where the backend is TensorFlow; else as it is.

    Inside of what XLA compiles already, and within `pieces_left_alone`, it is the
    identity.
    """
    compiled_function: Any = None

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        nonlocal compiled_function
        if not _is_on():
            return function(*args)
        if compiled_function is None:
            import tensorflow as tf

            compiled_function = tf.function(function, jit_compile=True, autograph=False)
        return compiled_function(*args)

    return call  # type: ignore[return-value]


def compiled_with_gradient(function: Function) -> Function:
    """`compiled`, and the gradient is one kernel too, that starts from the arguments.

    Nothing but the arguments is kept for the backward pass: what the function computes
    on the way is computed again, in the same pass over memory.
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
        if not _is_on():
            return function(*args)
        import tensorflow as tf

        if forward is None:
            forward = tf.function(function, jit_compile=True, autograph=False)
            backward = tf.function(gradients, jit_compile=True, autograph=False)
        is_tensor = [tf.is_tensor(arg) for arg in args]

        @tf.custom_gradient
        def with_gradient(*tensors: Any) -> Any:
            remaining = iter(tensors)
            own_args = tuple(
                next(remaining) if given else arg
                for arg, given in zip(args, is_tensor, strict=True)
            )

            def gradient(upstream: Any) -> list[Any]:
                values = iter(backward(own_args, upstream))
                return [next(values) if _has_gradient(x) else None for x in tensors]

            return forward(*own_args), gradient

        return with_gradient(
            *(arg for arg, given in zip(args, is_tensor, strict=True) if given)
        )

    return call  # type: ignore[return-value]


def _has_gradient(arg: Any) -> bool:
    import tensorflow as tf

    return bool(tf.is_tensor(arg) and arg.dtype.is_floating)


@functools.cache
def xla_compiles_for_the_cpu() -> bool:
    """Whether it does here: the builds of TensorFlow for TPUs lack that compiler."""
    import tensorflow as tf

    with tf.init_scope(), tf.device("/CPU:0"):
        try:
            tf.function(tf.identity, jit_compile=True)(tf.zeros([]))
        except tf.errors.NotFoundError:
            return False
    return True


def _is_on() -> bool:
    import keras

    return (
        _enabled
        and keras.backend.backend() == "tensorflow"
        and xla_compiles_for_the_cpu()
    )


@contextlib.contextmanager
def pieces_left_alone() -> Iterator[None]:
    """Within it, `compiled` is the identity: for what XLA compiles as a whole, TPUs."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def compiles_inference() -> bool:
    """Whether what is traced now computes by pieces, as training does, without dropout.

    Only within `pieces_in_inference`: models that are exported, or called with any
    length, are better off with the backend's own operations.
    """
    return _in_inference and _is_on()


@contextlib.contextmanager
def pieces_in_inference() -> Iterator[None]:
    """Within it, models compute by pieces in inference, too: for a few shapes."""
    global _in_inference
    before, _in_inference = _in_inference, True
    try:
        yield
    finally:
        _in_inference = before
